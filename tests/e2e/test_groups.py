"""Groups of users on the wire, with a resolver configured: config.md 11, B3, B17; protocol.md 6.1, DB-17."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from kornel.core.domain.commands import Command, UpdateApplications
from kornel.core.domain.effects import Effect
from kornel.core.engine.engine import Engine
from kornel.core.service.resolvers.source import Unresolved
from kornel.core.service.resolvers.sources import Sources
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import configuration_pb2 as pb
from kornel.v1 import configuration_pb2_grpc
from tests.e2e.harness import Conversation, create, node_request, running_core
from tests.patience import PATIENCE_S
from tests.waiting import until

GROUPS_DECIDE = """
partitions:
  - name: default
    usergroupresolver: {type: test}
    placementrules:
      - name: fixed
        value: root.a
        filter: {type: allow, groups: [dev]}
    queues:
      - name: root
        submitacl: "* *"
        queues:
          - name: a
"""


class People:
    """bob is in dev, and telling takes until somebody opens the gate. Nobody else is known."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def groups_of(self, user: str) -> tuple[str, ...]:
        if user != "bob":
            raise Unresolved(f"nobody knows {user!r}")
        assert self.gate.wait(PATIENCE_S)
        return (user, "dev")


class Recorder(Engine):
    """The engine, with a log of its commands."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[Command, int]] = []

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        self.log.append((command, now_ns))
        return super().apply(command, now_ns)


def application(application_id: str, user: str, *groups: str, forced: bool = False) -> si.AddApplicationRequest:
    return si.AddApplicationRequest(
        applicationID=application_id,
        ugi=si.UserGroupInformation(user=user, groups=groups),
        tags={"application.create.force": "true"} if forced else {},
    )


def request(*added: si.AddApplicationRequest, remove: tuple[str, ...] = ()) -> si.ApplicationRequest:
    gone = [si.RemoveApplicationRequest(applicationID=each) for each in remove]
    return si.ApplicationRequest(rmID="rm-1", new=added, remove=gone)


def outcome(entries: list[Any]) -> list[tuple[str, str]]:
    """Each entry as its application and the token of its reason; empty: accepted."""
    return [(entry.applicationID, getattr(entry, "reason", "").partition(":")[0]) for entry in entries]


@pytest.fixture
def people() -> People:
    return People()


async def test_a_slow_look_up_holds_up_its_stream_and_no_other(people: People) -> None:
    """Requests behind it keep their place, nodes are served meanwhile, and groups decide where applications go."""
    async with running_core(sources=Sources({"test": people}, {})) as core:
        await core.register(config=GROUPS_DECIDE)
        async with (
            Conversation.open(core.scheduler.UpdateApplication()) as applications,
            Conversation.open(core.scheduler.UpdateNode()) as nodes,
        ):
            await applications.send(
                request(application("slow", "bob")),
                request(application("given", "ann", "dev")),
                request(application("slow", "ann", "dev"), remove=("slow",)),
            )
            await nodes.send(node_request(create("n1")))
            assert (await nodes.receive()).accepted[0].nodeID == "n1"
            people.gate.set()
            assert outcome(await applications.entries(3)) == [
                ("slow", ""),
                ("given", ""),
                ("slow", "application-exists"),
            ]


async def test_who_cannot_be_resolved_is_refused_unless_running(people: People) -> None:
    """T83: ``user-invalid`` with the reason; running work goes on as a member of nogroup, for which no rule is."""
    people.gate.set()
    async with running_core(sources=Sources({"test": people}, {})) as core:
        await core.register(config=GROUPS_DECIDE)
        async with Conversation.open(core.scheduler.UpdateApplication()) as applications:
            await applications.send(
                request(application("new", "zoe"), application("running", "zoe", forced=True), application("b", "bob"))
            )
            entries = await applications.entries(3)
            assert sorted(outcome(entries)) == [("b", ""), ("new", "user-invalid"), ("running", "")]
            (reason,) = (entry.reason for entry in entries if entry.applicationID == "new")
            assert reason == "user-invalid: groups of 'zoe' cannot be found: nobody knows 'zoe'"


async def test_commands_replay_without_the_resolver(people: People) -> None:
    """What was found is part of the command: an engine alone comes to the same answers."""
    people.gate.set()
    engine = Recorder()
    async with running_core(engine, sources=Sources({"test": people}, {})) as core:
        await core.register(config=GROUPS_DECIDE)
        async with Conversation.open(core.scheduler.UpdateApplication()) as applications:
            await applications.send(request(application("b", "bob"), application("z", "zoe")))
            await applications.entries(2)
    again = Engine()
    answers = [effect for command, now_ns in engine.log for effect in again.apply(command, now_ns)]
    assert [type(effect).__name__ for effect in answers] == ["ApplicationAccepted", "ApplicationRejected"]
    (added,) = (command.add for command, _ in engine.log if isinstance(command, UpdateApplications))
    assert [spec.looked_up for spec in added] == [("bob", "dev"), ()]


async def test_stream_that_ends_during_a_look_up_leaves_nothing_behind(people: People) -> None:
    """The client goes away; what its request waited for is given up with the server at the latest."""
    async with running_core(sources=Sources({"test": people}, {})) as core:
        await core.register(config=GROUPS_DECIDE)
        async with Conversation.open(core.scheduler.UpdateApplication()) as applications:
            await applications.send(request(application("slow", "bob")))
            await until(lambda: core.metrics.group_lookups > 0, "the look-up to begin")
        people.gate.set()


@pytest.mark.parametrize(
    ("kind", "why"),
    [("ldap", "no settings were given"), ("test", "it is for tests of the core itself")],
)
async def test_configuration_with_a_resolver_that_does_not_work_is_refused(kind: str, why: str) -> None:
    """B3: at registration, update and validation alike, with the place in the text; what was in force stays."""
    config = GROUPS_DECIDE.replace("type: test", f"type: {kind}")
    async with running_core() as core:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await core.register(config=config)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        expected = (
            f"line 4, column 25: partitions[0].usergroupresolver.type: resolver '{kind}' does not work here: {why}"
        )
        assert expected in (refused.value.details() or "")
        await core.register(config=GROUPS_DECIDE.replace("type: test", "type: os"))
        configuration = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
        with pytest.raises(grpc.aio.AioRpcError, match="does not work here"):
            await configuration.UpdateConfiguration(pb.UpdateConfigurationRequest(rm_id="rm-1", config=config))
        checked = await configuration.ValidateConfiguration(pb.ValidateConfigurationRequest(config=config))
        assert (checked.valid, [problem.line for problem in checked.problems]) == (False, [4])
