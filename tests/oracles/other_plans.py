"""Judges a plan of preemption between queues by all the others there are, for clusters of about a dozen allocations."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.guarantee.laws import check
from kornel.core.preemption.plan import PreemptionPlan


def check_exhaustive(view: PartitionView, plan: PreemptionPlan) -> tuple[Violation, ...]:
    """Returns the breaches that the laws find, and breaches of law 1: that no node has a lawful plan with milder
    victims only. It tries every set of milder victims on every node."""
    found = check(view, plan)
    worst = max((_reluctance_of(victim) for victim in plan.victims), default=(False, False))
    milder = [
        allocation
        for node in view.nodes.values()
        for allocation in node.allocations.values()
        if _reluctance_of(allocation) < worst
    ]
    for node in view.nodes.values():
        for count in range(1, len(milder) + 1):
            for victims in combinations(milder, count):
                rival = replace(plan, node=node, victims=victims, extended=False)
                if not check(view, rival):
                    names = ", ".join(victim.key for victim in victims)
                    detail = f"{names} would do on {node.node_id}"
                    return (*found, Violation(Law.OPT_OUT_LAST, detail))
    return found


def _reluctance_of(allocation: Allocation) -> tuple[bool, bool]:
    return (allocation.spec.originator, not allocation.spec.allow_preempt_self)
