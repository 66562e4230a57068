"""A batch system for one machine or a few, which is a shim: it runs real processes that a core has placed.

One server is the shim: it keeps the jobs, registers with the core and tells agents what to start. One agent per machine
runs the processes. Each process has its own supervisor, which survives the agent. The package itself imports nothing
until it is asked for its interface, because a supervisor must be small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kornel.shim_local.client import NoServer, RequestRefused
    from kornel.shim_local.cluster import Cluster, GroupWorker, WorkerGroup

__all__ = ["Cluster", "GroupWorker", "NoServer", "RequestRefused", "WorkerGroup"]


def __getattr__(name: str) -> object:
    """Returns *name* of the interface, of which a module is imported when it is needed first."""
    if name not in __all__:
        raise AttributeError(name)
    from kornel.shim_local import client, cluster  # noqa: PLC0415

    return getattr(client if hasattr(client, name) else cluster, name)
