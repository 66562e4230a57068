"""Forecasts preemption by dry runs: the victims that it could release for an ask."""
