"""Enforcing a max that was lowered below what a queue holds (preemption.md D).

:mod:`.timers` and :mod:`.timer_rules` say when a queue is due, :mod:`.standing` whether it still is. :mod:`.drive` then
works through :mod:`.planner`, which asks :mod:`.shares` what each leaf has to bear, :mod:`.victims` who goes, and
:mod:`.combinations` where the first to go do not do.
"""
