"""Preemption for an ask whose queue is below its guarantee (preemption.md B).

:mod:`.drive` decides when an ask may try and acts on the result; :mod:`.rounds` does the same in a round of the
preemption cycle. A refused attempt is kept by :mod:`.refusals` until :mod:`.changes` finds a change that may help;
:mod:`.consulting` collects the answers of the shim about victims. The plan is made by :mod:`.planner`, which uses, in
this order:

=============== ===============================================================================================
entitlement     may the ask's queue take anything at all (law 4), and must it swap inside a shared guarantee
fences          how far out the ask may look (law 7), and which max forces it to stay inside
needs           what has to be freed: on the node, under the queues, inside the guarantee
allowances      what the laws leave of each leaf: who may go, and how much of it together (laws 2, 5, 6)
candidates      who is left, by class of reluctance, in order (laws 1, 3); ``cost`` holds other orders of victims
prospects       the least each node could cost, kept from one attempt to the next; ``frontier`` goes through them
solve           the victims of one pool: first come, else an exact search, then nobody too many
search          the node, by the solution key
predicates      what the shim says about it
=============== ===============================================================================================
"""
