"""The kinds of preemption: a room for each, one record that everything outside the room reads, one list of them.

To add a kind, write a folder with its plan, its drive, its laws and its record (:mod:`kornel.core.preemption.kind`),
and give it two lines in :mod:`kornel.core.preemption.registry`.
"""
