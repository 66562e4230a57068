"""Checks plans of any kind of preemption against the laws of their kind (preemption.md A.0).

The driver of a kind calls the laws of its own kind directly; this module is for code that has a plan without knowing
its kind.
"""

from __future__ import annotations

from kornel.core.laws.verdict import Violation
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.plan import Plan
from kornel.core.preemption.registry import kind_called


def check(view: PartitionView, plan: Plan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break. Changes nothing.

    The cost is the number of victims times the depth of the tree; for a required node, the number of allocations on the
    node.
    """
    kind = kind_called(plan.kind)
    assert kind is not None, f"{plan.kind} is no kind of preemption"
    return kind.check(view, plan)
