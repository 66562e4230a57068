"""Checks the health of the core: eleven checks, every thirty seconds unless configured otherwise (rest.md 7).

Checking the books of a large cluster takes a while, so it is done in small steps between other work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.effects import AllocationRejected, Effect, NodeRejected
from kornel.core.domain.health import CLAIM_CHECK, HealthCheck, HealthReport
from kornel.core.domain.reasons import Rejection
from kornel.core.service.machine.clock import SECOND_NS, Clock, Timer
from kornel.core.telling.claims.claim_views import STALLED_NS
from kornel.core.telling.partitions.partition_views import PartitionView
from kornel.core.telling.reader import PartitionReader
from kornel.shared.quantities import parse_duration

AT_ONCE: Final = 50
"""The claims looked at before others get their turn."""

INTERVAL_KEY: Final = "health.checkInterval"
DEFAULT_INTERVAL_NS: Final = 30 * SECOND_NS
ERROR_WINDOW_NS: Final = 600 * SECOND_NS
"""The time for which a refused allocation update counts as a scheduling error (scheduling.md S-25)."""

SHORTEST_WAIT_NS: Final = SECOND_NS
LONGEST_WAIT_NS: Final = 3600 * SECOND_NS
_NAMED: Final = 5
"""The most failures that a diagnosis names; it counts the others."""

_ERRORS, _FAILED_NODES, _RESERVATIONS, _MANAGER, _CLAIMS = 0, 1, 6, 9, 10
_CHECKS: Final = (
    ("Scheduling errors", "allocation updates refused in the last ten minutes"),
    ("Failed nodes", "nodes registered for a partition that does not exist"),
    ("Negative resources", "allocated and total resources of each partition are not negative"),
    ("Negative resources", "amounts of each node are not negative"),
    ("Consistency of data", "capacities of the nodes of each partition add up to its total"),
    ("Consistency of data", "capacity of each node is what is allocated, occupied and available"),
    ("Reservation check", "reservations per node"),
    ("Orphan allocation on node check", "allocations on nodes belong to applications that know them"),
    ("Orphan allocation on app check", "allocations of applications are on nodes that have them"),
    ("Resource manager check", "the registered resource manager has a stream open"),
    (CLAIM_CHECK, "claims without progress for ten minutes, and asks that lost three times what others left for them"),
)
"""The names of the checks, in the order that clients expect; the last two are Kornel's own."""

_REFUSED: Final = frozenset({AllocationRejected, NodeRejected})


class HealthKeeper:
    """Keeps the last health report, in ``report`` (``None`` before the first check), and is an ``EffectObserver``.

    *views* returns the readers of all partitions. *extra_config* returns the extra settings in force. *absence* returns
    a sentence about a manager that is gone; empty: it is there, or none is registered.
    """

    def __init__(
        self,
        views: Callable[[], Sequence[PartitionReader]],
        extra_config: Callable[[], Mapping[str, str]],
        *,
        clock: Clock,
        logger: FilteringBoundLogger,
        absence: Callable[[], str] = lambda: "",
    ) -> None:
        self._absence = absence
        self._views = views
        self._extra_config = extra_config
        self._clock = clock
        self._logger = logger
        self._timer: Timer | None = None
        self._checking: asyncio.Task[HealthReport] | None = None
        self._checked_ns = 0
        self._errors: deque[tuple[int, int]] = deque()
        """The numbers of errors, as (second, number in this second), within the window."""
        self._failed_nodes = 0
        self.report: HealthReport | None = None

    def observe(self, effects: Sequence[Effect]) -> None:
        """Counts refusals that point to an error of the shim."""
        if _REFUSED.isdisjoint(map(type, effects)):
            return
        for effect in effects:
            if type(effect) is AllocationRejected:
                self._count_error()
            elif type(effect) is NodeRejected and effect.reason.startswith(Rejection.PARTITION_NOT_FOUND):
                self._failed_nodes += 1

    def start(self) -> None:
        """Checks now, and from now on as often as the settings in force say."""
        if self._timer is None:
            self._begin_check()
            self._wait()

    async def stop(self) -> None:
        """Stops the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    async def check(self) -> HealthReport:
        """Checks everything now, or joins a check that is under way. Returns its report."""
        return await asyncio.shield(self._begin_check())

    def check_at_once(self) -> None:
        """Checks at once, because something important has changed. It does nothing before :meth:`start`."""
        if self._timer is not None:
            self._begin_check()

    def settings_changed(self) -> None:
        """Applies the interval in the settings, which may have changed. It does nothing before :meth:`start`."""
        if self._timer is not None:
            self._timer.cancel()
            self._wait()

    def _begin_check(self) -> asyncio.Task[HealthReport]:
        if self._checking is None or self._checking.done():
            self._checked_ns = self._clock.now_ns()
            self._checking = asyncio.create_task(self._check(), name="health")
        return self._checking

    def _wait(self) -> None:
        """Sets the timer of the next check; without an interval, that of the next look at the settings."""
        interval_ns = check_interval_ns(self._extra_config())
        due_ns = LONGEST_WAIT_NS if interval_ns is None else self._checked_ns + interval_ns - self._clock.now_ns()
        # If checks take longer than their interval, there is a pause between them all the same.
        wait_ns = min(max(due_ns, SHORTEST_WAIT_NS), LONGEST_WAIT_NS)
        self._timer = self._clock.call_at(self._clock.now_ns() + wait_ns, self._check_when_due)

    def _check_when_due(self) -> None:
        interval_ns = check_interval_ns(self._extra_config())
        if interval_ns is not None and self._clock.now_ns() >= self._checked_ns + interval_ns:
            self._begin_check()
        self._wait()

    async def _check(self) -> HealthReport:
        found: dict[int, list[str]] = {}
        reservations: list[str] = []
        errors = self._recent_errors()
        if errors:
            found[_ERRORS] = [f"{errors} refused"]
        if self._failed_nodes:
            found[_FAILED_NODES] = [f"{self._failed_nodes} failed node{'s' if self._failed_nodes > 1 else ''}"]
        absence = self._absence()
        if absence:
            found[_MANAGER] = [absence]
        for views in self._views():
            reservations.append(_describe_reserved(views.partition()))
            await _find_failures(views, found)
        checks = []
        for number, (name, description) in enumerate(_CHECKS):
            offenders = found.get(number, [])
            diagnosis = "; ".join(reservations) if number == _RESERVATIONS else _name_some(offenders)
            checks.append(HealthCheck(name, not offenders, description, diagnosis))
        self.report = report = HealthReport(self._checked_ns, tuple(checks))
        for check in checks:
            if not check.succeeded:
                self._logger.warning("health check failed", check=check.name, diagnosis=check.diagnosis)
        return report

    def _count_error(self) -> None:
        second = self._clock.now_ns() // SECOND_NS
        if self._errors and self._errors[-1][0] == second:
            self._errors[-1] = (second, self._errors[-1][1] + 1)
        else:
            self._errors.append((second, 1))
            self._recent_errors()

    def _recent_errors(self) -> int:
        since = (self._clock.now_ns() - ERROR_WINDOW_NS) // SECOND_NS
        while self._errors and self._errors[0][0] < since:
            self._errors.popleft()
        return sum(count for _, count in self._errors)


def check_interval_ns(extra_config: Mapping[str, str]) -> int | None:
    """Returns the interval of checks; ``None``: there are none. A value that cannot be read counts as the default."""
    text = extra_config.get(INTERVAL_KEY)
    if text is None:
        return DEFAULT_INTERVAL_NS
    try:
        interval_ns = parse_duration(text)
    except ValueError:
        return DEFAULT_INTERVAL_NS
    return interval_ns if interval_ns > 0 else None


async def _find_failures(views: PartitionReader, found: dict[int, list[str]]) -> None:
    for fault in views.find_faults():
        if fault is None:
            await asyncio.sleep(0)
        else:
            found.setdefault(fault.check, []).append(fault.what)
    for looked, claim in enumerate(views.claims(), 1):
        if claim.idle_ns >= STALLED_NS:
            found.setdefault(_CLAIMS, []).append(f"{claim.key} on {claim.where} ({claim.reason})")
        if looked % AT_ONCE == 0:
            await asyncio.sleep(0)
    lost = (f"{key} (what others left for it was lost {times} times)" for key, times in views.losers())
    found.setdefault(_CLAIMS, []).extend(lost)


def _describe_reserved(partition: PartitionView) -> str:
    ratio = f"{partition.reservations / partition.nodes:.3f}" if partition.nodes else "NaN"
    return f"{partition.name}: {ratio}"


def _name_some(offenders: Sequence[str]) -> str:
    named = "; ".join(offenders[:_NAMED])
    return named if len(offenders) <= _NAMED else f"{named}; and {len(offenders) - _NAMED} more"
