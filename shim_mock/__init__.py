"""A simulated cluster behind a shim. It starts the tasks that the core places, ends them, and confirms releases.

It depends on the wire contract only, through :mod:`shim_client`, and checks the core against its own accounts.
"""

import os

# gRPC reads it when it is imported. Otherwise it writes lines of its own to standard error when a core ends.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
