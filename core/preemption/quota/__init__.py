"""Enforces a max that was lowered below what a queue holds (preemption.md D).

:mod:`.timers` and :mod:`.timer_rules` decide when a queue is due, :mod:`.above_max` how much it holds too much.
:mod:`.drive` then applies the plan of :mod:`.planner`, which uses :mod:`.shares` for the part of each leaf,
:mod:`.victims` for the choice of victims, and :mod:`.gang_choice` for whole gangs.
"""
