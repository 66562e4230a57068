"""Judges who may leave: some allocations leave for nobody, whatever the kind (preemption.md A.1 no. 3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation

_PROTECTED: Final = PreemptionPolicyKind.DISABLED
_REPLACING: Final = AskPlace.REPLACING
"""Kept as constants, because reading a member from its class costs as much as a call, and ten thousand victims are
checked at once."""


def check_victims(
    victims: Iterable[Allocation], *, shields: bool = True, replacing: bool = True
) -> Iterator[Violation]:
    """Yields *victims* that no plan may contain. Their application is judged by law 3.

    *shields* tells whether queues protect what they hold by their policy, *replacing* whether tasks that take the place
    of a placeholder are protected.
    """
    seen: set[str] = set()
    for victim in victims:
        named, spec = victim.key in seen, victim.spec
        protected = shields and victim.application.queue.properties.preemption_policy is _PROTECTED
        replaces = replacing and victim.place is _REPLACING
        seen.add(victim.key)
        if not (
            named or protected or replaces or spec.required_node or victim.node is None or victim.released
            or victim.preempted
        ):  # fmt: skip
            continue
        faults = {
            "named twice": named,
            "not placed": victim.node is None,
            "in a queue protected from preemption": protected,
            "bound to its required node": bool(spec.required_node),
            "being released": victim.released,
            "taking the place of a placeholder": replaces,
            "already a victim": victim.preempted,
        }
        for fault, present in faults.items():
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")
