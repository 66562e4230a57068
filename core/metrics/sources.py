"""Defines the sources of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kornel.core.domain.names import bare_partition_name
from kornel.core.metrics.measures import Measures
from kornel.core.service.calls.admission import AdmissionInterceptor
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.machine.clock import Clock
from kornel.core.service.managers.health import HealthKeeper
from kornel.core.service.managers.managers import Managers
from kornel.core.service.managers.standing import Standing
from kornel.core.service.metrics.metrics import Durations, ServiceMetrics
from kornel.core.telling.partitions.partition_gauges import PartitionGauges


class HistoryGauges(Protocol):
    """The gauges of a history. ``problem`` empty: nothing is wrong."""

    @property
    def stored(self) -> int:
        """The number of records stored in this run."""

    @property
    def committed(self) -> int:
        """The number of records committed to the database since the start."""

    @property
    def dropped(self) -> int:
        """The number of entries lost for lack of room."""

    @property
    def refused(self) -> int:
        """The number of records that the database will never accept."""

    @property
    def queued(self) -> int:
        """The number of entries in memory."""

    @property
    def spool_bytes(self) -> int:
        """The number of bytes that wait on the disk."""

    @property
    def spool_limit(self) -> int:
        """The most bytes that may wait."""

    @property
    def problem(self) -> str:
        """The present problem; empty: none."""

    @property
    def last_commit_ns(self) -> int:
        """The time of the last commit; 0: there was none yet."""

    @property
    def set_aside(self) -> int:
        """The number of records and files that were set aside."""


class JournalGauges(Protocol):
    """The gauges of a journal. ``problem`` empty: nothing is wrong."""

    @property
    def epoch(self) -> int:
        """The number of processes that have written this journal up to now, including this one."""

    @property
    def last_record(self) -> int:
        """The number of the last record."""

    @property
    def last_durable(self) -> int:
        """The number of the last record that is durable."""

    @property
    def sets_waiting(self) -> int:
        """The number of sets of effects that wait until their record is durable before they leave the core."""

    @property
    def problem(self) -> str:
        """The present problem of the journal; empty: none."""

    @property
    def bytes_written(self) -> int:
        """The bytes of the blocks written since the start."""

    @property
    def commits(self) -> Durations:
        """The durations of commits."""

    @property
    def snapshots(self) -> SnapshotGauges:
        """The snapshots of the journal."""


class SnapshotGauges(Protocol):
    """The gauges of the snapshots of a journal. ``problem`` empty: nothing is wrong."""

    @property
    def at_ns(self) -> int:
        """The core's time at which the newest snapshot was taken; 0: there is none."""

    @property
    def size(self) -> int:
        """The bytes of the newest snapshot."""

    @property
    def took_s(self) -> float:
        """The seconds that its making took; 0: an earlier core made it."""

    @property
    def problem(self) -> str:
        """The reason why the last one could not be made; empty: it was made."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a scrape. ``history``: the gauges of the durable history; ``None``: there is none. ``journal``:
    those of the journal; ``None``: there is none. ``standing``: the standing of this core among those that share a
    journal. ``queue_limit``: the limit of response queues. ``latency``: the times from questions to their answers."""

    measures: Measures
    managers: Managers
    service: ServiceMetrics
    admission: AdmissionInterceptor
    latency: Durations
    events: EventJournal
    health: HealthKeeper
    clock: Clock
    version: str
    queue_limit: int
    history: Callable[[], HistoryGauges | None] = lambda: None
    journal: Callable[[], JournalGauges | None] = lambda: None
    standing: Standing = field(default_factory=Standing)


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading of the partitions, shared by all metrics of one answer."""

    partitions: Sequence[PartitionGauges]
    shown_name: Callable[[str], str] = bare_partition_name
    """Returns the name by which people know a partition, given its full name."""
    whole: bool = True
    """Tells whether all partitions could be read."""

    def sum_of(self, value: Callable[[PartitionGauges], int]) -> int:
        """Returns the sum of *value* over all partitions."""
        return sum(map(value, self.partitions))
