"""Who goes, so that an ask gets what its queue is guaranteed: pure planners, one module a policy.

A planner reads the partition and returns a :class:`~core.policies.preemption.plan.PreemptionPlan` or a
:class:`~core.policies.preemption.plan.Refusal`; it marks nothing and sends nothing.
"""
