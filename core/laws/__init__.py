"""Holds what the laws of all kinds of preemption share: their names, and the law that no victim is taken without need.

The laws themselves are in the packages of the kinds (``core/preemption/<kind>/laws.py``). They are written from the
rules alone and know nothing of the planners: a plan that is right for the wrong reason passes, and a plan that is wrong
by a bug of its planner does not.
"""
