"""The laws of all kinds of preemption share what can be broken, and the law that nobody goes without need.

The laws themselves live with their kinds (``core/preemption/<kind>/laws.py``), worked out from the rules and from
nothing else: a plan that is right for the wrong reason passes, one that a planner's bug let through does not.
"""
