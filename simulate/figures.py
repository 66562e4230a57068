"""Counts what becomes of the tasks of a run, by queue. A task that has ended leaves a few numbers behind."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.preemption.registry import ending_of
from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_mock.model.lifecycle import TaskState
from kornel.shim_mock.model.tasks import Task
from kornel.simulate.virtual_time import VirtualAgenda

SHORTEST_RUN_S: Final = 10.0
"""The shortest run that counts for a bounded slowdown, as is usual, so that tiny tasks do not rule the figure."""


@dataclass(slots=True)
class QueueFigures:
    """The figures of one leaf.

    waits_ns   from ask to start, of each task that has started, in the order in which they did
    slowdowns  the bounded slowdown of each task that has ended by itself
    used       amounts times seconds in which tasks held them
    lost       the part of ``used`` that was lost, because the task was preempted or its node was lost
    """

    waits_ns: array[int] = field(default_factory=lambda: array("q"))
    slowdowns: array[float] = field(default_factory=lambda: array("d"))
    asked: int = 0
    ended: int = 0
    preempted: int = 0
    lost_with_nodes: int = 0
    given_up: int = 0
    """The number of asks that were refused or dropped."""
    waiting: int = 0
    longest_waiting_s: float = 0.0
    """The longest wait so far of a task that waits when the run ends; ``waiting``: how many do."""
    running: int = 0
    used: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)


class Figures:
    """Observes the tasks of a run, by the time of *agenda*."""

    def __init__(self, agenda: VirtualAgenda) -> None:
        self._agenda = agenda
        self.queues: dict[str, QueueFigures] = {}
        self.victims: Counter[str] = Counter()
        """The number of tasks that each kind of preemption has taken."""
        self._asked: dict[str, int] = {}
        """The time at which each task that waits was asked for."""
        self._running: dict[str, tuple[Task, int, int]] = {}
        """The tasks that run, with their waits and when they began."""

    def note_effects(self, effects: Sequence[Effect]) -> None:
        """Count the victims of decisions among *effects*."""
        for effect in effects:
            if isinstance(effect, PreemptionDecided) and effect.victims and ending_of(effect).leaves:
                self.victims[effect.kind] += len(effect.victims)

    def note_ask(self, task: Task) -> None:
        """Note that *task* was asked for."""
        self._find_queue(task).asked += 1
        self._asked[task.key] = self._agenda.elapsed_ns

    def note_start(self, task: Task) -> None:
        """Note that *task* was placed."""
        now_ns = self._agenda.elapsed_ns
        wait_ns = now_ns - self._asked.pop(task.key)
        self._find_queue(task).waits_ns.append(wait_ns)
        self._running[task.key] = task, wait_ns, now_ns

    def note_end(self, task: Task) -> None:
        """Note that *task* has ended or was given up."""
        queue = self._find_queue(task)
        if self._asked.pop(task.key, None) is not None:
            queue.given_up += 1
            return
        _, wait_ns, began_ns = self._running.pop(task.key)
        ran_s = (self._agenda.elapsed_ns - began_ns) / SECOND_NS
        _add_amounts(queue.used, task.group.resources, ran_s)
        if task.state is TaskState.ENDED:
            queue.ended += 1
            queue.slowdowns.append(_slow_down(wait_ns / SECOND_NS, ran_s))
            return
        _add_amounts(queue.lost, task.group.resources, ran_s)
        if task.victim:
            queue.preempted += 1
        else:
            queue.lost_with_nodes += 1

    def count_running(self, end_ns: int) -> None:
        """Count what runs at *end_ns*, the end of the run. Nothing may be noted afterwards."""
        for task, _, began_ns in self._running.values():
            queue = self._find_queue(task)
            queue.running += 1
            _add_amounts(queue.used, task.group.resources, (end_ns - began_ns) / SECOND_NS)

    def note_waiting(self, task: Task, end_ns: int) -> None:
        """Count *task*, which waits at *end_ns*, the end of the run."""
        queue = self._find_queue(task)
        queue.waiting += 1
        waited_s = (end_ns - self._asked[task.key]) / SECOND_NS
        queue.longest_waiting_s = max(queue.longest_waiting_s, waited_s)

    def _find_queue(self, task: Task) -> QueueFigures:
        name = task.application.queue
        if (found := self.queues.get(name)) is None:
            found = self.queues[name] = QueueFigures()
        return found


def _slow_down(wait_s: float, ran_s: float) -> float:
    return max(1.0, (wait_s + ran_s) / max(ran_s, SHORTEST_RUN_S))


def _add_amounts(total: dict[str, float], amounts: Mapping[str, int], seconds: float) -> None:
    for kind, amount in amounts.items():
        total[kind] = total.get(kind, 0.0) + amount * seconds
