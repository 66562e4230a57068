"""Everything that is known of a core, in the text format of Prometheus.

The text format and no other: upstream's counters of queues have names that OpenMetrics does not allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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

from core.domain.gauges import PartitionGauges
from core.metrics import engine_side, service_side, upstream
from core.metrics.families import gauge
from core.metrics.queue_series import QueueSeries
from core.metrics.sources import Scrape, Sources

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class Exposition(Collector):
    """:meth:`render` writes it all down. Cost: linear in queues, applications and nodes."""

    def __init__(self, sources: Sources, *, aliases: bool = False) -> None:
        """*aliases*: also under names that upstream's older dashboards ask for."""
        self.sources = sources
        """What a scrape looks at."""
        self._aliases = aliases
        self._queues = QueueSeries(aliases=aliases)
        self._removed = upstream.NodesRemoved()
        self._scrape = Scrape(())
        self._took_s = 0.0
        self._unreadable = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and text. *accept*: what the client would like; there is only one format."""
        began = time.perf_counter()
        sources = self.sources
        waits: dict[str, Callable[[str], bool]] = {}
        partitions: list[PartitionGauges] = []
        self._unreadable = 0
        for views in sources.runner.all_views():
            try:
                partitions.append(views.gauges())
            except Exception:  # noqa: BLE001 - a damaged partition must not hide that it is damaged
                self._unreadable += 1
            else:
                waits[partitions[-1].name] = views.waits
        self._scrape = Scrape(partitions)
        decisions = sources.measures.decisions
        if not self._unreadable:
            decisions.preemptions.forget_gone(lambda name, key: name in waits and waits[name](key))
        queues = "".join(self._queues.lines(self._scrape.partitions, decisions.queues)).encode()
        text = generate_latest(self._registry) + queues
        self._scrape = Scrape(())
        self._took_s = time.perf_counter() - began
        return CONTENT_TYPE, text

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is to tell depends on the cluster."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Everything but the series of single queues."""
        sources, scrape = self.sources, self._scrape
        yield from upstream.families(sources, scrape, self._removed)
        if self._aliases:
            yield from upstream.older()
        yield from engine_side.families(sources, scrape)
        yield from service_side.families(sources)
        yield gauge(
            "kornel_metrics_queues_omitted", "Queues without series of their own: too many.", self._queues.omitted
        )
        yield gauge("kornel_metrics_partitions_unreadable", "Partitions too damaged to be looked at.", self._unreadable)
        yield gauge("kornel_metrics_scrape_seconds", "How long the last answer took to write.", self._took_s)
