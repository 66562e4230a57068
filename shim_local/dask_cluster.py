"""A cluster of Dask whose workers run where kornel-local has room for them. Needs the extra ``kornel[dask]``."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from distributed import Scheduler
from distributed.deploy import Adaptive, SpecCluster
from tornado.ioloop import PeriodicCallback

from kornel.shim_local.amounts import parse_bytes, parse_cores
from kornel.shim_local.client import NoServer, RequestRefused
from kornel.shim_local.cluster import Cluster, WorkerGroup
from kornel.shim_local.jobs.task import TaskState

REFRESH_MS: Final = 1000
SCHEDULER_OPTIONS: Final = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}
"""The options of a scheduler to which nobody connects from elsewhere, as whoever does can run programs."""
_LOGGER: Final = logging.getLogger(__name__)


class KornelCluster(SpecCluster):  # type: ignore[misc] # it has no types where Dask is not installed
    """A scheduler of Dask in this process, and a group of workers of kornel-local.

    kornel-local alone starts workers again, so this cluster has no specification of single workers: to Dask, the
    workers that exist are those of the group. A worker that has to end first finishes its running tasks and hands on
    its results.
    """

    def __init__(
        self,
        workers: int = 0,
        *,
        at_least: int = 0,
        vcore: str | float = "1",
        memory: str = "0",
        local: Cluster | None = None,
        scheduler_options: Mapping[str, Any] | None = None,
        asynchronous: bool = False,
        name: str = "",
        **options: Any,
    ) -> None:
        """Starts a scheduler and asks for *workers* workers, each with *vcore* cores (and a thread for each) and
        *memory*.

        *at_least*, *options* and the amounts are those of :meth:`Cluster.start`; *local* is the kornel-local to use, by
        default the user's own. *scheduler_options* are those of Dask's Scheduler, which by default listens on this
        machine only, with its dashboard on a free port. Raises NoServer, and RequestRefused or ValueError if
        there cannot be such workers.
        """
        self._local = local or Cluster()
        self._at_least = at_least
        self._first = workers
        self._group: WorkerGroup | None = None
        self._keys: frozenset[str] = frozenset()
        self._failed: frozenset[str] = frozenset()
        self._closing = False
        self._changing = asyncio.Lock()
        self._threads = max(1, math.ceil(parse_cores(str(vcore)) / 1000))
        self._memory = parse_bytes(memory)
        self._options = {"at_least": at_least, "vcore": vcore, "memory": memory, "name": name or "dask", **options}
        super().__init__(
            scheduler={"cls": Scheduler, "options": {**SCHEDULER_OPTIONS, **(scheduler_options or {})}},
            # Only adapt() reads this, to count cores and memory.
            worker={"options": {"nthreads": self._threads, "memory_limit": self._memory}},
            asynchronous=asynchronous,
            silence_logs=logging.WARNING,
            name=name or None,
        )

    @property
    def group(self) -> WorkerGroup | None:
        """The group of workers; ``None`` before there are any, and after there were none for long."""
        return self._group

    @property
    def plan(self) -> set[str]:
        """The names of the workers that wait or run, as the last look at the group has shown them."""
        return set(self._keys)

    requested = plan

    async def _start(self) -> None:
        await super()._start()
        refresh = PeriodicCallback(self._refresh_keys, REFRESH_MS)
        self.periodic_callbacks["kornel-local"] = refresh
        refresh.start()
        try:
            await self._scale_group(self._first)
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        self._closing = True
        async with self._changing:
            if (group := self._group) is not None:
                self._group = None
                with suppress(NoServer, RequestRefused):
                    await asyncio.to_thread(group.stop, notice=False)
        await super()._close()

    def scale(self, n: int = 0) -> Any:
        """Has the cluster have *n* workers, which start when there is room. Raises RequestRefused."""
        return self.sync(self._scale_group, n)

    async def _scale_group(self, n: int) -> None:
        async with self._changing:
            if self._group is not None:
                await asyncio.to_thread(self._group.scale, n)
            # What adapt() has asked for may come late.
            elif n and not self._closing:
                address = getattr(self.scheduler, "contact_address", None) or self.scheduler.address
                command = [sys.executable, "-m", "kornel.shim_local.dask_worker", address]
                command += ["--threads", str(self._threads), "--memory", str(self._memory)]
                self._group = await asyncio.to_thread(self._local.start, command, n, **self._options)
        await self._refresh_keys()

    async def scale_down(self, workers: Iterable[str]) -> None:
        """Stop the *workers* of these names, which Dask has chosen."""
        if self._group is not None:
            await asyncio.to_thread(self._group.stop_workers, [name.rpartition("-")[0] for name in workers])
        await self._refresh_keys()

    def adapt(self, *, minimum: int = 0, **options: Any) -> Adaptive:
        """Has Dask scale the cluster between *minimum*, for a gang *at_least*, and ``maximum``, by the tasks that
        wait."""
        return super().adapt(minimum=max(minimum, self._at_least), **options)

    async def _refresh_keys(self) -> None:
        if (group := self._group) is None:
            self._keys = frozenset()
            return
        try:
            found = await asyncio.to_thread(group.list_workers)
        except NoServer:
            return
        except RequestRefused:
            # It had no workers for so long that kornel-local has removed it. The next ones are those of a new group.
            self._group, found = None, []
        failed = {each.key: each.reason for each in found if each.state is TaskState.FAILED}
        for key in failed.keys() - self._failed:
            _LOGGER.warning("worker %s has failed, and is not started again: %s", key, failed[key])
        self._failed = frozenset(failed)
        self._keys = frozenset(each.key for each in found) - self._failed
