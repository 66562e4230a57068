"""Plans of any kind of preemption, held against the laws that bind their kind (preemption.md A.0).

The drive of a kind asks the laws of its own kind; here asks who holds a plan without knowing its kind.
"""

from __future__ import annotations

from kornel.core.laws.verdict import Violation
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.plan import Plan
from kornel.core.preemption.registry import kind_called


def check(view: PartitionView, plan: Plan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break. Changes nothing.

    Costs as much as the plan has victims times the depth of the tree, for a required node as much as the node holds.
    """
    kind = kind_called(plan.kind)
    assert kind is not None, f"{plan.kind} is no kind of preemption"
    return kind.check(view, plan)
