"""Owns the state of partitions: handles commands, runs cycles, applies plans, keeps the books.

:mod:`kornel.core.partition.engine` is its interface; nothing outside this package changes a record of
:mod:`kornel.core.model`.
"""
