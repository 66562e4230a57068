"""Dry runs of preemption: the victims that it could ask to leave for an ask."""
