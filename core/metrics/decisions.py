"""Counts of decisions, from the engine's effects.

For an effect that comes by the hundred thousand this costs an increment. What has to be looked at one by one is rare:
decisions to preempt, changes of applications, and placements while an ask that preempted waits for its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
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
    Released,
)
from kornel.core.domain.reasons import Rejection
from kornel.core.metrics.preemptions import Preemptions
from kornel.core.service.observers import CallingObserver, EffectObserver

QUEUES_REMEMBERED: Final = 10_000
"""Queues whose counters are kept, those that are gone included."""

APPLICATIONS_REMEMBERED: Final = 200_000

LAST_STATES: Final = frozenset({AppState.COMPLETED, AppState.FAILED, AppState.REJECTED})

_RARE: Final = frozenset({ApplicationAccepted, ApplicationRejected, ApplicationUpdated, NodeRejected})

_CONTAINERS: Final = frozenset({Allocated, Released})


class QueueCounts:
    """The counts of one queue since the core started. ``ended``: applications, by last state."""

    __slots__ = ("allocated", "ended", "released")

    def __init__(self) -> None:
        self.allocated = 0
        self.released = 0
        self.ended: Counter[AppState] = Counter()


class KnownApplications:
    """The applications of one manager, and which queue's counters are theirs.

    *queue_of*: path of the queue of a live application; empty: there is none. *counts_of*: counters of a path.
    """

    def __init__(self, queue_of: Callable[[str], str], counts_of: Callable[[str], QueueCounts]) -> None:
        self._queue_of = queue_of
        self._counts_of = counts_of
        self.counts: dict[str, QueueCounts] = {}
        """Counters of the queue of each application that is live, or was lately."""

    def find_queue(self, application_id: str) -> QueueCounts:
        """Returns the counters of the queue of an application; counters that nobody sees if it is not known."""
        found = self.counts.get(application_id)
        if found is not None:
            return found
        path = self._queue_of(application_id)
        if not path:
            return QueueCounts()
        found = self.counts[application_id] = self._counts_of(path)
        _trim_queues(self.counts, APPLICATIONS_REMEMBERED)
        return found


class Decisions:
    """An ``EffectObserver``. *queue_of*: path of the queue of a live application; empty: there is none."""

    def __init__(self, queue_of: Callable[[str], str], now_ns: Callable[[], int]) -> None:
        self._own = KnownApplications(queue_of, self._counts_of)
        self.preemptions = Preemptions(now_ns)
        self.effects: Counter[type[Effect]] = Counter()
        """The number of effects of each kind."""
        self.states: Counter[AppState] = Counter()
        """The number of times that each state was entered."""
        self.failed_nodes = 0
        """The number of nodes that were registered for a partition that does not exist."""
        self.queues: dict[str, QueueCounts] = {}
        self.last_placed = 0
        """Placements among the effects seen last."""
        self.last_attempts = 0
        """Attempts to preempt among them."""

    def of_manager(self, queue_of: Callable[[str], str]) -> EffectObserver:
        """Returns an observer for another engine, whose applications may have the IDs of others."""
        known = KnownApplications(queue_of, self._counts_of)
        return CallingObserver(lambda effects: self.observe(effects, known))

    def observe(self, effects: Sequence[Effect], known: KnownApplications | None = None) -> None:
        """Count *effects*, of the engine that *known* is of."""
        known = known or self._own
        kinds = Counter(map(type, effects))
        self.effects.update(kinds)
        if not _RARE.isdisjoint(kinds):
            self._count_closely(effects, known)
        placed = self.last_placed = kinds[Allocated]
        attempts = self.last_attempts = kinds[PreemptionDecided]
        if placed or kinds[Released]:
            self._count_by_queue(effects, known)
        if attempts or (placed and self.preemptions.waiting):
            self.preemptions.observe(effects)

    def count_refused(self) -> int:
        """Returns how many allocation entries were refused so far."""
        return self.effects[AllocationRejected]

    def _count_by_queue(self, effects: Iterable[Effect], applications: KnownApplications) -> None:
        known = applications.counts
        for effect in [effect for effect in effects if type(effect) in _CONTAINERS]:
            if type(effect) is Allocated:
                name = effect.spec.application_id
                (known.get(name) or applications.find_queue(name)).allocated += 1
            elif type(effect) is Released:
                name = effect.application_id
                (known.get(name) or applications.find_queue(name)).released += 1

    def _count_closely(self, effects: Iterable[Effect], known: KnownApplications) -> None:
        for effect in effects:
            if type(effect) is ApplicationUpdated:
                state = AppState(effect.state)
                self.states[state] += 1
                if state in LAST_STATES:
                    known.find_queue(effect.application_id).ended[state] += 1
            elif type(effect) is ApplicationAccepted:
                known.counts.pop(effect.application_id, None)
                known.find_queue(effect.application_id)
            elif type(effect) is NodeRejected:
                self.failed_nodes += effect.reason.startswith(Rejection.PARTITION_NOT_FOUND)

    def _counts_of(self, path: str) -> QueueCounts:
        found = self.queues.get(path)
        if found is None:
            found = self.queues[path] = QueueCounts()
            _trim_queues(self.queues, QUEUES_REMEMBERED)
        return found


def _trim_queues(entries: dict[str, QueueCounts], most: int) -> None:
    """Drop the oldest tenth of too many entries."""
    if len(entries) > most:
        for name in list(islice(entries, most // 10)):
            del entries[name]
