"""Preemption for an ask whose queue is below its guarantee (preemption.md B).

Four folders, each of which imports only those before it:

======== ==========================================================================================================
rules    what the rules say of leaves, nodes and victims: needs, victims that the laws allow (1 to 7), their order
search   the node with the smallest solution key, and its victims: bounds of nodes that are kept between attempts
         (``prospects``, ``node_bounds``), the nodes in front (``frontier``), whole gangs (``gang_victims``), and the
         shim's answers about nodes and victims (``predicates``); :mod:`.search.planner` makes the plan
gangs    the same for gangs, all of whose missing members need a place at once
attempts when an ask (``drive``) or a gang (``gang_drive``) may try, and what follows: questions to the shim, plans of
         gangs (``gang_plans``), claims of others that an ask inherits, and the gate where refused asks wait until a
         change may help (``questions``)
======== ==========================================================================================================

:mod:`.laws` judges every plan, with :mod:`.queue_laws` for what concerns queues; one ask is judged as a gang of one.
:mod:`.rounds` tries asks in a round of the preemption cycle, and :mod:`.foresight` says what would happen.
"""
