"""Preempts whom a person names: an allocation, an application, what runs on a drained node, or an amount of a queue
(preemption.md N)."""
