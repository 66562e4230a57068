"""A stage whose core is served: the shim speaks ``si.v1`` over gRPC, and what counts is what it hears there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self, TypeVar

from kornel.core.domain.application_states import AppEvent
from kornel.core.domain.commands import Command, RegisterManager, TerminationType, UpdateConfiguration
from kornel.core.domain.devices import GIVEN_TAG
from kornel.core.domain.effects import Effect
from kornel.core.engine.engine import CycleResult, Engine
from kornel.core.service.machine.clock import ManualClock
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import configuration_pb2, configuration_pb2_grpc
from tests.e2e.harness import Conversation, Core, running_core
from tests.patience import PATIENCE_S
from tests.scenarios.language import RM
from tests.scenarios.wall_clock_stage import WallClockStage
from tests.waiting import until

_Result = TypeVar("_Result")

BUDGET: Final = 1_000
_DEFAULT_EVENTS: Final = frozenset(event.value for event in AppEvent)
_UNHEARD: Final = (
    "reserve ",
    "refuse ",
    "enforce ",
    "pause ",
    "stuck ",
    "event ",
    "monitor ",
    "notice ",
    "spare ",
    "no answer",
)


class UnsaidInStreams(Exception):
    """A line that a shim does not say in one of the three streams."""


class SteppedEngine(Engine):
    """An engine that decides only while the stage lets it, so that a scenario has the same steps over gRPC."""

    def __init__(self) -> None:
        super().__init__()
        self.applied = 0
        self.may_decide = False
        self.once = False
        self.preempts = False

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        self.applied += 1
        return super().apply(command, now_ns)

    def cycle(self, now_ns: int, budget: int) -> CycleResult:
        if not self.may_decide:
            return CycleResult([], more=False)
        if self.preempts:
            self.preempts = self.may_decide = False
            return CycleResult(super().preempt(now_ns), more=False)
        result = super().cycle(now_ns, BUDGET)
        self.may_decide = result.more and not self.once
        return CycleResult(result.effects, self.may_decide, result.standing)

    def preempt(self, now_ns: int) -> list[Effect]:
        return []

    def next_wakeup_ns(self) -> int | None:
        return None


class ServedStage(WallClockStage):
    """Plays scenarios as :class:`~tests.scenarios.stage.Stage` does, and answers what a shim hears, in any order.

    What has other ways than the streams (callbacks, events, the record of decisions) is left out of the answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = 0
        self.engine: SteppedEngine = SteppedEngine()
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._talks: dict[type, Conversation] = {}
        self._core: Core | None = None
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._open.aclose())
        self._runner.close()

    def play(self, inputs: Sequence[str]) -> list[str]:
        shown = super().play(inputs)
        return sorted([*heard(shown), *self._run(self._hear())])

    def _run(self, what: Awaitable[_Result]) -> _Result:
        async def wait() -> _Result:
            return await what

        return self._runner.run(wait())

    def _apply(self, command: Command) -> list[str]:
        self._run(self._say(command))
        self._check()
        return []

    def _preempt(self) -> list[str]:
        self.engine.preempts = True
        return self._run_slices(BUDGET)

    def _run_slices(self, budget: int, *, once: bool = False) -> list[str]:
        if budget != BUDGET:
            raise UnsaidInStreams
        self._run(self._decide(once))
        self._check()
        return []

    async def _say(self, command: Command) -> None:
        if isinstance(command, RegisterManager):
            if self._core is not None:
                raise UnsaidInStreams
            await self._start(command)
            return
        if self._core is None:
            raise UnsaidInStreams
        await self._move_clock()
        if isinstance(command, UpdateConfiguration):
            stub: Any = configuration_pb2_grpc.ConfigurationServiceStub(self._core.channel)
            update = configuration_pb2.UpdateConfigurationRequest(rm_id=command.rm_id, config=command.config)
            await stub.UpdateConfiguration(update, timeout=PATIENCE_S)
            return
        request = self.write_request(command)
        if request is None:
            raise UnsaidInStreams
        await self._send_request(request)

    async def _start(self, command: RegisterManager) -> None:
        clock = ManualClock(self.now_ns)
        core = self._core = await self._open.enter_async_context(running_core(self.engine, clock=clock))
        await core.register(command.rm_id, command.config)
        for kind, method in (
            (si.NodeRequest, core.scheduler.UpdateNode),
            (si.ApplicationRequest, core.scheduler.UpdateApplication),
            (si.AllocationRequest, core.scheduler.UpdateAllocation),
        ):
            talk = self._talks[kind] = await self._open.enter_async_context(Conversation.open(method()))
            await talk.send(kind(rmID=command.rm_id))
            self._open.callback(asyncio.create_task(self._listen(talk)).cancel)
        await core.settle()

    async def _listen(self, talk: Conversation) -> None:
        async for response in talk.call:
            self._lines += _read_response(response)

    async def _send_request(self, request: Any) -> None:
        applied = self.engine.applied
        await self._talks[type(request)].send(request)
        await until(lambda: self.engine.applied > applied, "the request to be applied")

    async def _decide(self, once: bool) -> None:
        await self._move_clock()
        applied = self.engine.applied
        self.engine.may_decide, self.engine.once = True, once
        # Any message wakes the loop of the core. It may decide before that: whoever sends the next request would take
        # this one, still on its way, for its own.
        await self._talks[si.AllocationRequest].send(si.AllocationRequest(rmID=RM))
        done = "the core to come to an end of its decisions"
        await until(lambda: self.engine.applied > applied and not self.engine.may_decide, done)

    async def _move_clock(self) -> None:
        assert self._core is not None
        self._core.clock.advance(self.now_ns - self._core.clock.now_ns())

    async def _hear(self) -> list[str]:
        if self._core is not None:
            await self._core.settle()
        lines, self._lines = self._lines, []
        return lines


def heard(expected: Sequence[str]) -> list[str]:
    """Returns those of the *expected* lines of a step that a shim hears in the streams, as :class:`ServedStage` says
    them."""
    lines = [re.sub(r"^@\S+ ", "", line) for line in expected]
    return sorted(re.sub(r"#\d+\b| for=\S+", "", line) for line in lines if not line.startswith(_UNHEARD))


def _read_response(response: Any) -> Iterator[str]:
    readers: dict[str, Callable[[Any], str]] = _READERS[type(response)]
    for field, entries in response.ListFields():
        yield from map(readers[field.name], entries)


def _token(reason: str) -> str:
    return reason.split(":", 1)[0]


def _read_new(entry: si.Allocation) -> str:
    given = entry.allocationTags.get(GIVEN_TAG, "")
    return f"allocate {entry.allocationKey} on {entry.nodeID}" + (f" with {given}" if given else "")


def _read_update(entry: si.UpdatedApplication) -> str:
    why = "" if entry.message in _DEFAULT_EVENTS else f" {entry.message}"
    return f"app {entry.applicationID} {entry.state}{why}"


def _read_released(entry: si.AllocationRelease) -> str:
    where = "" if entry.partitionName == f"[{RM}]default" else f" partition={entry.partitionName}"
    return f"release {entry.allocationKey} {TerminationType(entry.terminationType).name}{where}"


def _read_refused(what: str, name: str, reason: str) -> str:
    return f"reject {what}{name or '-'} {_token(reason)}"


_READERS: Final[dict[type, dict[str, Callable[[Any], str]]]] = {
    si.NodeResponse: {
        "accepted": lambda entry: f"accept node {entry.nodeID}",
        "rejected": lambda entry: _read_refused("node ", entry.nodeID, entry.reason),
    },
    si.ApplicationResponse: {
        "accepted": lambda entry: f"accept app {entry.applicationID}",
        "rejected": lambda entry: _read_refused("app ", entry.applicationID, entry.reason),
        "updated": _read_update,
    },
    si.AllocationResponse: {
        "new": _read_new,
        "released": _read_released,
        "releasedAsks": lambda entry: (
            f"release-ask {entry.allocationKey} {TerminationType(entry.terminationType).name}"
        ),
        "rejected": lambda entry: _read_refused("", entry.allocationKey, entry.reason) + " legacy",
        "rejectedAllocations": lambda entry: _read_refused("", entry.allocationKey, entry.reason),
    },
}
