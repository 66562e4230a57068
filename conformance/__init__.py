"""The contract of ``si.v1`` as code, for any core by its address and any shim by its command.

A core is driven by cases. A case (:mod:`kornel.conformance.case`) drives it through a
:class:`~kornel.conformance.bench.Bench` and compares what comes back, entry by entry. The cases are in
:mod:`kornel.conformance.cases`, numbered as in the contract; :mod:`kornel.conformance.runner` runs them. A shim is
started against a scripted core, :mod:`kornel.conformance.shim`. The package knows only the wire, and not how a core or
a shim is made. See docs/conformance.md.
"""
