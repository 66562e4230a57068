"""The contract of ``si.v1`` as runnable cases: point them at any core, by address, and see what it keeps.

A case (:mod:`conformance.case`) drives a core through a :class:`~conformance.bench.Bench` and compares what comes back,
entry by entry. The cases are in :mod:`conformance.cases`, numbered as in the contract; :mod:`conformance.runner` runs
them. Nothing here knows how a core is made: only the wire. See docs/conformance.md.
"""
