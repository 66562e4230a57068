"""The engine's interface: commands and time in, effects out. It is deterministic and synchronous, without I/O or a
clock.

The same calls with the same arguments give the same effects, byte for byte, in any process and under any hash seed.
Replay, recovery and a standby depend on that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from kornel.core.config.keys.event_settings import event_settings
from kornel.core.config.loader import load
from kornel.core.config.model import Configuration, PartitionConfig
from kornel.core.domain.application_states import AppEvent
from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    CommandRefused,
    DetachCallbacks,
    Fault,
    NodeAction,
    PreemptByHand,
    RegisterManager,
    SetOperatorDrain,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.drains import MOST_DRAINS, OperatorDrain
from kornel.core.domain.effects import AllocationRejected, ApplicationRejected, Effect, NodeRejected, PreemptionDecided
from kornel.core.domain.manager import RegisteredManager
from kornel.core.domain.names import full_partition_name, manager_name_flaw, show_name
from kornel.core.domain.reasons import Ignored, Rejection
from kornel.core.engine import dissolving, lifecycle
from kornel.core.engine.configuration import configure, offered_types
from kornel.core.engine.gangs import pools
from kornel.core.engine.intake import allocation_intake, application_intake, node_intake, release_intake
from kornel.core.engine.scheduling import autoscaling, cycle, rounds, vetting
from kornel.core.model.callbacks import Callbacks
from kornel.core.preemption import registry, slices
from kornel.core.preemption.quota.by_hand import drive as by_hand
from kornel.core.state.asks import questions
from kornel.core.state.options import EngineOptions
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import dependence, inquiries
from kornel.core.state.waiting.waking import wake_for_turn, wake_waiting

RECORDS_PER_DECISION: Final = 4
"""The number of records of a removed partition whose release takes about as long as one decision."""


@dataclass(frozen=True, slots=True)
class CycleResult:
    """The decisions of one slice. ``more`` tells whether the budget ended the slice, so that the next one should follow
    at once, and ``standing`` names each partition that has broken the law of progress with this slice, with what stands
    still there."""

    effects: list[Effect]
    more: bool
    standing: Mapping[str, str] = field(default_factory=dict)


class Engine:
    """The engine: all partitions of the registered resource manager."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self._options = options or EngineOptions()
        self.rm_id: str = ""
        """The ID of the registered manager; empty: none is registered."""
        self.manager: RegisteredManager | None = None
        """The registered manager as it described itself; ``None``: none is registered."""
        self.checksum: str = ""
        """The checksum of the configuration in force; empty while no manager is registered."""
        self.configuration: Configuration | None = None
        """The configuration in force, with its warnings; ``None`` while no manager is registered."""
        self._prepared: tuple[str, Configuration] | None = None
        self._built: dict[str, configure.Building] = {}
        """Partitions that were built ahead of their registration, by name."""
        self.extra_config: Mapping[str, str] = {}
        """The extra settings in force. A refused command leaves them unchanged, or removes them with everything
        else."""
        self._outbox: list[Effect] = []
        """Effects that were not handed over yet, shared by all partitions to keep their order."""
        self._partitions: dict[str, PartitionState] = {}
        self._operator_drains: dict[str, dict[str, OperatorDrain]] = {}
        """The nodes that operators drain, by partition. These drains end only when another manager registers."""
        self._remains: deque[Iterator[None]] = deque()
        """Removed partitions with records that are still to be freed."""
        self._callbacks = Callbacks()
        self._keeps_events = False
        self.unrouted = 0
        """The number of unanswered entries that named an unknown partition."""
        self._observer: Callable[[Ignored, str], None] = _observe_nothing
        self._handlers: dict[type, Callable[..., None]] = {
            RegisterManager: self._register,
            UnregisterManager: self._unregister,
            UpdateConfiguration: self._update_configuration,
            UpdateNodes: self._update_nodes,
            SetOperatorDrain: self._set_operator_drain,
            PreemptByHand: self._preempt_by_hand,
            UpdateApplications: self._update_applications,
            UpdateAllocations: self._update_allocations,
            AttachCallbacks: self._attach_callbacks,
            DetachCallbacks: self._detach_callbacks,
            AnswerCallbacks: self._answer_callbacks,
        }

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        """Carry out *command* and return the effects, in order.

        Raises :class:`CommandRefused` for a manager that is not the registered one, and
        :class:`kornel.core.config.text.problems.ConfigError` for a configuration that cannot be used; nothing of the
        command is applied then, except that a failed registration of the registered manager leaves no manager
        registered.
        """
        self._callbacks.now_ns = now_ns
        self._handlers[type(command)](command, now_ns)
        for state in self._partitions.values():
            if state.unreported:
                for cause, item in state.unreported:
                    self._observer(cause, item)
                state.unreported.clear()
            if state.gained:
                wake_waiting(state)
            if state.types.made_bytes > offered_types.BYTES_KEPT:
                offered_types.forget_excess(state)
        return self._take_effects()

    def update_in_steps(self, command: UpdateConfiguration, now_ns: int) -> Generator[None, None, list[Effect]]:
        """Does the same as :meth:`apply` with *command*, but yields often. Raises the same errors, before anything is
        changed.

        The engine must not be called until the last step: commands have to wait meanwhile, and nothing is decided.
        Readers see some queues as they were and others as they will be.
        """
        self._callbacks.now_ns = now_ns
        yield from self._take_update_steps(command, now_ns)
        return self._take_effects()

    def prepare_configuration(self, text: str, configuration: Configuration) -> None:
        """Keeps *configuration*, parsed from *text*, so that the next command with that text need not parse it again.

        This is a hint and not a command: without it the same happens, only later.
        """
        self._prepared = (text, configuration)

    def build_ahead(self, rm_id: str, configuration: Configuration) -> Iterator[None]:
        """Builds the partitions of *configuration*, in small steps, for a registration of *rm_id* that is about to
        come.

        This is a hint like :meth:`prepare_configuration`, with the same *configuration*. The engine can be used between
        two steps: the partitions in force are not touched, and the new ones are not visible before they all come into
        force at once.
        """
        self._forget_built()
        for partition in configuration.partitions:
            name = full_partition_name(rm_id, partition.name)
            building = configure.Building(name, partition, self._outbox, self._callbacks)
            complete = False
            try:
                yield from building.take_steps()
                complete = True
            finally:
                if not complete:
                    self._remains.append(dissolving.take_apart(building.state))
            self._built[name] = building

    def _forget_built(self) -> None:
        self._remains.extend(dissolving.take_apart(building.state) for building in self._built.values())
        self._built = {}

    def begin_epoch(self, options: EngineOptions, now_ns: int) -> None:
        """Continues in another core, with that core's *options*. Timers that begin again after a restart of the core
        begin again here, too."""
        self._options = options
        for state in self._partitions.values():
            state.follow_options(options)
            registry.begin_kinds_again(state, now_ns)

    def record_events(self) -> None:
        """Records the event history from now on, whether or not a shim wants it."""
        self._keeps_events = True
        self._follow_listeners()

    def observe_ignored(self, observer: Callable[[Ignored, str], None]) -> None:
        """Calls *observer* from now on for every request entry without effect, with the cause and the ID in the
        entry."""
        self._observer = observer

    def cycle(self, now_ns: int, budget: int) -> CycleResult:
        """Runs one slice of the allocation cycle: at most about *budget* decisions per partition."""
        callbacks = self._callbacks
        callbacks.now_ns = now_ns
        if callbacks.deadlines:
            inquiries.expire_inquiries(callbacks, now_ns)
        if callbacks.open or callbacks.line:
            dependence.let_others_pass(callbacks, self._partitions.values(), now_ns)
        more = False
        standing: dict[str, str] = {}
        for state in self._partitions.values():
            unfinished, still = cycle.run(state, now_ns, budget)
            more = unfinished or more
            if still:
                standing[state.name] = still
            if state.cleaning is not None:
                more = configure.advance_cleaning(state) or more
        # This comes last, because somebody who comes first in its leaf may have joined the line.
        if callbacks.line:
            more = dependence.ask_next(callbacks, now_ns) or more
        if self._remains:
            more = self._clear_away(budget * RECORDS_PER_DECISION) or more
        return CycleResult(self._take_effects(), more, standing)

    def preempt(self, now_ns: int) -> list[Effect]:
        """Runs one round of the periodic preemption cycle in every partition that has it enabled (preemption.md F2)."""
        self._callbacks.now_ns = now_ns
        for state in self._partitions.values():
            if state.has_rounds:
                slices.offer_due(state, now_ns)
                rounds.run(state, now_ns)
        return self._take_effects()

    @property
    def preemption_interval_ns(self) -> int | None:
        """The time after which :meth:`preempt` has to be called again; ``None``: not as long as nothing waits."""
        return min(
            (
                state.preemption.cycle_interval_ns
                for state in self._partitions.values()
                if state.has_rounds and slices.wants_round(state)
            ),
            default=None,
        )

    def next_wakeup_ns(self) -> int | None:
        """Returns when :meth:`cycle` next has something to do by the passing of time alone; ``None``: never."""
        heads = [
            heap[0][0] for state in self._partitions.values() for heap in (state.timers, state.attempts_due) if heap
        ]
        heads += [s.reserving.due_ns for s in self._partitions.values() if s.reserving.due_ns is not None]
        deadline_ns = inquiries.next_deadline_ns(self._callbacks)
        if deadline_ns is not None:
            heads.append(deadline_ns)
        turn_ns = dependence.next_turn_ns(self._callbacks)
        if turn_ns is not None:
            heads.append(turn_ns)
        return min(heads, default=None)

    def partition_names(self) -> list[str]:
        """Lists the full names of all partitions, sorted."""
        return sorted(self._partitions)

    def partition(self, name: str) -> PartitionState | None:
        """Returns the state of partition *name* (full form), for readers; ``None``: there is no such partition."""
        return self._partitions.get(name)

    def _take_effects(self) -> list[Effect]:
        effects = list(self._outbox)
        self._outbox.clear()
        self._callbacks.end_recording()
        if PreemptionDecided in map(type, effects):
            for effect in effects:
                if isinstance(effect, PreemptionDecided) and effect.victims:
                    state = self._partitions.get(effect.partition)
                    if state is not None:
                        state.recent_victims.note_victims(effect)
        return effects

    def _require_manager(self, rm_id: str, what: str) -> None:
        if not self.rm_id or rm_id != self.rm_id:
            raise CommandRefused(Fault.UNKNOWN_MANAGER, f"{what}: resource manager {rm_id!r} is not registered")

    def _register(self, command: RegisterManager, now_ns: int) -> None:
        """Register a manager. The old state of the same manager is removed first, without any effects (protocol.md 5.1,
        5.2, DB-3, DB-4)."""
        if not command.rm_id:
            raise CommandRefused(Fault.INVALID_ARGUMENT, "a resource manager needs an rmID")
        if flaw := manager_name_flaw("the rmID", command.rm_id):
            raise CommandRefused(Fault.INVALID_ARGUMENT, flaw)
        if self.rm_id and self.rm_id != command.rm_id:
            raise CommandRefused(
                Fault.OTHER_MANAGER,
                f"resource manager {self.rm_id!r} is registered, and a core serves one at a time: stop its shim and "
                f"unregister it (`kornel unregister {self.rm_id}`), register under its name, or start another core",
            )
        self._forget_manager()
        mine = f"[{command.rm_id}]"
        self._operator_drains = {name: kept for name, kept in self._operator_drains.items() if name.startswith(mine)}
        configuration = self._read(command.config)
        self._bring_into_force(command.extra_config)
        for partition in configuration.partitions:
            name = full_partition_name(command.rm_id, partition.name)
            self._build_partition(name, partition, now_ns)
        self._forget_built()
        self._in_force(configuration)
        self.rm_id = command.rm_id
        self.manager = RegisteredManager(
            command.rm_id, command.version, command.policy_group, command.build_info, now_ns
        )

    def _read(self, text: str) -> Configuration:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == text:
            return prepared[1]
        return load(text)

    def _in_force(self, configuration: Configuration) -> None:
        self._let_go_configuration()
        self.configuration = configuration
        self.checksum = configuration.checksum

    def _let_go_configuration(self) -> None:
        if self.configuration is not None:
            self._remains.append(_free_queues(self.configuration))
        self.configuration = None

    def _bring_into_force(self, extra_config: Iterable[tuple[str, str]]) -> None:
        self.extra_config = dict(extra_config)
        self._follow_listeners()

    def _follow_listeners(self) -> None:
        """Record events as long as a shim or client wants them."""
        settings, _ = event_settings(self.extra_config)
        self._callbacks.recording = (self._callbacks.events or self._keeps_events) and settings.tracking
        for state in self._partitions.values():
            state.recording = self._callbacks.recording

    def _build_partition(self, name: str, config: PartitionConfig, now_ns: int) -> None:
        built = self._built.get(name)
        if built is not None and built.config is config:
            del self._built[name]
            state = built.complete(now_ns)
        else:
            state = configure.build_partition(name, config, now_ns, self._outbox, self._callbacks)
        self._partitions[name] = state
        state.operator_drains = self._operator_drains.setdefault(name, {})
        state.follow_options(self._options)
        autoscaling.start(state, now_ns)
        registry.configure_kinds(state, now_ns)

    def _unregister(self, command: UnregisterManager, _now_ns: int) -> None:
        self._require_manager(command.rm_id, "UnregisterResourceManager")
        self._forget_manager()

    def _forget_manager(self) -> None:
        self.rm_id = ""
        self.manager = None
        self.checksum = ""
        self._let_go_configuration()
        self.extra_config = {}
        self._remains.extend(map(dissolving.take_apart, self._partitions.values()))
        self._partitions = {}
        self.unrouted = 0
        self._outbox.clear()
        self._callbacks.end_recording()
        self._callbacks.open.clear()
        dependence.forget_all(self._callbacks)

    def _clear_away(self, most: int) -> bool:
        """Free up to *most* records of removed partitions. Returns whether others are left."""
        while self._remains and most > 0:
            freed = sum(1 for _ in islice(self._remains[0], most))
            most -= freed
            if most > 0:
                self._remains.popleft()
        return bool(self._remains)

    def _update_configuration(self, command: UpdateConfiguration, now_ns: int) -> None:
        """Replace the queue configuration, whole or not at all (protocol.md 5.4)."""
        for _ in self._take_update_steps(command, now_ns):
            pass

    def _take_update_steps(self, command: UpdateConfiguration, now_ns: int) -> Iterator[None]:
        self._require_manager(command.rm_id, "UpdateConfiguration")
        configuration = self._read(command.config)
        if configuration.checksum == self.checksum:
            self._bring_into_force(command.extra_config)
            return
        listed = {full_partition_name(self.rm_id, p.name): p for p in configuration.partitions}
        yield from self._refuse_obstacles(configuration)
        self._bring_into_force(command.extra_config)
        for name, state in list(self._partitions.items()):
            if name not in listed:
                for application in list(state.applications.values()):
                    lifecycle.fire_event(state, application, AppEvent.FAIL, now_ns, "PartitionRemoved")
                    yield
                self._remains.append(dissolving.take_apart(self._partitions.pop(name)))
                inquiries.forget_partition(self._callbacks, name)
        for name, partition in listed.items():
            running = self._partitions.get(name)
            if running is None:
                building = configure.Building(name, partition, self._outbox, self._callbacks)
                yield from building.take_steps()
                self._built[name] = building
                self._build_partition(name, partition, now_ns)
            else:
                yield from configure.take_update_steps(running, partition, now_ns)
                registry.configure_kinds(running, now_ns)
        self._in_force(configuration)

    def _refuse_obstacles(self, configuration: Configuration) -> Iterator[None]:
        found: list[str] = []
        for partition in configuration.partitions:
            state = self._partitions.get(full_partition_name(self.rm_id, partition.name))
            for obstacle in configure.look_for_obstacles(state, partition) if state is not None else ():
                if obstacle:
                    found.append(obstacle)
                yield
        if found:
            raise CommandRefused(Fault.INVALID_ARGUMENT, "; ".join(found))

    def _attach_callbacks(self, command: AttachCallbacks, now_ns: int) -> None:
        """Makes the engine ask the shim questions from now on, because the shim has subscribed to them; a later
        registration of the manager does not end that (protocol.md 13)."""
        self._require_manager(command.rm_id, "Attach")
        callbacks = self._callbacks
        callbacks.predicates = command.predicates
        callbacks.preemption_predicates = command.preemption_predicates
        callbacks.scheduling_states = command.scheduling_states
        callbacks.events = command.events
        callbacks.preemption_notices = command.preemption_notices
        callbacks.awaits_placements = command.awaits_placements
        callbacks.timeout_ns = command.timeout_ns
        inquiries.drop_all(callbacks)
        self._follow_listeners()
        for state in self._partitions.values():
            wake_for_turn(state)
            vetting.forgive_all(state)
            autoscaling.start(state, now_ns)
            registry.repeat_notices(state)

    def _detach_callbacks(self, command: DetachCallbacks, now_ns: int) -> None:
        self._attach_callbacks(AttachCallbacks(command.rm_id), now_ns)

    def _answer_callbacks(self, command: AnswerCallbacks, now_ns: int) -> None:
        self._require_manager(command.rm_id, "Attach")
        # It is no longer known which ask a closed question was about.
        late = any(answer.dependent and answer.question not in self._callbacks.open for answer in command.predicates)
        for answer in command.predicates:
            if answer.dependent:
                self._note_dependence(answer.question)
            inquiries.predicates_answered(self._callbacks, answer.question, dict(answer.refused), now_ns)
        for verdict in command.preemption_predicates:
            last = verdict.last if verdict.success else None
            inquiries.preemption_answered(self._callbacks, verdict.question, last, now_ns)
        for reply in command.notices:
            for state in self._partitions.values():
                if registry.note_answer(state, reply):
                    break
        for placed in command.acknowledged:
            acknowledged_in = self._partitions.get(placed.partition)
            if acknowledged_in is not None:
                dependence.note_acknowledged(self._callbacks, acknowledged_in, placed.key, placed.node_id, late=late)

    def _note_dependence(self, question: int) -> None:
        inquiry = self._callbacks.open.get(question)
        if inquiry is not None:
            state, ask = self._partitions[inquiry.partition], inquiry.ask
            questions.learn_dependence(state, ask)
            if ask.spec.task_group:
                pools.place_in_turn(state, ask)

    def _update_nodes(self, command: UpdateNodes, now_ns: int) -> None:
        self._require_manager(command.rm_id, "NodeRequest")
        for spec in command.nodes:
            state = self._partitions.get(spec.partition)
            if state is not None:
                node_intake.handle(state, spec, now_ns)
            elif spec.action in (NodeAction.CREATE, NodeAction.CREATE_DRAIN):
                self._outbox.append(NodeRejected(spec.node_id, _no_partition(spec.partition), spec.partition))
            else:
                self._ignore_entry(spec.node_id)

    def _set_operator_drain(self, command: SetOperatorDrain, now_ns: int) -> None:
        """Drains nodes for an operator, or ends a drain. If several operators drain a node, the first one stays on
        record."""
        self._require_manager(command.rm_id, "DrainNode" if command.drained else "UndrainNode")
        state = self._partitions.get(command.partition)
        if state is None:
            raise CommandRefused(Fault.INVALID_ARGUMENT, _no_partition(command.partition))
        if command.drained is (command.node_id in state.operator_drains):
            return
        if not command.drained:
            node_intake.set_operator_drain(state, command.node_id, None, command.by, now_ns)
            return
        if command.node_id not in state.nodes:
            raise CommandRefused(Fault.INVALID_ARGUMENT, f"no node {command.node_id!r} is registered")
        if len(state.operator_drains) >= MOST_DRAINS:
            raise CommandRefused(Fault.INVALID_ARGUMENT, f"{MOST_DRAINS} nodes are drained by operators already")
        drain = OperatorDrain(command.by, now_ns)
        node_intake.set_operator_drain(state, command.node_id, drain, command.by, now_ns)

    def _preempt_by_hand(self, command: PreemptByHand, now_ns: int) -> None:
        self._require_manager(command.rm_id, "Preempt")
        state = self._partitions.get(command.partition)
        if state is None:
            raise CommandRefused(Fault.INVALID_ARGUMENT, _no_partition(command.partition))
        by_hand.preempt(state, command, now_ns)

    def _update_applications(self, command: UpdateApplications, now_ns: int) -> None:
        self._require_manager(command.rm_id, "ApplicationRequest")
        for spec in command.add:
            state = self._partitions.get(spec.partition)
            if state is not None:
                application_intake.add(state, spec, now_ns)
            else:
                reason = _no_partition(spec.partition)
                self._outbox.append(ApplicationRejected(spec.application_id, reason, spec.partition, spec.queue))
        for ref in command.remove:
            state = self._partitions.get(ref.partition)
            if state is not None:
                application_intake.remove(state, ref, now_ns)
            else:
                self._ignore_entry(ref.application_id)

    def _update_allocations(self, command: UpdateAllocations, now_ns: int) -> None:
        self._require_manager(command.rm_id, "AllocationRequest")
        rejected: list[AllocationRejected] = []
        partitions, take_entry = self._partitions, allocation_intake.handle
        for spec in command.allocations:
            state = partitions.get(spec.partition)
            if state is None:
                refused: AllocationRejected | None = allocation_intake.reject_allocation(
                    spec, _no_partition(spec.partition)
                )
            else:
                refused = take_entry(state, spec, now_ns)
            if refused is not None:
                rejected.append(refused)
        self._outbox += rejected
        for entry in command.ask_releases:
            state = self._partitions.get(entry.partition)
            if state is not None:
                release_intake.withdraw(state, entry, now_ns)
            else:
                self._ignore_entry(entry.key)
        for entry in command.releases:
            state = self._partitions.get(entry.partition)
            if state is not None:
                release_intake.release(state, entry, now_ns)
            else:
                self._ignore_entry(entry.key or entry.allocation_id)

    def _ignore_entry(self, item: str) -> None:
        self.unrouted += 1
        self._observer(Ignored.UNKNOWN_PARTITION, item)


def _free_queues(configuration: Configuration) -> Iterator[None]:
    """Frees *configuration*, which is no longer in force, queue by queue, unless something else holds it."""
    left = [partition.root for partition in configuration.partitions]
    del configuration
    while left:
        left.extend(left.pop().children)
        yield


def _observe_nothing(cause: Ignored, item: str) -> None:
    """Does nothing: it is the observer as long as no other one is set."""


def _no_partition(name: str) -> str:
    return f"{Rejection.PARTITION_NOT_FOUND}: no partition {show_name(name)}"
