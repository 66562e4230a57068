"""The lease: the row of the database that shows which of several cores leads.

A core takes the lease when no core holds it, and renews it every second. A core that ends releases it; a core that was
killed loses it four seconds after the last renewal. All times are those of the database, so that the clocks of hosts
may differ.

The lease alone does not prevent writing: a core that was stopped for a while still assumes that it leads. Therefore
each append also reads the lease (:meth:`.store.JournalStore.append_block`): a record is appended
only while the lease has the record's epoch. Each time a core takes the lease, a new epoch begins.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import URL

from kornel.core.archive.database import connect
from kornel.core.journal.database.store import STORE_ERRORS, describe_error

LEASE_MS: Final = 4_000
"""The time for which a lease is valid without a renewal."""

RENEW_S: Final = 1.0
"""The pause between two renewals."""

PATIENCE_S: Final = 2.0
"""The time that the database may take to answer a question about the lease."""

_NOW: Final = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"

_LOOK: Final = sa.text(
    f"SELECT holder, address, epoch, until_ms - {_NOW} AS left_ms, core_ns, {_NOW} - renewed_ms AS since_ms"  # noqa: S608
    " FROM journal_lease WHERE one = 1"
)
_TAKE: Final = sa.text(
    f"UPDATE journal_lease SET holder = :holder, address = :address, until_ms = {_NOW} + :lasts_ms,"  # noqa: S608
    # Epochs that were written without a lease count, too.
    " epoch = 1 + GREATEST(epoch, COALESCE((SELECT epoch FROM journal_blocks ORDER BY first DESC LIMIT 1), 0))"
    f" WHERE one = 1 AND (until_ms <= {_NOW} OR holder = :gone) RETURNING epoch"
)
_RENEW: Final = sa.text(
    f"UPDATE journal_lease SET until_ms = {_NOW} + :lasts_ms, renewed_ms = {_NOW}, core_ns = :core_ns"  # noqa: S608
    " WHERE one = 1 AND epoch = :epoch"
)
_HAND_OVER: Final = sa.text("UPDATE journal_lease SET until_ms = 0 WHERE one = 1 AND epoch = :epoch")


class LeaseView(NamedTuple):
    """The lease at one moment.

    left_ms   the time for which it is still valid; 0 or below: no core leads
    core_ns   the leader's own time when it renewed the lease last; 0: it was never renewed
    since_ms  the time since then
    """

    holder: str
    address: str
    epoch: int
    left_ms: int
    core_ns: int
    since_ms: int

    @property
    def free(self) -> bool:
        """Tells whether another core may take it."""
        return self.left_ms <= 0

    @property
    def core_now_ns(self) -> int:
        """Returns the present time of the leader's clock, also if the leader has ended; 0: it is unknown."""
        return self.core_ns + self.since_ms * 1_000_000 if self.core_ns else 0


class LeaseTable:
    """The lease in the database at *url*, which is accessed over a separate connection. All methods but :meth:`close`
    may raise one of :data:`kornel.core.journal.database.store.STORE_ERRORS`."""

    def __init__(self, url: URL, patience_s: float = PATIENCE_S) -> None:
        """Prepares the access without connecting. Raises ``ImportError`` without the driver."""
        self._engine = connect(url, patience_s, what="journal lease").execution_options(isolation_level="AUTOCOMMIT")

    def read_lease(self) -> LeaseView:
        """Returns the lease as it is now."""
        with self._engine.connect() as connection:
            row = connection.execute(_LOOK).one()
        return LeaseView(row.holder, row.address, row.epoch, int(row.left_ms), row.core_ns, int(row.since_ms))

    def take_lease(self, holder: str, address: str, *, gone: str = "") -> int | None:
        """Takes the lease, if no core holds it. Returns the epoch that begins with it, or ``None`` if a core holds the
        lease.

        *gone* is a holder that is known to have ended, so that its lease need not expire first.
        """
        values = {"holder": holder, "address": address, "lasts_ms": LEASE_MS, "gone": gone or holder}
        with self._engine.connect() as connection:
            found = connection.execute(_TAKE, values).scalar()
        return None if found is None else int(found)

    def renew_lease(self, epoch: int, core_ns: int) -> bool:
        """Renews the lease of *epoch*. Returns false if another core has taken it. *core_ns* is the core's time."""
        with self._engine.connect() as connection:
            done = connection.execute(_RENEW, {"epoch": epoch, "core_ns": core_ns, "lasts_ms": LEASE_MS})
        return done.rowcount > 0

    def hand_over(self, epoch: int) -> None:
        """Releases the lease of *epoch*, so that another core can take it at once."""
        with self._engine.connect() as connection:
            connection.execute(_HAND_OVER, {"epoch": epoch})

    def forget_connections(self) -> None:
        """Drops the connection after a failure, so that the next use opens a new one."""
        self._engine.dispose()

    def close(self) -> None:
        """Closes the connection to the database."""
        with suppress(*STORE_ERRORS):
            self._engine.dispose()


class LeaseKeeper:
    """Renews the lease of the core that leads, as long as its event loop runs.

    An event loop that hangs renews nothing, so another core takes over. *on_lost* is called with the reason when
    another core has taken the lease.
    """

    def __init__(self, table: LeaseTable, epoch: int, *, now_ns: Callable[[], int]) -> None:
        self._table = table
        self._now_ns = now_ns
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._task: asyncio.Task[None] | None = None
        self.epoch: Final = epoch
        self.on_lost: Callable[[str], None] = lambda reason: None
        self.problem = ""
        """The reason why the lease could not be renewed; empty: it was renewed."""

    def start(self) -> None:
        """Renew the lease from now on, in the running event loop."""
        self._task = asyncio.create_task(self._renew_for_ever(), name="lease")

    async def hand_over(self) -> None:
        """Stop renewing, and release the lease for another core."""
        await self._stop()
        with suppress(*STORE_ERRORS):
            await asyncio.get_running_loop().run_in_executor(self._threads, self._table.hand_over, self.epoch)

    def close(self) -> None:
        """Close the connection to the database."""
        self._threads.shutdown(wait=False)
        self._table.close()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _renew_for_ever(self) -> None:
        while True:
            if not await asyncio.get_running_loop().run_in_executor(self._threads, self._renew_once):
                self.on_lost("another core has taken over")
                return
            await asyncio.sleep(RENEW_S)

    def _renew_once(self) -> bool:
        """Renews the lease. Returns false if another core has it. If the database does not answer, it is asked again
        later."""
        try:
            kept = self._table.renew_lease(self.epoch, self._now_ns())
        except STORE_ERRORS as error:
            self.problem = describe_error(error)
            self._table.forget_connections()
            return True
        self.problem = ""
        return kept


def name_holder() -> str:
    """Returns a name of this process that no other process has, on any machine."""
    return f"{platform.node()} {_read_line('/proc/sys/kernel/random/boot_id')} {_pid_namespace()} {_name_process()}"


def is_gone(holder: str) -> bool:
    """Tells whether *holder* is known to have ended: it is a process of this machine that no longer exists."""
    here, ours = holder.split(" "), name_holder().split(" ")
    if len(here) != len(ours) or here[:3] != ours[:3] or not all(ours):
        return False
    return _started_at(here[3].partition("@")[0]) != here[3].partition("@")[2]


def _name_process() -> str:
    return f"{os.getpid()}@{_started_at(str(os.getpid()))}"


def _started_at(pid: str) -> str:
    """Returns the start of the process *pid* in the machine's own count, or an empty text if there is no such process
    or it has ended."""
    fields = _read_line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in ("Z", "X") else ""


def _pid_namespace() -> str:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _read_line(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text("utf-8").strip()
    return ""
