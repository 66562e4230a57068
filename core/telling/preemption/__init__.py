"""Dry runs of preemption: the victims that it could release for an ask."""
