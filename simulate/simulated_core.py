"""A core without a network: an engine that is called as the service calls it, whose messages are those of ``si.v1``.

Requests are decoded and effects encoded by the code of the service, and its driver decides when slices and rounds of
preemption are due, so that the engine gets the same calls as that of a served core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    CommandRefused,
    PreemptionNoticeAnswer,
    UpdateConfiguration,
)
from kornel.core.domain.effects import Effect, PreemptionNotice
from kornel.core.engine.engine import Engine
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.metrics.metrics import NoTimer, ServiceMetrics
from kornel.core.service.runner.engine_driver import EngineDriver
from kornel.core.service.runner.intake_queue import ENTRIES_PER_TURN, size_of_command
from kornel.core.service.runner.journal_port import NoRestorer
from kornel.core.service.runner.runner import SLICE_BUDGET
from kornel.core.service.streams.resuming import KIND_OF, Kind
from kornel.core.service.wire.scheduler_wire import Decoder, Encoder, list_key
from kornel.core.service.wire.status_codes import EngineFault
from kornel.shim_client import NoticeReply, Update
from kornel.shim_client import PreemptionNotice as HeardNotice
from kornel.shim_client.asks import AllocationEntry
from kornel.shim_client.updates import allocation_updates, application_updates, node_updates
from kornel.si.v1 import si_pb2 as si


class SimulationFailed(Exception):
    """The simulation cannot go on; the text says why."""


class ConfigurationRefused(SimulationFailed):
    """A queue configuration cannot be used."""


class SimulatedCore:
    """A core for one manager, *rm_id*, in the time of *clock*. Each method hands what the core says to *hear* before it
    returns, and the notices of preemption to *answer*. *observe* sees all effects before.

    Raises :class:`ConfigurationRefused`, and :class:`SimulationFailed` for a bug of the engine or a broken law, with
    the number of the call of the engine, the registration being the first.
    """

    def __init__(
        self,
        clock: ManualClock,
        rm_id: str,
        hear: Callable[[Update], None],
        answer: Callable[[HeardNotice], NoticeReply | None],
        observe: Callable[[Sequence[Effect]], None] = lambda effects: None,
        engine: Engine | None = None,
    ) -> None:
        self.engine: Final = engine or Engine()
        self.rm_id: Final = rm_id
        self.calls = 0
        """The number of calls of the engine so far."""
        self._clock = clock
        self._hear = hear
        self._answer = answer
        self._observe = observe
        self._decoder = Decoder()
        self._encoder = Encoder()
        self._metrics = ServiceMetrics()
        self._effects: list[Effect] = []
        self._broken = 0
        self._driver = EngineDriver(
            self.engine,
            clock=clock,
            metrics=self._metrics,
            timer=NoTimer(),
            logger=build_logger(LogFormat.CONSOLE, LogLevel.ERROR),
            restorer=NoRestorer(),
            on_effects=self._effects.extend,
            on_damage=self._note_damage,
            budget=SLICE_BUDGET,
        )

    def register(self, config: str, version: str, *, notices: bool) -> None:
        """Register the manager. *notices*: it hears notices of preemption."""
        request = si.RegisterResourceManagerRequest(
            rmID=self.rm_id, version=version, policyGroup="queues", config=config
        )
        self._apply(self._decoder.decode_registration(request))
        self._effects.clear()  # Shims are not notified of what a registration drops.
        self._driver.start_afresh()
        self.run_slices()
        if notices:
            self._apply(AttachCallbacks(self.rm_id, preemption_notices=True))
            self.run_slices()

    def update_configuration(self, config: str) -> None:
        """Replace the queue configuration."""
        self._apply(UpdateConfiguration(self.rm_id, config, "queues", ()))
        self.run_slices()

    def send_nodes(self, nodes: Sequence[si.NodeInfo]) -> None:
        """Report *nodes* in one message."""
        self._send(self._decoder.node_commands(si.NodeRequest(rmID=self.rm_id, nodes=nodes)))

    def send_applications(self, applications: Sequence[si.AddApplicationRequest]) -> None:
        """Add *applications* in one message."""
        self._send(self._decoder.application_commands(si.ApplicationRequest(rmID=self.rm_id, new=applications)))

    def send_allocations(self, entries: Sequence[AllocationEntry]) -> None:
        """Send asks, withdrawals and releases in one message."""
        request = si.AllocationRequest(rmID=self.rm_id)
        lists: dict[type, Any] = {
            si.Allocation: request.allocations,
            si.AllocationAsk: request.asks,
            si.AllocationAskRelease: request.releases.allocationAsksToRelease,
            si.AllocationRelease: request.releases.allocationsToRelease,
        }
        for kind, some in groupby(entries, type):
            lists[kind].extend(some)
        self._send(self._decoder.allocation_commands(request))

    def next_call_ns(self) -> int | None:
        """Returns when :meth:`decide` has to be called next; ``None``: not because of time alone."""
        return self._driver.next_call_ns()

    def run_slices(self) -> None:
        """Run slices until there is nothing more to decide now."""
        while self._run_slice():
            pass
        self._pass_effects()

    def _send(self, commands: Iterable[Command]) -> None:
        """Apply *commands*, the pieces of one message. Between them slices are run as in a service, which takes so many
        entries in a turn."""
        awake = woken = False
        for command in commands:
            woken = woken or awake
            self._apply(command)
            full = size_of_command(command) >= ENTRIES_PER_TURN  # type: ignore[arg-type]
            more = self._run_slice()
            awake = full or more
        while more:
            more = self._run_slice()
        if woken:
            # A piece that came while the task of the engine was awake has it look once more before it sleeps.
            while self._run_slice():
                pass
        self._pass_effects()

    def _apply(self, command: Command) -> None:
        self.calls += 1
        try:
            self._effects += self._driver.apply(command)
        except ConfigError as error:
            raise ConfigurationRefused(f"the queue configuration is refused: {error}") from error
        except CommandRefused as error:
            raise SimulationFailed(f"call {self.calls} was refused: {error}") from error
        except EngineFault as error:
            raise SimulationFailed(f"bug of the engine in call {self.calls}: {error.__cause__!r}") from error

    def _run_slice(self) -> bool:
        self.calls += 1
        more = self._driver.run_slice(commands_wait=False)
        self._check_laws()
        return more

    def _check_laws(self) -> None:
        broken = 0
        for name in self.engine.partition_names():
            state = self.engine.partition(name)
            assert state is not None
            broken += state.law_violations
        if broken > self._broken:
            raise SimulationFailed(f"a plan broke a law of preemption in call {self.calls} of the engine")

    def _note_damage(self, damaged: bool) -> None:
        if damaged:
            raise SimulationFailed(f"bug of the engine in call {self.calls}")

    def _pass_effects(self) -> None:
        """Hand over the effects so far, stream by stream, each in its order."""
        effects = self._effects[:]
        self._effects.clear()
        if not effects:
            return
        self._observe(effects)
        encoder = self._encoder
        heard: list[Update] = []
        for kind, encode, message, read in (
            (Kind.NODE, encoder.encode_nodes, si.NodeResponse, node_updates),
            (Kind.APPLICATION, encoder.encode_applications, si.ApplicationResponse, application_updates),
            (Kind.ALLOCATION, encoder.encode_allocations, si.AllocationResponse, allocation_updates),
        ):
            carried: list[Any] = [effect for effect in effects if KIND_OF.get(type(effect)) is kind]
            for _, run in groupby(carried, list_key):
                heard.extend(read(message.FromString(encode(list(run)))))  # type: ignore[arg-type]
        for update in heard:
            self._hear(update)
        for effect in effects:
            if isinstance(effect, PreemptionNotice):
                self._answer_notice(effect)

    def _answer_notice(self, notice: PreemptionNotice) -> None:
        need = dict(notice.need.items()) if notice.need is not None else {}
        heard = HeardNotice(
            notice.notice,
            notice.partition,
            notice.application_id,
            notice.round,
            notice.strict,
            notice.at_risk,
            need,
            notice.deadline_ns // 1_000_000,
            notice.kind,
            notice.reason,
        )
        if (reply := self._answer(heard)) is not None:
            saved = tuple(sorted(reply.checkpoints.items()))
            answer = PreemptionNoticeAnswer(notice.notice, reply.accepted, tuple(reply.instead), saved)
            self._apply(AnswerCallbacks(self.rm_id, notices=(answer,)))
            self.run_slices()
