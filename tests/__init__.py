"""Says to gRPC, before any test or tool imports it, that it shall leave copies of the process alone, as the command
does."""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
