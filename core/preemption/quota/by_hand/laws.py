"""The laws that bind what a person preempts by hand: those of a lowered max, but for the ones that are waived, and that
nobody goes who was not named (preemption.md N)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kornel.core.domain.commands import PreemptTarget, Waivable
from kornel.core.laws.verdict import Law, Violation
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.quota import laws as quota_laws
from kornel.core.preemption.quota.by_hand.plan import HandPlan

_WAIVED: Final[Mapping[Law, Waivable]] = MappingProxyType(
    {
        Law.GUARANTEE_KEPT: Waivable.GUARANTEE,
        Law.RUN_TIME: Waivable.RUN_TIME,
        Law.GANG_WHOLE: Waivable.GANG,
        Law.MINIMAL: Waivable.NEED,
        Law.WITHIN_QUOTA: Waivable.NEED,
    }
)


def check(view: PartitionView, plan: HandPlan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break and that is not waived. Changes nothing."""
    named, bound = plan.order.target is not PreemptTarget.QUEUE, Waivable.REQUIRED_NODE not in plan.waived
    found = (*quota_laws.check(view, plan.enforced, bound=bound, named=named), *_check_named(view, plan))
    return tuple([each for each in found if _WAIVED.get(each.law) not in plan.waived])


def _check_named(view: PartitionView, plan: HandPlan) -> Iterator[Violation]:
    target, name = plan.order.target, plan.order.name
    for victim in plan.victims if target is not PreemptTarget.QUEUE else ():
        node = victim.node
        named = {
            PreemptTarget.ALLOCATION: victim.spec.key == name,
            PreemptTarget.APPLICATION: victim.application.application_id == name,
            PreemptTarget.NODE: node is not None and node.node_id == name and not node.schedulable,
        }
        if not named[target]:
            yield Violation(Law.ELIGIBLE, f"{victim.key} was not named")
