"""Benchmarks. See docs/performance-journal.md."""

import os

# The ends of servers are no news here.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
