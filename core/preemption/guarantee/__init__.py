"""Preemption for an ask whose queue is below its guarantee (preemption.md B).

:mod:`.drive` decides when an ask may try and acts on the result; :mod:`.rounds` does the same in a round of the
preemption cycle. A refused attempt is kept by :mod:`.refusals` until :mod:`.changes` finds a change that may help;
:mod:`.consulting` collects the answers of the shim about victims. The plan is made by :mod:`.planner`, which uses, in
this order:

=============== ===============================================================================================
entitlement     whether the queue of the ask may take anything (law 4), or only swap inside a shared guarantee
fences          the queue outside of which the ask may take nothing (law 7)
needs           the amounts that have to be freed: on the node, under the queues, inside the guarantee
allowances      the victims that the laws allow in each leaf, and how much may leave together (laws 2, 5, 6)
candidates      the possible victims by class of reluctance, in order (laws 1, 3); ``cost`` has other orders
prospects       the least that each node could cost (``node_bounds``), kept between attempts while ``watched_nodes``
                finds what has changed; ``frontier`` goes through them
solve           the victims on one node, by the walk that all kinds share
search          the node with the smallest solution key
predicates      the answers of the shim about nodes and victims
=============== ===============================================================================================
"""
