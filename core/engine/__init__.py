"""Decides in partitions: handles commands, applies configurations and runs cycles, with preemption and state below it.

:mod:`kornel.core.engine.engine` is its interface; nothing outside these floors changes a record of
:mod:`kornel.core.model`.
"""
