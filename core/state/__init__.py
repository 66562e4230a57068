"""Holds the state of partitions: its records, the books, what waits for what, and the moves of asks between places.

:mod:`kornel.core.state.partition_state` has all of it. Nothing here decides whose turn it is or who has to leave:
:mod:`kornel.core.preemption` and, above it, :mod:`kornel.core.engine` do.
"""
