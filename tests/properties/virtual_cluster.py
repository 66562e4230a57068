"""A cluster in virtual time whose tasks end, leave and come again: what long streams of work are played on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from kornel.core.domain import effects
from kornel.core.domain.commands import AllocationSpec, Command, TerminationType
from kornel.core.domain.effects import Effect
from kornel.core.domain.resources import Resources
from tests.driven_core import DrivenCore

PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
LEAVES_AFTER_S: Final = 3
MOST_SLICES: Final = 10_000


class VirtualCluster(DrivenCore, ABC):
    """An engine with its clock. Tasks end one by one, and the engine decides after each of them."""

    def __init__(self, configuration: str) -> None:
        self.ends: defaultdict[int, list[tuple[AllocationSpec, TerminationType]]] = defaultdict(list)
        """What ends in each second, and how."""
        super().__init__(configuration)

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

    def add_application(self, name: str, leaf: str, user: str, gang: dict[str, int] | None = None) -> None:
        """Adds an application; *gang*: what the members of a Hard gang ask for together."""
        whole = {"placeholder_ask": Resources(gang), "gang_style": "Hard"} if gang is not None else {}
        self.application(name, leaf, user, created_s=self.now, **whole)

    def ask(self, *specs: AllocationSpec) -> None:
        """Sends asks in one message, as created now."""
        self.send(*(spec._replace(created_s=self.now) for spec in specs))

    def apply(self, command: Command) -> list[Effect]:
        """Has the engine apply *command*, and hears what it says."""
        heard = super().apply(command)
        self._hear(heard)
        return heard

    def advance(self) -> None:
        """Lets the engine decide, then goes to the next second, in which tasks end."""
        self._decide()
        self.now_ns = (self.now_ns // SECOND + 1) * SECOND
        for spec, how in self.ends.pop(self.now, ()):
            self.release(spec.application_id, spec.key, kind=how)
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
