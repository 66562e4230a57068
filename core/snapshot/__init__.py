"""Snapshots: everything of an engine that can influence a later decision, as bytes, and an engine made of them again.

An engine that is restored from a snapshot goes on exactly as the one that it was taken of: the same calls give the same
effects (tests/properties/test_snapshots.py). Nothing is looked up by a name that only the bytes know. ``kept`` says
how a table names the fields of a class, ``schema`` has the tables, one row for each class that belongs to the state of
an engine; ``writing`` and ``reading`` turn objects of these classes into columns and back; ``engines`` does that with
a whole engine. Imports point from the end of this list to its beginning.

A new field of such a class has to be named in its row: tests/unit/snapshot fails until it is.
"""
