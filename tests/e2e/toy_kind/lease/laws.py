"""What binds the toy kind: law 2, and that nobody leaves before its lease is over."""

from __future__ import annotations

from kornel.core.preemption.lease.plan import LeasePlan

from kornel.core.laws.verdict import Law, Violation, net_of, path_of
from kornel.core.policies.view import PartitionView


def check(view: PartitionView, plan: LeasePlan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break."""
    found = [
        Violation(Law.ELIGIBLE, f"{victim.key} may stay")
        for victim in plan.victims
        if plan.now_ns <= victim.bound_ns + plan.longest_ns
    ]
    for queue in {queue for victim in plan.victims for queue in path_of(victim.queue)}:
        for t, least in queue.guaranteed.items():
            leaving = sum(dict(v.shape.pairs).get(t, 0) for v in plan.victims if queue in path_of(v.queue))
            if net_of(queue, t) - leaving < least:
                found.append(Violation(Law.GUARANTEE_KEPT, f"{queue.path} would end below {least}"))
    return tuple(found)
