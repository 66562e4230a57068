"""What a scrape looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.metrics.measures import Measures
from core.service.admission import AdmissionInterceptor
from core.service.callback_board import CallbackBoard
from core.service.clock import Clock
from core.service.configuring import Configurator
from core.service.connections import ConnectionKeeper
from core.service.event_journal import EventJournal
from core.service.health import HealthKeeper
from core.service.metrics import ServiceMetrics
from core.service.runner import PartitionRunner
from core.telling.partitions.partition_gauges import PartitionGauges


class HistoryGauges(Protocol):
    """How a history is doing. ``queued``: entries in memory; ``problem`` empty: nothing is wrong."""

    @property
    def stored(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def queued(self) -> int: ...
    @property
    def spool_bytes(self) -> int: ...
    @property
    def spool_limit(self) -> int: ...
    @property
    def problem(self) -> str: ...
    @property
    def last_commit_ns(self) -> int: ...
    @property
    def set_aside(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """``history``: how the durable history is doing; ``None``: there is none. ``queue_limit``: of response queues."""

    measures: Measures
    runner: PartitionRunner
    service: ServiceMetrics
    connections: ConnectionKeeper
    admission: AdmissionInterceptor
    callbacks: CallbackBoard
    configurator: Configurator
    events: EventJournal
    health: HealthKeeper
    clock: Clock
    version: str
    queue_limit: int
    history: Callable[[], HistoryGauges | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Scrape:
    """One look at the partitions, shared by everything that one answer tells of them."""

    partitions: Sequence[PartitionGauges]

    def sum(self, value: Callable[[PartitionGauges], int]) -> int:
        """*value* over all partitions."""
        return sum(map(value, self.partitions))
