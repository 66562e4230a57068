"""Counts decisions, from the engine's effects.

Frequent effects are counted in such a way that no Python code runs for each of them: placements are counted by
application, and added to its queue when the queue is read or the application ends. Only rare effects are
looked at one by one: decisions to preempt, new and ended applications, and placements while an ask that has preempted
waits for its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress, islice
from operator import attrgetter, is_
from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    Effect,
    NodeRejected,
    PreemptionDecided,
)
from kornel.core.domain.reasons import Rejection
from kornel.core.metrics.preemptions import Preemptions
from kornel.core.service.metrics.metrics import CallingObserver, EffectObserver
from kornel.core.telling.partitions.partition_gauges import PartitionGauges

QUEUES_REMEMBERED: Final = 10_000
"""The most queues whose counters are kept, including queues that are gone."""

APPLICATIONS_REMEMBERED: Final = 200_000

APPLICATIONS_UNSETTLED: Final = 10_000
"""The most applications whose placements wait to be counted by queue."""

LAST_STATES: Final = frozenset({AppState.COMPLETED, AppState.FAILED, AppState.REJECTED})

_RARE: Final = frozenset({ApplicationAccepted, ApplicationRejected, NodeRejected})

_IS_ALLOCATED: Final = partial(is_, Allocated)
_IS_UPDATED: Final = partial(is_, ApplicationUpdated)
_STATE: Final = attrgetter("state")
_PLACED_FOR: Final = attrgetter("spec.application_id")


class QueueCounts:
    """The counts of one queue since the core started. ``placed``: the placements observed, with those that ran before.
    ``ended``: the number of applications, by last state.

    A scrape shows ``allocated``, the placements observed when it began, and ``released``, those of them that had ended.
    """

    __slots__ = ("allocated", "ended", "placed", "released")

    def __init__(self) -> None:
        self.placed = self.allocated = self.released = 0
        self.ended: Counter[AppState] = Counter()

    def match_running(self, running: int) -> None:
        """Counts what no longer runs as released. *running*: what ran after the scrape began. A placement that was not
        observed yet may be among it, which hides the end of another until the next scrape."""
        self.released = max(self.released, self.allocated - running)

    def take_baseline(self, running: int) -> None:
        """Counts all of *running* as placed, when no placement is still to be observed."""
        self.released = max(self.released, self.placed - running)
        self.placed = self.released + running


class KnownApplications:
    """The applications of one manager, each with the counters of its queue.

    *queue_of* returns the path of the queue of a live application; empty: there is none. *counts_of* returns the
    counters of a path.
    """

    def __init__(self, queue_of: Callable[[str], str], counts_of: Callable[[str], QueueCounts]) -> None:
        self._queue_of = queue_of
        self._counts_of = counts_of
        self.counts: dict[str, QueueCounts] = {}
        """Counters of the queue of each application that is live or ended recently."""
        self.allocated: Counter[str] = Counter()
        """The placements of each application that are not in the counters of its queue yet."""

    def settle_counts(self) -> None:
        """Add the counts of applications to those of their queues."""
        for name, number in self.allocated.items():
            self.find_queue(name).placed += number
        self.allocated.clear()

    def find_queue(self, application_id: str) -> QueueCounts:
        """Returns the counters of the queue of an application; for an unknown application, counters that are never
        shown."""
        return self.counts.get(application_id) or self.note_queue(application_id, self._queue_of(application_id))

    def note_queue(self, application_id: str, path: str) -> QueueCounts:
        """Returns the counters of *path*, the queue of an application from now on; empty: it has none."""
        if not path:
            return QueueCounts()
        found = self.counts[application_id] = self._counts_of(path)
        _trim_queues(self.counts, APPLICATIONS_REMEMBERED)
        return found


class Decisions:
    """An ``EffectObserver``. *queue_of* returns the path of the queue of a live application; empty: there is none."""

    def __init__(self, queue_of: Callable[[str], str], now_ns: Callable[[], int]) -> None:
        self._own = KnownApplications(queue_of, self._counts_of)
        self.preemptions = Preemptions(now_ns)
        self.effects: Counter[type[Effect]] = Counter()
        """The number of effects of each kind."""
        self.states: Counter[AppState] = Counter()
        """The number of times that each state was entered."""
        self.failed_nodes = 0
        """The number of nodes that were registered for a partition that does not exist."""
        self.everywhere = QueueCounts()
        """The counts of all queues together, but for ``ended``."""
        self._unsettled: dict[KnownApplications, None] = {}
        """The managers with counts that are not in those of queues yet."""
        self._queues: dict[str, QueueCounts] = {}
        self.last_placed = 0
        """The number of placements among the effects seen last."""
        self.last_attempts = 0
        """The number of attempts to preempt among the effects seen last."""

    def of_manager(self, queue_of: Callable[[str], str]) -> EffectObserver:
        """Returns an observer for another engine, whose applications may have the IDs of others."""
        known = KnownApplications(queue_of, self._counts_of)
        return CallingObserver(lambda effects: self.observe(effects, known))

    def observe(self, effects: Sequence[Effect], known: KnownApplications | None = None) -> None:
        """Count *effects* of the engine whose applications are *known*."""
        known = known or self._own
        kinds = Counter(map(type, effects))
        self.effects.update(kinds)
        rare = not _RARE.isdisjoint(kinds)
        if kinds[ApplicationUpdated]:
            entered = Counter(map(_STATE, compress(effects, map(_IS_UPDATED, map(type, effects)))))
            for state, number in entered.items():
                self.states[AppState(state)] += number
            rare = rare or not LAST_STATES.isdisjoint(entered)
        if rare:
            # After this, the ID may belong to another application, in another queue.
            known.settle_counts()
            self._count_closely(effects, known)
        placed = self.last_placed = kinds[Allocated]
        attempts = self.last_attempts = kinds[PreemptionDecided]
        if placed:
            self.everywhere.placed += placed
            self._unsettled[known] = None
            known.allocated.update(map(_PLACED_FOR, compress(effects, map(_IS_ALLOCATED, map(type, effects)))))
            if len(known.allocated) > APPLICATIONS_UNSETTLED:
                known.settle_counts()
        if rare or not effects:
            # These may be the last effects of a manager that leaves, whose engine is not kept for its counts. One that
            # is unregistered causes none.
            known.settle_counts()
            self._unsettled.pop(known, None)
        if attempts or (placed and self.preemptions.waiting):
            self.preemptions.observe(effects)

    @property
    def queues(self) -> Mapping[str, QueueCounts]:
        """The counts of each queue."""
        for known in self._unsettled:
            known.settle_counts()
        self._unsettled.clear()
        return self._queues

    def begin_scrape(self) -> None:
        """Holds the placements that the scrape shows, before it reads what runs: of those, all that do not run have
        ended."""
        for counts in (self.everywhere, *self.queues.values()):
            counts.allocated = counts.placed

    def take_baseline(self, partitions: Iterable[PartitionGauges]) -> None:
        """Counts what runs in *partitions*, all there are, as placed, when no placement is still to be observed: as a
        core begins to decide, and while it only follows another."""
        running: Counter[str] = Counter()
        total = 0
        for partition in partitions:
            total += partition.allocations
            for queue in partition.queues:
                running[queue.path] += queue.allocations
        self.everywhere.take_baseline(total)
        for path in [*{**self.queues, **running}]:
            self._counts_of(path).take_baseline(running[path])

    def count_refused(self) -> int:
        """Returns how many allocation entries were refused so far."""
        return self.effects[AllocationRejected]

    def _count_closely(self, effects: Iterable[Effect], known: KnownApplications) -> None:
        for effect in effects:
            if type(effect) is ApplicationUpdated:
                if effect.state in LAST_STATES:
                    known.find_queue(effect.application_id).ended[AppState(effect.state)] += 1
            elif type(effect) is ApplicationAccepted:
                known.note_queue(effect.application_id, effect.queue)
            elif type(effect) is NodeRejected:
                self.failed_nodes += effect.reason.startswith(Rejection.PARTITION_NOT_FOUND)

    def _counts_of(self, path: str) -> QueueCounts:
        found = self._queues.get(path)
        if found is None:
            found = self._queues[path] = QueueCounts()
            _trim_queues(self._queues, QUEUES_REMEMBERED)
        return found


def _trim_queues(entries: dict[str, QueueCounts], most: int) -> None:
    """Drop the oldest tenth of too many entries."""
    if len(entries) > most:
        for name in list(islice(entries, most // 10)):
            del entries[name]
