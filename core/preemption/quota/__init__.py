"""Enforcing a max that was lowered below what a queue holds (preemption.md D)."""
