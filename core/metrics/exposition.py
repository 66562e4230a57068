"""Writes everything that is known of a core in the text format of Prometheus.

There is no other format, because YuniKorn's counters of queues have names that OpenMetrics does not allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kornel.core.metrics import engine_side, service_side, yunikorn_metrics
from kornel.core.metrics.families import make_gauge
from kornel.core.metrics.queue_series import QUEUES_SHOWN, QueueSeries
from kornel.core.metrics.sources import Scrape, Sources
from kornel.core.telling.partitions.partition_gauges import PartitionGauges

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class _One(CollectorRegistry):
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        super().__init__()
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


class Exposition(Collector):
    """The metrics in the text format of Prometheus. :meth:`render_pieces` writes all of them. The cost is linear in
    queues, applications and nodes."""

    def __init__(self, sources: Sources, *, aliases: bool = False) -> None:
        """Prepares the metrics. With *aliases*, they also have the names that older dashboards of YuniKorn use."""
        self.sources = sources
        """The sources of a scrape."""
        self._aliases = aliases
        self._queues = QueueSeries(aliases=aliases)
        self._removed = yunikorn_metrics.NodesRemoved()
        self._scrape = Scrape(())
        self._took_s = 0.0
        self._unreadable = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def render(self) -> bytes:
        """Returns the whole text at once."""
        return b"".join(self.render_pieces())

    def render_pieces(self) -> Iterator[bytes]:
        """Yields the text in pieces, some of them empty; other tasks may run after each. Only one call may be active at
        a time."""
        began = time.perf_counter()
        sources = self.sources
        waits: dict[str, Callable[[str], bool]] = {}
        partitions: list[PartitionGauges] = []
        self._unreadable = 0
        reader, decisions = sources.managers.reader, sources.measures.decisions
        decisions.begin_scrape()
        for views in reader.partitions():
            try:
                for found in views.gauges(QUEUES_SHOWN):
                    if found is not None:
                        partitions.append(found)
                    yield b""
            except Exception:  # noqa: BLE001 - a damaged partition must not hide that it is damaged
                self._unreadable += 1
            else:
                waits[partitions[-1].name] = views.is_waiting
        self._scrape = Scrape(partitions, reader.shown_name, not self._unreadable)
        if not sources.standing.leads and self._scrape.whole:
            decisions.take_baseline(partitions)
            decisions.begin_scrape()
        if not self._unreadable:
            decisions.preemptions.forget_gone(lambda name, key: name in waits and waits[name](key))
        yield b""
        queues: list[bytes] = []
        for piece in self._queues.write_lines(partitions, decisions.queues, whole=self._scrape.whole):
            queues.append(piece.encode())
            yield b""
        # The registry reads what the series of queues have left out.
        for family in self._registry.collect():
            yield generate_latest(_One(family))
        yield from queues
        self._scrape = Scrape(())
        self._took_s = time.perf_counter() - began

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, because the metrics depend on the cluster."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yields all metrics except the series of single queues."""
        sources, scrape = self.sources, self._scrape
        yield from yunikorn_metrics.upstream_families(sources, scrape, self._removed)
        if self._aliases:
            yield from yunikorn_metrics.older_families()
        yield from engine_side.engine_families(sources, scrape)
        yield from service_side.service_families(sources)
        yield make_gauge(
            "kornel_metrics_queues_omitted", "Queues without series of their own: too many.", self._queues.omitted
        )
        yield make_gauge(
            "kornel_metrics_partitions_unreadable", "Partitions too damaged to be looked at.", self._unreadable
        )
        yield make_gauge("kornel_metrics_scrape_seconds", "How long the last answer took to write.", self._took_s)
