"""Selects victims for one round, and changes nothing. These are called in this order (E.2):

============== ===============================================================================================
settings       the parameters of E.1, as exact numbers
figures        one consistent picture of the queues: guarantees, usage, demand, priorities
ideal          what every queue should hold, and how much a leaf loses this round (E.3, E.4)
passages       what the laws allow to be taken: room above guarantees, priorities, fences (laws 2, 6, 7)
round          what each leaf is to give up, and what was selected so far
node_selectors victims for asks with a reserved node (E.5, selectors 1 and 2)
selection      victims, selector by selector (E.5)
places         a node for each ask, with ``victim_choice`` and ``place_order``
============== ===============================================================================================
Long work is a generator that yields after every bounded piece with its cost, counted in allocations examined.
"""
