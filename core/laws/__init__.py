"""The laws of preemption as code: whether a plan obeys them, worked out from the rules and from nothing else.

The planners are not consulted: a plan that is right for the wrong reason passes, one that a planner's bug let through
does not. Every plan is checked before it is applied. Which laws bind which kind of preemption: preemption.md A.0.
"""

from __future__ import annotations

from core.laws.verdict import Law, Violation
from core.policies.view import PartitionView
from core.preemption.guarantee import laws as guarantee
from core.preemption.guarantee.laws import check_exhaustive
from core.preemption.plan import PreemptionPlan, QuotaPlan
from core.preemption.quota import laws as quota
from core.preemption.required_node import laws as required_node

__all__ = ["Law", "Violation", "check", "check_exhaustive"]


def check(view: PartitionView, plan: PreemptionPlan | QuotaPlan) -> tuple[Violation, ...]:
    """Every law that *plan*, not yet applied to *view*, would break. Changes nothing.

    Costs as much as the plan has victims times the depth of the tree, for a required node as much as the node holds.
    """
    if isinstance(plan, QuotaPlan):
        return quota.check(view, plan)
    if plan.kind == "required-node":
        return required_node.check(view, plan)
    return guarantee.check(view, plan)
