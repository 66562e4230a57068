"""Snapshots: everything in an engine that can influence a later decision, written as columns, from which an equal
engine can be made.

An engine that is restored from a snapshot continues exactly like the original: the same calls have the same effects
(tests/properties/test_snapshots.py). No name that occurs only in the bytes is looked up. ``kept`` defines the rows of a
table, ``schema`` has the tables with one row for each class that belongs to the state of an engine; ``writing`` and
``reading`` convert objects of these classes to columns and back; ``engines`` does that with a whole engine. In this
list, modules import only modules before them.

A new field of such a class has to be named in the row of the class: tests/unit/snapshot fails until it is.
"""
