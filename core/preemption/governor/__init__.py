"""Bounds against storms: what all kinds of preemption together may take, how soon again, how often in turns (K13)."""
