"""Whom preemption could tell to leave, and who was told."""
