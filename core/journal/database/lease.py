"""The lease: the row of the database that shows which of several cores leads.

A core takes the lease when no core holds it, and renews it twice a second. A core that ends releases it; a core that
was killed loses it three seconds after the last renewal, or after one second if the database has seen its connection
close. Each core counts this time by its own monotonic clock: a core that stands by from when it saw the row change, and
the leader, which stops a little earlier, from when it began the last renewal that was answered. So the clocks of hosts
and of the database may differ, and may be set.

A leader whose own end of the connection has not failed cannot know that the database has seen it close. It may go on
for a second and a half while another core leads, and writes nothing.

The lease alone does not prevent writing: a core that was stopped for a while still assumes that it leads. Therefore
each append also reads the lease (:meth:`.store.JournalStore.append_block`): a record is appended
only while the lease has the record's epoch. Each time a core takes the lease, a new epoch begins.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import URL

from kornel.core.archive.database import connect
from kornel.core.journal.database.store import STORE_ERRORS, describe_error

LEASE_MS: Final = 3_000
"""The time for which a lease is valid without a renewal."""

MARGIN_MS: Final = 500
"""The time before the end of its lease at which a leader stops."""

GONE_MS: Final = 1_000
"""The time without a renewal after which a lease is free if the database has seen its holder's connection close."""

GONE_MARGIN_MS: Final = 200
"""The time before that at which a leader stops whose connection has failed."""

RENEW_S: Final = 0.5
"""The time from one renewal to the next, unless its answer takes longer."""

AGAIN_S: Final = 0.1
"""The pause before a renewal is tried again."""

PATIENCE_S: Final = 2.0
"""The time that the database may take to answer a question about the lease."""

UNANSWERED_S: Final = 2.0
"""The time without an answer to an append after which the leader offers the lease to other cores."""

SOUND_S: Final = 60.0
"""The time for which appends have to be answered sooner than that, before a core that took an offered lease offers it
in its turn."""

_HELD: Final = 0x6B6C6F63
"""The first half of the key of the lock that the leader's connection holds; the second half is the epoch."""

_NOW: Final = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"

_LOOK: Final = sa.text(
    f"SELECT holder, address, epoch, until_ms, core_ns, {_NOW} - renewed_ms AS since_ms,"  # noqa: S608
    f" EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {_HELD} AND"
    " objid = (epoch % 2147483648)::oid"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS held"
    " FROM journal_lease WHERE one = 1"
)
_HOLD: Final = sa.text(f"SELECT pg_try_advisory_lock({_HELD}, CAST(:epoch % 2147483648 AS INTEGER))")
_TAKE: Final = sa.text(
    f"UPDATE journal_lease SET holder = :holder, address = :address, until_ms = {_NOW} + :lasts_ms,"  # noqa: S608
    # Epochs that were written without a lease count, too.
    " epoch = 1 + GREATEST(epoch, COALESCE((SELECT epoch FROM journal_blocks ORDER BY first DESC LIMIT 1), 0))"
    # An offer counts although it is renewed meanwhile, so that cores far away can take it.
    " WHERE one = 1 AND epoch = :epoch AND until_ms = :until_ms AND (until_ms < 0 OR core_ns = :core_ns)"
    " RETURNING epoch"
)
_RENEW: Final = sa.text(
    # The time by the database's clock is for cores of earlier versions.
    f"UPDATE journal_lease SET until_ms = CASE WHEN :offered THEN -1 ELSE {_NOW} + :lasts_ms END,"  # noqa: S608
    f" renewed_ms = {_NOW}, core_ns = :core_ns WHERE one = 1 AND epoch = :epoch"
)
_HAND_OVER: Final = sa.text("UPDATE journal_lease SET until_ms = 0 WHERE one = 1 AND epoch = :epoch")


class LeaseView(NamedTuple):
    """The lease at one moment.

    until_ms  the end of the lease by the database's clock; 0: its holder has released it; -1: its holder offers it
    core_ns   the leader's own time when it renewed the lease last; 0: it was never renewed
    since_ms  the time since then, by the database's clock
    held      tells whether the database has a connection to the holder
    """

    holder: str = ""
    address: str = ""
    epoch: int = 0
    until_ms: int = 0
    core_ns: int = 0
    since_ms: int = 0
    held: bool = False

    def is_renewal_of(self, before: LeaseView) -> bool:
        """Tells whether the lease was taken, renewed or released since *before*."""
        return (self.epoch, self.until_ms, self.core_ns) != (before.epoch, before.until_ms, before.core_ns)


class LeaseSight:
    """The lease as a core that does not hold it has seen it, by the monotonic clock of that core."""

    def __init__(self) -> None:
        self.view = LeaseView()
        """The lease when this core looked last."""
        self._changed_s = time.monotonic()
        self._core_ns = 0
        self._was_held = False

    def note_view(self, view: LeaseView) -> None:
        """Notes that the lease is now as *view* says."""
        before, self.view = self.view, view
        if view.epoch != before.epoch:
            self._was_held = False
        self._was_held |= view.held
        if view.is_renewal_of(before):
            self._changed_s = time.monotonic()
            # A core that has seen no change yet has only the database's clock.
            since_ms = view.since_ms if not before.holder else 0
            self._core_ns = view.core_ns + max(0, since_ms) * 1_000_000 if view.core_ns else 0

    @property
    def age_s(self) -> float:
        """The seconds since this core saw the lease change."""
        return time.monotonic() - self._changed_s

    @property
    def free(self) -> bool:
        """Tells whether this core may take the lease."""
        gone = self._was_held and not self.view.held
        return self.view.until_ms <= 0 or self.age_s * 1_000 >= (GONE_MS if gone else LEASE_MS)

    @property
    def core_now_ns(self) -> int:
        """Returns the present time of the leader's clock, also if the leader has ended; 0: it is unknown."""
        return self._core_ns + round(self.age_s * 1_000_000_000) if self._core_ns else 0


class LeaseTable:
    """The lease in the database at *url*, which is accessed over a separate connection. All methods but :meth:`close`
    may raise one of :data:`kornel.core.journal.database.store.STORE_ERRORS`."""

    def __init__(self, url: URL, patience_s: float = PATIENCE_S) -> None:
        """Prepares the access without connecting. Raises ``ImportError`` without the driver."""
        # A renewal need not be on the disk, and a disk that is slow for a while is no reason to change the leader. An
        # epoch is there before the first record that is written in it.
        engine = connect(url, patience_s, durable=False, what="journal lease")
        # To prepare a statement would take the time of one more answer.
        sa.event.listen(engine, "connect", lambda connection, _record: setattr(connection, "prepare_threshold", None))
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def read_lease(self) -> LeaseView:
        """Returns the lease as it is now."""
        with self._engine.connect() as connection:
            row = connection.execute(_LOOK).one()
        return LeaseView(*row)

    def take_lease(self, holder: str, address: str, seen: LeaseView) -> int | None:
        """Takes the lease, if it is still as this core has *seen* it. Returns the epoch that begins with it, or
        ``None`` if it was taken or renewed."""
        values = {"holder": holder, "address": address, "lasts_ms": LEASE_MS}
        values |= {"epoch": seen.epoch, "core_ns": seen.core_ns, "until_ms": seen.until_ms}
        with self._engine.connect() as connection:
            found = connection.execute(_TAKE, values).scalar()
        return None if found is None else int(found)

    def renew_lease(self, epoch: int, core_ns: int, *, offered: bool = False) -> bool:
        """Renews the lease of *epoch*. Returns false if another core has taken it. *core_ns* is the core's time.
        *offered*: any other core may take it at once."""
        values = {"epoch": epoch, "core_ns": core_ns, "lasts_ms": LEASE_MS, "offered": offered}
        with self._engine.connect() as connection:
            done = connection.execute(_RENEW, values)
            # The lock lasts as long as the connection, and ends when the database sees it close.
            if connection.info.get("held") != epoch and connection.execute(_HOLD, {"epoch": epoch}).scalar():
                connection.info["held"] = epoch
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
    another core has taken the lease, or when the last renewal that was answered is so long ago that one may take it.
    """

    def __init__(
        self, table: LeaseTable, epoch: int, *, now_ns: Callable[[], int], taken_s: float, offered: bool = False
    ) -> None:
        """Prepares to renew the lease of *epoch*, which this core began to take at *taken_s*, by its monotonic clock.
        *offered* says that the core before offered it."""
        self._table = table
        self._now_ns = now_ns
        self._renewed_s = taken_s
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._task: asyncio.Task[None] | None = None
        self.epoch: Final = epoch
        self.on_lost: Callable[[str], None] = lambda reason: None
        self.find_unanswered: Callable[[], int] = lambda: 0
        """Returns the number of the record whose append has not been answered for too long; 0: there is none."""
        self._offers_from_s = math.inf if offered else 0.0
        self._released = False
        self.lost = ""
        """The reason why this core no longer leads; empty: it does."""
        self.problem = ""
        """The reason why the lease could not be renewed; empty: it was renewed."""

    @property
    def age_s(self) -> float:
        """The seconds since the last renewal that was answered began."""
        return time.monotonic() - self._renewed_s

    @property
    def lapsed(self) -> bool:
        """Tells whether another core may lead."""
        return bool(self.lost) or (not self._released and self._left_s <= 0)

    @property
    def _left_s(self) -> float:
        # The database may have seen the failed connection close just after the last renewal.
        lasts_ms = GONE_MS - GONE_MARGIN_MS if self.problem else LEASE_MS - MARGIN_MS
        return lasts_ms / 1_000 - self.age_s

    def _say_age(self) -> str:
        why = f": {self.problem}" if self.problem else ""
        return f"the lease was last renewed {self.age_s:.1f} s ago, so another core may lead{why}"

    def start(self) -> None:
        """Renew the lease from now on, in the running event loop."""
        self._task = asyncio.create_task(self._renew_until_lost(), name="lease")

    async def hand_over(self) -> None:
        """Stop renewing, and release the lease for another core, unless one may have it. The lease has no end for this
        core from then on."""
        await self._stop()
        if self.lapsed:
            self.lost = self.lost or self._say_age()
        else:
            self._released = True
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

    async def _renew_until_lost(self) -> None:
        try:
            await self._renew_for_ever()
        except Exception as error:  # noqa: BLE001 - who renews nothing any more must not go on
            self.lost = f"bug in the lease, it is not renewed any more: {type(error).__name__}: {error}"
        self.on_lost(self.lost)

    async def _renew_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.lost:
            began = time.monotonic()
            renewing = loop.run_in_executor(self._threads, self._renew_once, began, self._has_to_offer())
            await asyncio.wait({renewing}, timeout=self._left_s)
            if renewing.done() and not renewing.result():
                self.lost = "another core has taken over"
            if self.lapsed:
                self.lost = self.lost or self._say_age()
                return
            pause_s = AGAIN_S if self.problem else max(0.0, began + RENEW_S - time.monotonic())
            await asyncio.sleep(min(pause_s, self._left_s))

    def note_fast_append(self) -> None:
        """Notes that an append was answered in time."""
        self._offers_from_s = min(self._offers_from_s, time.monotonic() + SOUND_S)

    def _has_to_offer(self) -> bool:
        """Tells whether the lease is to be offered to other cores with the next renewal, as long as an append is not
        answered.

        Where no core gets answers, the lease must not be passed on for ever: who took an offered one keeps it.
        """
        if not self.find_unanswered():
            return False
        if time.monotonic() < self._offers_from_s:
            self._offers_from_s = math.inf
            return False
        return True

    def _renew_once(self, began: float, offered: bool) -> bool:
        """Renews the lease. Returns false if another core has it. If the database does not answer, it is asked again
        later.

        The time of the renewal, *began*, is noted here and not in the event loop, which may come to it late.
        """
        try:
            kept = self._table.renew_lease(self.epoch, self._now_ns(), offered=offered)
        except STORE_ERRORS as error:
            self.problem = describe_error(error)
            self._table.forget_connections()
            return True
        if kept:
            self._renewed_s = began
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
