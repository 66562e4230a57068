"""Bounds storms of preemption: how much all kinds together may take, how soon again, and how often back and forth
(preemption.md K13)."""
