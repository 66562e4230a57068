"""Preemption for an ask whose queue is below its guarantee (preemption.md B)."""
