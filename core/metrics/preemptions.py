"""Counts attempts to preempt by kind, outcome and law, and what happened to the asks that preempted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kornel.core.domain.effects import Allocated, Effect, PreemptionDecided
from kornel.core.domain.preemption_kinds import NAMES
from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.registry import SOURCES, ending_of
from kornel.core.service.machine.clock import SECOND_NS
from kornel.core.service.metrics.metrics import Durations

BOUNDS_S: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
WAITING_REMEMBERED: Final = 10_000

_NAMED: Final = re.compile(r"law (\d)")

COUNTED_FROM_0: Final = tuple(
    (name, outcome) for name, source in SOURCES.items() for outcome, ending in source.outcomes.items() if ending.counted
)
"""The outcomes whose counters are shown as 0 before they happen, because Prometheus sees no increase in a counter that
first appears as 1."""


class Waiting(NamedTuple):
    """An ask that has preempted and has no node yet."""

    since_ns: int
    node_id: str


class Preemptions:
    """Counters of preemption. ``attempts``: by kind, outcome and the law that decided (empty: no single law).

    victims     the number by kind
    lost        the amounts of the victims, by kind and resource type
    placed      the times from the decision to the placement, in seconds
    ended       the asks that preempted: ``placed`` where room was made, ``elsewhere``, or ``gone`` without a node
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.attempts: Counter[tuple[str, str, str]] = Counter(
            {(kind, str(outcome), ""): 0 for kind, outcome in COUNTED_FROM_0}
        )
        self.victims: Counter[str] = Counter(dict.fromkeys(NAMES, 0))
        self.lost: Counter[tuple[str, str]] = Counter()
        self.placed = Durations(BOUNDS_S)
        self.ended: Counter[str] = Counter({"placed": 0, "elsewhere": 0, "gone": 0})
        self.waiting: dict[tuple[str, str], Waiting] = {}
        """The asks that wait, by partition and key, the oldest first."""

    def observe(self, effects: Iterable[Effect]) -> None:
        """Counts what *effects* contain about preemption."""
        for effect in effects:
            if type(effect) is PreemptionDecided:
                self._count_decision(effect)
            elif type(effect) is Allocated and self.waiting:
                self._count_allocation(effect)

    def forget_gone(self, waits: Callable[[str, str], bool]) -> None:
        """Drops the asks that were withdrawn before they got a node; *waits* tells whether the ask of a partition and
        key still waits."""
        for name in [name for name in self.waiting if not waits(*name)]:
            del self.waiting[name]
            self.ended["gone"] += 1

    def oldest_wait_s(self) -> float:
        """Returns the longest time since an ask that still waits has preempted; 0: none waits."""
        first = next(iter(self.waiting.values()), None)
        return max(0.0, (self._now_ns() - first.since_ns) / SECOND_NS) if first is not None else 0.0

    def _count_decision(self, decision: PreemptionDecided) -> None:
        kind, outcome = decision.kind, decision.outcome
        self.attempts[kind, str(outcome), _law_label(decision)] += 1
        if ending_of(decision).leaves:
            self.victims[kind] += len(decision.victims)
            for victim in decision.victims:
                for resource, amount in victim.resources.items():
                    self.lost[kind, resource] += amount
        if outcome is Outcome.TRIGGERED and decision.key:
            name = decision.partition, decision.key
            before = self.waiting.get(name)
            since_ns = before.since_ns if before is not None else decision.at_ns
            self.waiting[name] = Waiting(since_ns, decision.node_id)
            if len(self.waiting) > WAITING_REMEMBERED:
                del self.waiting[next(iter(self.waiting))]

    def _count_allocation(self, placed: Allocated) -> None:
        ask = self.waiting.pop((placed.spec.partition, placed.spec.key), None)
        if ask is not None:
            self.placed.add((self._now_ns() - ask.since_ns) / SECOND_NS)
            self.ended["placed" if placed.node_id == ask.node_id else "elsewhere"] += 1


def _law_label(decision: PreemptionDecided) -> str:
    if decision.outcome is Outcome.LAW_BROKEN:
        named = _NAMED.search(decision.detail)
        return named.group(1) if named is not None else ""
    return ending_of(decision).law
