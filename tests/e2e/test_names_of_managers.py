"""The names of two managers are never taken for each other's, however they are written."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import grpc
import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kornel.core.domain.names import bare_partition_name, full_partition_name, manager_name_flaw
from kornel.core.service.callbacks.event_feed import INTERVAL_NS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import (
    callback_pb2,
    callback_pb2_grpc,
    configuration_pb2,
    configuration_pb2_grpc,
    events_pb2,
    events_pb2_grpc,
    read_pb2,
    read_pb2_grpc,
)
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
    release_request,
    running_core,
)
from tests.e2e.test_several_managers import managing, status_of
from tests.examples import mark_rest_long
from tests.exposition import parse
from tests.patience import PATIENCE_S

NAMES: Final = st.text(st.sampled_from("ab[]\ufffd/. \n\x00A"), max_size=7)
LEGAL: Final = st.builds(
    lambda begin, rest: f"{begin}{rest}".strip(), st.sampled_from("abA/."), st.text("abA/. ", max_size=6)
)
OURS: Final = "of-ours"
THEIRS: Final = "of-theirs"
"""Parts of all names that the one and the other manager give to things."""

PAGES: Final = (
    "nodes", "queues", "queues/flat", "applications/active", "applications/rejected", f"application/app-{OURS}",
    "waits", f"search?text={THEIRS}", "usage/users", "claims", "placementrules", "stranded",
)  # fmt: skip


@given(LEGAL, LEGAL, NAMES, NAMES)
@example("a", "a b", "[a b]default", "]default")
@example("a", "[", "", "")
def test_composed_names_cannot_be_forged(one: str, other: str, ours: str, theirs: str) -> None:
    """A partition that a manager names belongs to it, and no partition there is has the name of another one's."""
    full = full_partition_name(one, ours)
    assert full.startswith(f"[{one}]")
    assert full_partition_name(one, full) == full, "a full name stays as it is"
    assert not bare_partition_name(full).startswith("[")
    assert not bare_partition_name(full).endswith("]default")
    if one != other:
        assert full != full_partition_name(other, theirs)


@given(LEGAL, LEGAL, LEGAL, LEGAL)
def test_two_names_compose_to_one_in_one_way(one: str, ours: str, other: str, theirs: str) -> None:
    assert not any(manager_name_flaw("it", name) for name in (one, ours, other, theirs))
    same = full_partition_name(one, ours) == full_partition_name(other, theirs)
    assert same == ((one, ours) == (other, theirs))


@pytest.mark.parametrize("name", ["a]b", "[a", "a\nb", "a\x00", "a\u202eb", "a\ufffd", " a", "a ", "\u200b"])
async def test_such_an_rm_id_is_refused_with_a_reason(name: str) -> None:
    async with running_core() as core:
        with pytest.raises(grpc.aio.AioRpcError, match=r"the rmID (has the character|begins or ends)") as refused:
            await core.register(name)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["b]default", "[rm-1]default", "a\\nb", "\\ufffd"])
async def test_such_a_partition_is_refused_with_its_line(name: str) -> None:
    async with running_core() as core:
        with pytest.raises(grpc.aio.AioRpcError, match=r"line 3.*a partition's name has the character"):
            await core.register("rm-1", CONFIG.replace("name: default", f'name: "{name}"'))


async def test_other_names_stay_free() -> None:
    """Of nodes, applications and keys: they are never joined into one text."""
    free = "a]b [c]\u2603/|:"
    async with running_core() as core, managing(core, "My cluster/1:2 \u00e9") as manager:
        await manager.nodes.send(node_request(create(free), rm_id=manager.rm_id))
        assert (await manager.nodes.receive()).accepted[0].nodeID == free
        await manager.applications.send(application_request(free, rm_id=manager.rm_id))
        assert (await manager.applications.receive()).accepted[0].applicationID == free
        await manager.allocations.send(allocation_request(ask(free, free), rm_id=manager.rm_id))
        assert (await manager.allocations.entries(1))[0].allocationKey == free


async def test_a_slash_in_a_name_is_no_part_of_a_path() -> None:
    """A partition whose name looks like a path to something of another manager is shown, and nothing else."""
    own = "default/queue/root.a"
    async with running_core(rest_address="127.0.0.1:0") as core, managing(core, "of/ours") as manager:
        await core.register("rm-2", CONFIG.replace("name: default", f"name: {own}"))
        await manager.applications.send(application_request(f"app-{OURS}", rm_id=manager.rm_id))
        await manager.applications.entries(1)
        async with httpx.AsyncClient(base_url=f"http://{core.server.rest_address}/ws/v1", timeout=PATIENCE_S) as http:
            path = f"/partition/{quote(own, safe='')}"
            assert (await http.get(f"{path}/applications/active")).json() == []
            assert (await http.get(f"{path}/nodes")).status_code == 200
            assert OURS in (await http.get("/partition/default/queue/root.a/applications")).text
            moved = await http.get(f"{path}//nodes")
            assert (moved.status_code, moved.headers["location"]) == (301, f"/ws/v1{path}/nodes")
            await core.register("rm-3")
            full = f"/partition/{quote('[of/ours]default', safe='')}"
            assert OURS in (await http.get(f"{full}/applications/active")).text


class Intruder:
    """Another manager, which does what *dice* say, with names that look like those of *victim*."""

    def __init__(self, core: Core, victim: str, dice: random.Random) -> None:
        names = [f"{victim} 2", victim.upper(), f"{victim}/default", f"{victim}.", "default", "x"]
        self.rm_id = dice.choice([name for name in names if name != victim])
        self._core = core
        self._victim = victim
        self._dice = dice
        self.heard: list[Any] = []

    def _draw_partition(self) -> str:
        victim, own = self._victim, self.rm_id
        every = ["", "default", f"[{victim}]default", f"[{own}][{victim}]default", f"{victim}]default", "]default"]
        return self._dice.choice([*every, f"[{own}]default", f"[{victim}", "[", f"[{victim}]", "[]default"])

    def _draw_config(self) -> str:
        name = self._dice.choice(["default", f"[{self._victim}]default", "other", f"{self._victim}", "]"])
        return CONFIG.replace("name: default", f'name: "{name}"').replace("name: a", f"name: {THEIRS}")

    async def act(self) -> None:
        with suppress(grpc.aio.AioRpcError):
            await self._core.register(self.rm_id, self._draw_config())
        async with open_streams(self._core) as streams:
            for _ in range(6):
                await self._send_something(streams)
            await self._core.settle()
            for stream in streams:
                self.heard += stream.got
        with suppress(grpc.aio.AioRpcError):
            await configuration_pb2_grpc.ConfigurationServiceStub(self._core.channel).UpdateConfiguration(
                configuration_pb2.UpdateConfigurationRequest(rm_id=self.rm_id, config=self._draw_config())
            )

    async def _send_something(self, streams: Any) -> None:
        partition, number = self._draw_partition(), self._dice.randrange(3)
        name = self._dice.choice([f"{THEIRS}-{number}", f"n-{OURS}", f"app-{OURS}", f"k-{OURS}"])
        released = si.AllocationRelease(partitionName=partition, applicationID=f"app-{OURS}", allocationKey=f"k-{OURS}")
        kind = self._dice.randrange(4)
        if kind == 0:
            await streams.nodes.send(node_request(create(name, partition), rm_id=self.rm_id))
        elif kind == 1:
            added = application_request(name, partition=partition, rm_id=self.rm_id, queue=f"root.{THEIRS}")
            await streams.applications.send(added)
        elif kind == 2:
            await streams.allocations.send(
                allocation_request(ask(f"{THEIRS}-{number}", name, partition), rm_id=self.rm_id)
            )
        else:
            await streams.allocations.send(release_request(released, rm_id=self.rm_id))


class Lived(NamedTuple):
    """What came of a manager's life.

    shown  all that it hears, its events included, and what is shown of it
    feed   the events of the whole core, which name no manager
    """

    shown: list[str]
    feed: list[str]


async def live_through(victim: str, seed: int, *, alone: bool) -> Lived:
    """Returns what comes of the life of *victim* beside another manager, or *alone*."""
    shown: list[Any] = []
    async with running_core(rest_address="127.0.0.1:0") as core:
        intruder = Intruder(core, victim, random.Random(seed))

        async def intrude() -> None:
            if not alone:
                await intruder.act()

        await intrude()
        await core.register(victim)
        callbacks = callback_pb2_grpc.CallbackServiceStub(core.channel).Attach()
        async with open_streams(core) as streams, Conversation.open(callbacks) as told:
            wanted = callback_pb2.Subscription(rm_id=victim, events=True)
            await told.send(callback_pb2.AttachRequest(subscription=wanted))
            await told.receive()
            await streams.nodes.send(node_request(create(f"n-{OURS}"), create(f"n-{OURS}"), rm_id=victim))
            shown += await streams.nodes.entries(2)
            await intrude()
            await streams.applications.send(application_request(f"app-{OURS}", rm_id=victim))
            shown += await streams.applications.entries(1)
            await intrude()
            asked = [ask(f"k-{OURS}", f"app-{OURS}"), ask(f"none-{OURS}", "nobody")]
            await streams.allocations.send(allocation_request(*asked, rm_id=victim))
            shown += await streams.allocations.entries(2)
            await intrude()
            shown += [*streams.nodes.got, *streams.applications.got]
            shown += await read_all(core, f"[{victim}]default")
            shown += (await status_of(core, rm_id=victim)).partitions
            shown += await read_pages(core, f"[{victim}]default")
            shown += await read_metrics(core, victim)
            feed = await read_events(core)
            core.clock.advance(INTERVAL_NS)
            await core.settle()
            shown += [event for response in told.got for event in response.events]
    for entry in intruder.heard:
        assert "nobody" not in str(entry)
    return Lived([str(entry) for entry in shown], feed)


async def read_events(core: Core) -> list[str]:
    """Returns the events of the whole core, without their numbers."""
    request = events_pb2.WatchEventsRequest(newest=100_000, stored_only=True)
    async with Conversation.open(events_pb2_grpc.EventServiceStub(core.channel).WatchEvents(request)) as stream:
        await stream.end()
        return [str(event.record) for response in stream.got for event in response.events]


async def read_metrics(core: Core, victim: str) -> list[str]:
    """Returns the samples that name the partition of *victim*, or that manager itself."""
    async with httpx.AsyncClient(base_url=f"http://{core.server.rest_address}", timeout=PATIENCE_S) as http:
        samples = [(sample, dict(sample.labels)) for sample in parse((await http.get("/ws/v1/metrics")).text)]
    full = f"[{victim}]default"
    names = {labels.get("partition") for _, labels in samples}
    own = full if full in names else "default"
    found = []
    for sample, labels in samples:
        if own == labels.get("partition") or victim == labels.get("manager"):
            labels = {name: "default" if value == own else value for name, value in labels.items()}  # noqa: PLW2901
            found.append(f"{sample.name} {labels} {sample.value}")
    return found


async def read_all(core: Core, partition: str) -> list[Any]:
    """Returns what is shown of *partition*."""
    stub: Any = read_pb2_grpc.ReadServiceStub(core.channel)
    refusals = await stub.ListRefusals(read_pb2.ListRefusalsRequest(partition=partition), timeout=PATIENCE_S)
    for refusal in refusals.refusals:
        refusal.ClearField("number")  # The core counts those of all managers.
    nodes = await stub.ListNodes(read_pb2.ListNodesRequest(partition=partition), timeout=PATIENCE_S)
    applications = await stub.ListApplications(
        read_pb2.ListApplicationsRequest(partition=partition), timeout=PATIENCE_S
    )
    return [*refusals.refusals, *nodes.nodes, *applications.applications]


async def read_pages(core: Core, partition: str) -> list[str]:
    """Returns the documents of *partition* over HTTP. A path has its full name if another manager has one of the same
    short name, and the short one otherwise (rest.md 1)."""
    found: list[str] = []
    async with httpx.AsyncClient(base_url=f"http://{core.server.rest_address}", timeout=PATIENCE_S) as http:
        full = f"/ws/v1/partition/{quote(partition, safe='')}"
        path = full if (await http.get(f"{full}/nodes")).status_code == 200 else "/ws/v1/partition/default"
        for page in PAGES:
            answer = await http.get(f"{path}/{page}")
            assert answer.status_code == 200, page
            found.append(f"{page} {answer.text}".replace(partition, "default"))
    return found


@pytest.mark.parametrize("seed", mark_rest_long(range(40), keep=2))
def test_nothing_of_one_manager_shows_in_another_one(seed: int) -> None:
    """What it hears and what is shown of it is the same with the other one and without."""
    victim = random.Random(seed).choice(["rm", "a b", "default", "x/y"])
    alone = asyncio.run(live_through(victim, seed, alone=True))
    beside = asyncio.run(live_through(victim, seed, alone=False))
    assert beside.shown == alone.shown
    assert not any(THEIRS in entry for entry in beside.shown if not entry.startswith("search"))
    events = iter(beside.feed)
    assert all(event in events for event in alone.feed), "its events are in the feed of the core, in their order"
