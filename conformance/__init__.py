"""The contract of ``si.v1`` as executable checks, for any core, given its address, and any shim, given its command.

A core is tested by cases. A case (:mod:`kornel.conformance.case`) sends requests to it through a
:class:`~kornel.conformance.bench.Bench` and compares the answers, entry by entry. The cases are in
:mod:`kornel.conformance.cases`, numbered as in the contract; :mod:`kornel.conformance.runner` runs them. A shim is
tested with a scripted core (:mod:`kornel.conformance.shim`). The package depends only on the wire contract, not on the
code of any core or shim. See docs/conformance.md.
"""

import os

# gRPC reads it when it is imported. Otherwise it writes lines of its own to standard error when a core ends.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
