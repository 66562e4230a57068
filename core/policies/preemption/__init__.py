"""Who goes, and for what: pure planners, one module a kind of preemption.

A planner reads the partition and returns a :class:`~core.preemption.plan.PreemptionPlan` or a
:class:`~core.preemption.plan.Refusal`; it marks nothing and sends nothing.

Guarantee-driven preemption (preemption.md B) starts in :mod:`.guarantee` and asks, in this order:

=============== ===============================================================================================
entitlement     may the ask's queue take anything at all (law 4), and must it swap inside a shared guarantee
fences          how far out the ask may look (law 7), and which max forces it to stay inside
needs           what has to be freed: on the node, under the queues, inside the guarantee
terms           what the laws leave of each leaf: who may go, and how much of it together (laws 2, 5, 6)
index           the allocations of each leaf in order, kept between attempts
candidates      who is left, by class of reluctance, in order (laws 1, 3)
solve           the victims of one pool: first come, else an exact search, then nobody too many
search          the node, by the solution key
predicates      what the shim says about it
=============== ===============================================================================================

:mod:`.governor` bounds what many plans may take together, :mod:`.round` and :mod:`.registry` run the policies of the
periodic cycle, :mod:`.cost` holds other orders of victims.

Room on a node that an ask must run on (C) is :mod:`.required_node`. A lowered max (D) is enforced by :mod:`.quota`,
which asks :mod:`.quota_shares` what each leaf has to bear and :mod:`.quota_victims` who goes; :mod:`.quota_timer` says
when.
"""
