"""``kornel.v1.HistoryService`` of a served core, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.core.archive.settings import history_settings
from kornel.core.process.history import HistoryChoice
from kornel.core.process.readiness import HISTORY
from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import history_pb2 as pb
from kornel.v1.configuration_pb2 import ConfigurationVersion, UpdateConfigurationRequest
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from kornel.v1.history_pb2_grpc import HistoryServiceStub
from kornel.v1.status_pb2 import GetStatusRequest
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    open_streams,
    running_core,
)
from tests.history_databases import only_sqlite_in_brief
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.waiting import until

PREEMPTING = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        properties:
          preemption.delay: 1s
        queues:
          - name: a
            resources: {guaranteed: {vcore: 5}}
          - name: b
"""


@asynccontextmanager
async def core_with(database: str, tmp_path: Path) -> AsyncIterator[Core]:
    settings = history_settings(database, spool=tmp_path / "spool")
    assert settings is not None
    settings = replace(settings, commit_wait_s=0.01, longest_pause_s=0.2)
    async with running_core(history=HistoryChoice(settings, required=True)) as core:
        yield core


def stub(core: Core) -> Any:
    return HistoryServiceStub(core.channel)


async def written(core: Core) -> pb.GetHistoryStatusResponse:
    """Once everything that happened so far is in the database: how it is doing."""
    await core.settle()
    found: list[pb.GetHistoryStatusResponse] = []

    def all_there() -> bool:
        status = core.server.history.status()
        assert status is not None
        return not status.queued and status.committed >= status.stored > 0 and not status.spool_bytes

    await until(all_there, "the history to be written")
    found.append(await stub(core).GetHistoryStatus(pb.GetHistoryStatusRequest(), timeout=PATIENCE_S))
    return found[0]


async def preempt(core: Core) -> None:
    """Fill the only node from `root.b`, then have an ask of `root.a` take its share."""
    await core.register(config=PREEMPTING)
    async with open_streams(core) as (nodes, applications, allocations):
        await nodes.send(node_request(create("node-1")))
        await nodes.receive()
        await applications.send(application_request("filler", queue="root.b"), application_request("starved"))
        await applications.entries(2)
        await allocations.send(allocation_request(*(ask(f"fill-{n}", "filler") for n in range(10))))
        await allocations.entries(10)
        wanted = ask("wanted", "starved")
        wanted.preemptionPolicy.allowPreemptOther = True
        await allocations.send(allocation_request(wanted))
        for _ in range(30):
            core.clock.advance(SECOND_NS)
            await core.settle()
            status = await StatusServiceStub(core.channel).GetStatus(GetStatusRequest(), timeout=PATIENCE_S)
            if status.partitions[0].preemption_triggered:
                break
        await written(core)


@only_sqlite_in_brief
async def test_preemption_is_told_with_victim_kind_laws_and_beneficiary(database: str, tmp_path: Path) -> None:
    """Who had to go, for whom, where, by which kind and under which laws."""
    async with core_with(database, tmp_path) as core:
        await preempt(core)
        answer = await stub(core).ListPreemptions(pb.ListPreemptionsRequest(outcome="TRIGGERED"), timeout=PATIENCE_S)
        (record,) = answer.preemptions
        assert (record.partition, record.kind, record.node_id) == ("[rm-1]default", "guarantee", "node-1")
        assert (record.for_allocation_key, record.for_application_id, record.for_queue) == (
            "wanted",
            "starved",
            "root.a",
        )
        assert list(record.laws) == [1, 2, 3, 4, 5, 6, 7]
        assert record.victim.allocation_key.startswith("fill-")
        assert (record.victim.application_id, record.victim.queue, record.victim.node_id) == (
            "filler",
            "root.b",
            "node-1",
        )
        assert dict(record.victim.resources) == {"vcore": 1_000}
        for queue, count in (("root", 1), ("root.a", 1), ("root.b", 1), ("root.ab", 0), ("a", 0)):
            found = await stub(core).ListPreemptions(pb.ListPreemptionsRequest(queue=queue), timeout=PATIENCE_S)
            assert len(found.preemptions) == count, queue


@only_sqlite_in_brief
async def test_preemption_is_told_with_users_and_whether_the_victim_left(database: str, tmp_path: Path) -> None:
    """Users come from the records of applications, the departure from the events; both are added up."""
    async with core_with(database, tmp_path) as core:
        await preempt(core)
        before = (await stub(core).ListPreemptions(pb.ListPreemptionsRequest(), timeout=PATIENCE_S)).preemptions[0]
        assert (before.for_user, before.victim.user, before.victim.left_ns) == ("ann", "ann", 0)
        (held,) = (await stub(core).SumPreemptions(pb.SumPreemptionsRequest(), timeout=PATIENCE_S)).sums
        assert (held.taken_by, held.taken_from, held.victim_count, held.left_count) == ("root.a", "root.b", 1, 0)
        assert dict(held.resources) == {"vcore": 1_000}

        async with Conversation.open(core.scheduler.UpdateAllocation()) as allocations:
            gone = si.AllocationReleasesRequest()
            gone.allocationsToRelease.add(
                partitionName="[rm-1]default",
                applicationID="filler",
                allocationKey=before.victim.allocation_key,
                terminationType=si.PREEMPTED_BY_SCHEDULER,
            )
            await allocations.send(si.AllocationRequest(rmID="rm-1", releases=gone))
            await allocations.entries(1)
        await written(core)
        wanted = pb.ListPreemptionsRequest(partition="default")
        after = (await stub(core).ListPreemptions(wanted, timeout=PATIENCE_S)).preemptions[0]
        assert after.victim.left_ns >= after.at_ns
        parties = {pb.PREEMPTION_PARTY_USER: ("ann", "ann"), pb.PREEMPTION_PARTY_APPLICATION: ("starved", "filler")}
        for by, sides in parties.items():
            request = pb.SumPreemptionsRequest(preemptions=wanted, by=by)
            answer = await stub(core).SumPreemptions(request, timeout=PATIENCE_S)
            assert answer.complete
            assert [(s.taken_by, s.taken_from, s.victim_count, s.left_count) for s in answer.sums] == [(*sides, 1, 1)]
        nowhere = pb.SumPreemptionsRequest(preemptions=pb.ListPreemptionsRequest(partition="other"))
        assert not (await stub(core).SumPreemptions(nowhere, timeout=PATIENCE_S)).sums


async def test_applications_and_events_are_told(database: str, tmp_path: Path) -> None:
    """A record for each state, with queue and user; events with their amounts; filters narrow both."""
    async with core_with(database, tmp_path) as core:
        await preempt(core)
        request = pb.ListPastApplicationsRequest(application_id="filler")
        found = (await stub(core).ListPastApplications(request, timeout=PATIENCE_S)).applications
        assert [record.state for record in found] == ["Running", "Accepted", "New"]
        assert {(record.queue, record.user, record.partition) for record in found} == {
            ("root.b", "ann", "[rm-1]default")
        }
        assert all(record.submitted_ns == found[-1].at_ns for record in found)
        nobody = await stub(core).ListPastApplications(pb.ListPastApplicationsRequest(user="bob"), timeout=PATIENCE_S)
        assert not nobody.applications
        request = pb.ListEventsRequest(type=si.EventRecord.NODE, object_id="node-1")
        events = (await stub(core).ListEvents(request, timeout=PATIENCE_S)).events
        placed = [event for event in events if event.detail == si.EventRecord.NODE_ALLOC]
        assert {dict(event.resources)["vcore"] for event in placed} == {1_000}
        assert len([event for event in placed if event.change == si.EventRecord.ADD]) == 10


async def test_pages_meet_without_gap_or_overlap(database: str, tmp_path: Path) -> None:
    """Whatever the size of a page, all of them together are the list, newest first."""
    async with core_with(database, tmp_path) as core:
        await preempt(core)
        whole = (await stub(core).ListEvents(_events(1_000), timeout=PATIENCE_S)).events
        assert len(whole) > 50
        assert [event.at_ns for event in whole] == sorted((event.at_ns for event in whole), reverse=True)
        for size in (1, 7, 50, len(whole)):
            pieces: list[pb.HistoryEvent] = []
            token = ""
            while True:
                answer = await stub(core).ListEvents(_events(size, token), timeout=PATIENCE_S)
                pieces += answer.events
                token = answer.next_page_token
                if not token:
                    break
                assert len(answer.events) == size
            assert pieces == list(whole), size
        middle = whole[len(whole) // 2].at_ns
        since = (await stub(core).ListEvents(_range(since_ns=middle), timeout=PATIENCE_S)).events
        before = (await stub(core).ListEvents(_range(until_ns=middle), timeout=PATIENCE_S)).events
        assert [*since, *before] == list(whole)


@only_sqlite_in_brief
async def test_configurations_are_told_across_restarts(database: str, tmp_path: Path) -> None:
    """Those in force and the refused ones, with their text on demand; each life of a core counts for itself."""
    for _ in range(2):
        async with core_with(database, tmp_path) as core:
            await core.register()
            configuring: Any = ConfigurationServiceStub(core.channel)
            with pytest.raises(grpc.aio.AioRpcError):
                await configuring.UpdateConfiguration(
                    UpdateConfigurationRequest(rm_id="rm-1", config="partitions: 3"), timeout=PATIENCE_S
                )
            await written(core)
            answer = await stub(core).ListConfigurations(pb.ListConfigurationsRequest(with_config=True))
    records = list(answer.configurations)
    assert [record.version.applied for record in records] == [False, True, False, True]
    assert [record.version.number for record in records] == [2, 1, 2, 1]
    assert len({record.id.run for record in records}) == 2
    assert records[1].config == CONFIG
    assert records[0].version.origin == ConfigurationVersion.ORIGIN_UPDATE
    assert records[0].version.problems[0].line == 1
    async with core_with(database, tmp_path) as core:
        request = pb.ListConfigurationsRequest(applied_only=True)
        answer = await stub(core).ListConfigurations(request, timeout=PATIENCE_S)
        assert [(record.version.applied, record.config) for record in answer.configurations] == [(True, "")] * 2


async def test_texts_of_configurations_are_shown_without_secrets(tmp_path: Path) -> None:
    """To read the history takes no right to configure."""
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        text = CONFIG.replace("name: a\n", "name: a\n            properties: {ldap.bindPassword: hunter2}\n")
        await core.register(config=text)
        await written(core)
        request = pb.ListConfigurationsRequest(with_config=True)
        answer = await stub(core).ListConfigurations(request, timeout=PATIENCE_S)
        assert [record.config for record in answer.configurations] == [text.replace("hunter2", "[hidden]")]
        assert [record.has_hidden for record in answer.configurations] == [True]


BAD_PAGES: tuple[dict[str, Any], ...] = (
    {"page_token": "x"}, {"page_token": "1.2"}, {"page_token": "1.2.-3"}, {"page_token": f"1.2.{10**19}"},
    {"page_token": "9223372036854775808.1.1"}, {"page_token": "\u0661.1.1"}, {"page_size": -1}, {"since_ns": -1},
    {"since_ns": 5, "until_ns": 4},
)  # fmt: skip


async def test_bad_pages_are_refused(tmp_path: Path) -> None:
    """INVALID_ARGUMENT, and the core goes on."""
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        for page in BAD_PAGES:
            for call, request in _lists(core, pb.HistoryPage(**page)):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(request)
                assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, page


async def test_without_history(core: Core) -> None:
    """FAILED_PRECONDITION says how to have one; the status says that there is none."""
    for call, request in _lists(core, pb.HistoryPage()):
        with pytest.raises(grpc.aio.AioRpcError, match="--history") as refused:
            await call(request)
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert not (await stub(core).GetHistoryStatus(pb.GetHistoryStatusRequest())).enabled


async def test_dead_database_is_told_by_health_status_and_lists(postgres: Postgres, tmp_path: Path) -> None:
    """Scheduling goes on; health of the history says NOT_SERVING until the database answers again; nothing is lost."""
    async with core_with(postgres.url, tmp_path) as core:
        health: Any = HealthStub(core.channel)  # type: ignore[no-untyped-call]
        request = health_pb2.HealthCheckRequest(service=HISTORY)

        async def is_serving() -> bool:
            answer = await health.Check(request, timeout=PATIENCE_S)
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

        assert await is_serving()
        postgres.stop()
        await core.serves()
        await until(lambda: _not(is_serving()), "health to say so")
        status = await stub(core).GetHistoryStatus(pb.GetHistoryStatusRequest(), timeout=PATIENCE_S)
        assert "the database cannot be written" in status.problem
        assert status.problem_since_ns > 0
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub(core).ListEvents(pb.ListEventsRequest(), timeout=PATIENCE_S)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        await core.serves()
        postgres.start()
        await until(is_serving, "health to be good again")
        status = await written(core)
        assert status.problem == ""
        assert (status.dropped, status.refused) == (0, 0)


def _events(size: int, token: str = "") -> pb.ListEventsRequest:
    return pb.ListEventsRequest(page=pb.HistoryPage(page_size=size, page_token=token))


def _range(**bounds: int) -> pb.ListEventsRequest:
    return pb.ListEventsRequest(page=pb.HistoryPage(page_size=1_000, **bounds))


def _lists(core: Core, page: pb.HistoryPage) -> list[tuple[Callable[[Any], Awaitable[Any]], Any]]:
    service = stub(core)
    return [
        (service.ListPastApplications, pb.ListPastApplicationsRequest(page=page)),
        (service.ListPreemptions, pb.ListPreemptionsRequest(page=page)),
        (service.ListEvents, pb.ListEventsRequest(page=page)),
        (service.ListConfigurations, pb.ListConfigurationsRequest(page=page)),
    ]


async def _not(condition: Awaitable[bool]) -> bool:
    return not await condition
