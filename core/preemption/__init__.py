"""Holds the kinds of preemption: each is a folder with a record that describes it to all other code, and one registry
lists them.

To add a kind, write a folder with its planner, its driver, its laws and its record
(:mod:`kornel.core.preemption.kind`), and add two lines to :mod:`kornel.core.preemption.registry` and
one to :mod:`kornel.core.domain.preemption_kinds`.
"""
