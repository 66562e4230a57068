"""Owns the state of a partition: takes commands, runs cycles, applies plans, keeps the books.

:mod:`kornel.core.partition.engine` is the door; nothing outside this package changes a record of
:mod:`kornel.core.model`.
"""
