"""Implements the periodic proportional policy: how much each queue should hold now, and which victims bring a queue
down to that (preemption.md E).

:mod:`.drive` runs the rounds and preempts victims that are due; :mod:`.noticing` notifies applications and handles what
they offer instead; :mod:`.laws` checks plans, which :mod:`.selection` makes.
"""
