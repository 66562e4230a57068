"""An engine that does just enough to drive the service: no queues, no quotas, endless nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field

from kornel.core.config.loader import checksum_of
from kornel.core.config.model import Configuration
from kornel.core.domain.commands import (
    AllocationSpec,
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    CommandRefused,
    DetachCallbacks,
    Fault,
    NodeAction,
    RegisterManager,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, ApplicationAccepted, Effect, NodeAccepted, PredicatesAsked
from kornel.core.domain.manager import RegisteredManager
from kornel.core.domain.reasons import Ignored
from kornel.core.domain.resources import NOTHING
from kornel.core.state.partition_state import PartitionState


@dataclass
class FakeSlice:
    effects: list[Effect]
    more: bool
    standing: Mapping[str, str] = field(default_factory=dict)


@dataclass
class FakeEngine:
    """Accepts everything and places asks in order of arrival, *budget* per cycle, once it is told so by ``placing``."""

    rm_id: str = ""
    checksum: str = ""
    configuration: Configuration | None = None
    manager: RegisteredManager | None = None
    extra_config: dict[str, str] = field(default_factory=dict)
    unrouted: int = 0
    preemption_interval_ns: int | None = None
    wakeup_ns: int | None = None
    placing: bool = True
    applied: list[tuple[int, Command]] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    preempted_at: list[int] = field(default_factory=list)
    pending: deque[AllocationSpec] = field(default_factory=deque)
    answers: dict[type[Command], Callable[[Command], list[Effect]]] = field(default_factory=dict)
    on_cycle: Callable[[int], list[Effect]] | None = None

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        self.applied.append((now_ns, command))
        if type(command) in self.answers:
            return self.answers[type(command)](command)
        match command:
            case RegisterManager():
                if not command.rm_id:
                    raise CommandRefused(Fault.INVALID_ARGUMENT, "no rmID")
                if self.rm_id not in {"", command.rm_id}:
                    raise CommandRefused(Fault.OTHER_MANAGER, f"{self.rm_id} is registered")
                self.rm_id = command.rm_id
                self.checksum = checksum_of(command.config)
                self.extra_config = dict(command.extra_config)
                self.pending.clear()
                return []
            case UpdateConfiguration():
                self.checksum = checksum_of(command.config)
                self.extra_config = dict(command.extra_config)
                return []
            case AttachCallbacks() | DetachCallbacks() | AnswerCallbacks():
                return []
            case UpdateNodes():
                return [NodeAccepted(n.node_id) for n in command.nodes if n.action == NodeAction.CREATE]
            case UpdateApplications():
                return [ApplicationAccepted(application.application_id) for application in command.add]
            case UpdateAllocations():
                self.pending.extend(command.allocations)
                return []
            case UnregisterManager():
                if command.rm_id != self.rm_id:
                    raise CommandRefused(Fault.UNKNOWN_MANAGER, f"{command.rm_id} is not registered")
                self.rm_id = self.checksum = ""
                self.pending.clear()
                return []
        raise AssertionError(f"nobody told the fake engine what to do with {command}")

    def prepare_configuration(self, text: str, configuration: Configuration) -> None:
        self.configuration = configuration

    def update_in_steps(self, command: UpdateConfiguration, now_ns: int) -> Generator[None, None, list[Effect]]:
        yield
        return self.apply(command, now_ns)

    def build_ahead(self, rm_id: str, configuration: Configuration) -> Iterator[None]:
        return iter(())

    def record_events(self) -> None:
        """Records none, whoever wants them."""

    def cycle(self, now_ns: int, budget: int) -> FakeSlice:
        self.cycles.append(now_ns)
        if self.wakeup_ns is not None and self.wakeup_ns <= now_ns:
            self.wakeup_ns = None
        if self.on_cycle is not None:
            return FakeSlice(self.on_cycle(now_ns), more=False)
        effects: list[Effect] = []
        while self.placing and self.pending and len(effects) < budget:
            spec = self.pending.popleft()
            effects.append(Allocated(spec, "n1", spec.resources or NOTHING))
        return FakeSlice(effects, more=self.placing and bool(self.pending))

    def preempt(self, now_ns: int) -> list[Effect]:
        self.preempted_at.append(now_ns)
        return []

    def observe_ignored(self, observer: Callable[[Ignored, str], None]) -> None:
        self.observer = observer

    def next_wakeup_ns(self) -> int | None:
        return self.wakeup_ns

    def partition(self, name: str) -> PartitionState | None:
        return None

    def partition_names(self) -> list[str]:
        return []


@dataclass
class AskingEngine(FakeEngine):
    """Asks whether n1 will do before it places anything, while somebody answers; places what was not refused."""

    attached: AttachCallbacks | None = None
    asked: dict[int, AllocationSpec] = field(default_factory=dict)
    refused: list[tuple[int, tuple[tuple[str, str], ...]]] = field(default_factory=list)
    script: deque[list[Effect]] = field(default_factory=deque)
    """Effects of the coming slices, instead of questions."""
    _number: int = 0

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        match command:
            case AttachCallbacks():
                self.attached = command
            case DetachCallbacks():
                self.attached = None
            case AnswerCallbacks():
                self.applied.append((now_ns, command))
                return self._answered(command)
        return super().apply(command, now_ns)

    def cycle(self, now_ns: int, budget: int) -> FakeSlice:
        if self.script:
            self.cycles.append(now_ns)
            return FakeSlice(self.script.popleft(), more=bool(self.script))
        if self.attached is None or not self.attached.predicates:
            return super().cycle(now_ns, budget)
        effects: list[Effect] = []
        while self.pending and len(effects) < budget:
            spec = self.pending.popleft()
            self._number += 1
            self.asked[self._number] = spec
            nodes = ("n1", "n2")
            effects.append(
                PredicatesAsked(self._number, spec.partition, spec.application_id, spec.key, nodes, allocate=True)
            )
        return FakeSlice(effects, more=bool(self.pending))

    def _answered(self, command: AnswerCallbacks) -> list[Effect]:
        effects: list[Effect] = []
        for number, refused, _ in command.predicates:
            spec = self.asked.pop(number, None)
            if spec is not None and not refused:
                effects.append(Allocated(spec, "n1", spec.resources or NOTHING))
            elif spec is not None:
                self.refused.append((number, refused))
        return effects
