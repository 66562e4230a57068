"""A shim of pods in a database that stands for an API server.

``python -m tests.e2e.rolling_shim ADDRESS DATABASE COUNT`` begins when that many pods have been bound, and goes on
beyond :data:`ALONE` only when there is a second program. It lists the pods, reports those that are bound, asks for the
others, and binds what the core places. A pod is bound once only, as by an API server: whoever comes second learns where
it runs. The program that begins at once leaves some to the other one, however late that is. Told that another program
has its place, it ends.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from kornel.shim_client import Allocated, Ask, ShimClient, Superseded, resource
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import CONFIG

SUPERSEDED: Final = 7
"""The exit status of one that was taken over from."""
APPLICATIONS: Final = 20
NODES: Final = 10
BIND_S: Final = 0.01
ALONE: Final = 40
"""As many pods are bound before there is a second program."""
MOST: Final = 150
"""As many pods are bound before the first program binds no more."""
SIZE: Final = {"vcore": 100}


def make_cluster(database: Path, pods: int) -> None:
    """Write *pods* that nobody has bound."""
    with closing(sqlite3.connect(database)) as cluster, cluster:
        cluster.execute("PRAGMA journal_mode=WAL")
        cluster.execute("CREATE TABLE pods (key TEXT PRIMARY KEY, app TEXT, node TEXT)")
        cluster.execute("CREATE TABLE programs (shim INTEGER)")
        cluster.execute("CREATE TABLE starts (key TEXT, node TEXT, shim INTEGER)")
        rows = [(f"pod-{number}", f"app-{number % APPLICATIONS}") for number in range(pods)]
        cluster.executemany("INSERT INTO pods (key, app) VALUES (?, ?)", rows)


class RollingShim:
    """One program of two."""

    def __init__(self, client: ShimClient, cluster: sqlite3.Connection, *, is_first: bool) -> None:
        self._client = client
        self._cluster = cluster
        self._is_first = is_first

    async def run(self) -> None:
        """Serve until another program has taken over."""
        client = self._client
        await client.register(config=CONFIG)
        names = [f"node-{number}" for number in range(NODES)]
        room = resource({"vcore": 100_000})
        await client.create_nodes(
            [si.NodeInfo(nodeID=n, action=si.NodeInfo.CREATE_DRAIN, schedulableResource=room) for n in names]
        )
        await client.add_applications(
            [
                si.AddApplicationRequest(
                    applicationID=f"app-{number}", queueName="root.a", ugi=si.UserGroupInformation(user="u")
                )
                for number in range(APPLICATIONS)
            ]
        )
        pods = self._cluster.execute("SELECT key, app, node FROM pods").fetchall()
        await client.report_allocations([self._running(key, app, node) for key, app, node in pods if node])
        await client.submit_asks([Ask(key, app, SIZE) for key, app, node in pods if not node])
        await client.send_nodes([si.NodeInfo(nodeID=n, action=si.NodeInfo.DRAIN_TO_SCHEDULABLE) for n in names])
        async for update in client.updates():
            if isinstance(update, Allocated):
                await self._bind(update)

    async def _bind(self, placed: Allocated) -> None:
        while self._count("starts") >= ALONE and self._count("programs") < 2:  # noqa: ASYNC110 - another process
            await asyncio.sleep(BIND_S)
        await asyncio.sleep(BIND_S)  # An API server takes its time, so that some pods are on their way at any moment.
        if self._is_first and self._count("starts") >= MOST:
            return
        with self._cluster:
            bound = self._cluster.execute(
                "UPDATE pods SET node = ? WHERE key = ? AND node IS NULL", (placed.node_id, placed.key)
            )
            if bound.rowcount:
                row = placed.key, placed.node_id, os.getpid()
                self._cluster.execute("INSERT INTO starts VALUES (?, ?, ?)", row)
                return
        app, node = self._cluster.execute("SELECT app, node FROM pods WHERE key = ?", (placed.key,)).fetchone()
        if node != placed.node_id:
            await self._client.release([self._client.release_of(app, placed.key, si.STOPPED_BY_RM)])
            await self._client.report_allocations([self._running(placed.key, app, node)])

    def _count(self, table: str) -> int:
        count: int = self._cluster.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - two names
        return count

    def _running(self, key: str, app: str, node: str) -> si.Allocation:
        return si.Allocation(allocationKey=key, applicationID=app, nodeID=node, resourcePerAlloc=resource(SIZE))


async def main(address: str, database: str, begin_at: str) -> int:
    """Returns the exit status."""
    with closing(sqlite3.connect(database, timeout=60)) as cluster:
        async with ShimClient(address, "rm-1") as client:
            with cluster:
                cluster.execute("INSERT INTO programs VALUES (?)", (os.getpid(),))
            while cluster.execute("SELECT count(*) FROM starts").fetchone()[0] < int(begin_at):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(BIND_S)
            try:
                await RollingShim(client, cluster, is_first=begin_at == "0").run()
            except Superseded as ended:
                print(ended, file=sys.stderr)
                return SUPERSEDED
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
