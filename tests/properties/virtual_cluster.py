"""A cluster in virtual time whose tasks end, leave and come again: what long streams of work are played on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from kornel.core.domain import commands, effects
from kornel.core.domain.commands import AllocationSpec, NodeAction, NodeSpec, TerminationType, UpdateAllocations
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine

RM: Final = "rm"
PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
LEAVES_AFTER_S: Final = 3
MOST_SLICES: Final = 10_000


class VirtualCluster(ABC):
    """An engine with its clock. Tasks end one by one, and the engine decides after each of them."""

    def __init__(self, configuration: str) -> None:
        self.now_ns = 0
        self.engine = Engine()
        self.ends: defaultdict[int, list[tuple[AllocationSpec, TerminationType]]] = defaultdict(list)
        """What ends in each second, and how."""
        self.apply(commands.RegisterManager(RM, configuration))

    @property
    def now(self) -> int:
        """The second in which the cluster is."""
        return self.now_ns // SECOND

    @abstractmethod
    def note_start(self, spec: AllocationSpec) -> int:
        """Returns for how many seconds the task that has been placed runs."""

    @abstractmethod
    def note_victim(self, spec: AllocationSpec) -> None:
        """Deals with a task that has left as a victim."""

    def add_node(self, name: str, **amounts: int) -> None:
        """Adds a node with *amounts* by type."""
        node = NodeSpec(name, NodeAction.CREATE, PARTITION, capacity=Resources(amounts))
        self.apply(commands.UpdateNodes(RM, (node,)))

    def add_application(self, name: str, leaf: str, user: str, gang: dict[str, int] | None = None) -> None:
        """Adds an application; *gang*: what the members of a Hard gang ask for together."""
        spec = commands.ApplicationSpec(name, leaf, PARTITION, user, (), created_s=self.now)
        if gang is not None:
            spec = spec._replace(placeholder_ask=Resources(gang), gang_style="Hard")
        self.apply(commands.UpdateApplications(RM, (spec,)))

    def ask(self, *specs: AllocationSpec) -> None:
        """Sends asks in one message, as created now."""
        self.apply(UpdateAllocations(RM, tuple(spec._replace(created_s=self.now) for spec in specs)))

    def apply(self, command: commands.Command) -> None:
        """Has the engine apply *command*, and hears what it says."""
        self._hear(self.engine.apply(command, self.now_ns))

    def advance(self) -> None:
        """Lets the engine decide, then goes to the next second, in which tasks end."""
        self._decide()
        self.now_ns = (self.now_ns // SECOND + 1) * SECOND
        for spec, how in self.ends.pop(self.now, ()):
            gone = commands.ReleaseSpec(PARTITION, spec.application_id, spec.key, how)
            self.apply(UpdateAllocations(RM, releases=(gone,)))
            if how is TerminationType.PREEMPTED_BY_SCHEDULER:
                self.note_victim(spec)
            self._decide()
            self.now_ns += SECOND // 1_000

    def _decide(self) -> None:
        for _ in range(MOST_SLICES):
            result = self.engine.cycle(self.now_ns, 100)
            self._hear(result.effects)
            if not result.more:
                return
        raise AssertionError(f"the engine has more to do after {MOST_SLICES} slices")

    def _hear(self, heard: Iterable[effects.Effect]) -> None:
        for effect in heard:
            if isinstance(effect, effects.Allocated):
                run_s = self.note_start(effect.spec)
                self.ends[self.now + run_s].append((effect.spec, TerminationType.STOPPED_BY_RM))
            elif isinstance(effect, effects.Released) and effect.termination == TerminationType.PREEMPTED_BY_SCHEDULER:
                self._leave(effect.key)
            elif isinstance(effect, effects.ApplicationRejected | effects.AllocationRejected):
                raise AssertionError(effect)

    def _leave(self, key: str) -> None:
        for second, ending in self.ends.items():
            for entry in [entry for entry in ending if entry[0].key == key]:
                if second > self.now + LEAVES_AFTER_S:
                    ending.remove(entry)
                    how = TerminationType.PREEMPTED_BY_SCHEDULER
                    self.ends[self.now + LEAVES_AFTER_S].append((entry[0], how))
                return
