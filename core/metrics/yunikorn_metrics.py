"""Makes the metrics that YuniKorn has as well, with its names and labels, except those of single queues (rest.md 6).

The values of the histograms are in seconds although their names say milliseconds, because dashboards rely on it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.core import Metric

from kornel.core.domain.application_states import AppState
from kornel.core.domain.effects import ApplicationAccepted, ApplicationRejected
from kornel.core.metrics.families import make_counters, make_gauge, make_gauges, make_histogram, make_histograms
from kornel.core.metrics.queue_series import sanitise_name
from kornel.core.metrics.sources import Scrape, Sources
from kornel.core.metrics.timings import UPSTREAM_BOUNDS_S
from kornel.core.service.metrics.metrics import Durations

RANGES: Final = ("[0,10%]", *(f"({low}0%,{low + 1}0%]" for low in range(1, 10)))
ALWAYS: Final = ("vcore", "memory", "pods", "ephemeral-storage")
"""The resource types for which dashboards show the usage of nodes."""

TYPES_SHOWN: Final = 16

GOING: Final = (AppState.RUNNING, AppState.RESUMING, AppState.FAILING, AppState.COMPLETING)
ENDED: Final = (AppState.COMPLETED, AppState.FAILED)

_NEVER: Final = Durations(UPSTREAM_BOUNDS_S)
"""The metrics that always stay 0, because Kornel keeps nodes in order, and a search does not walk over all of them."""


class NodesRemoved:
    """The number of nodes decommissioned so far, counted here because partitions lose their counts when their manager
    registers again."""

    def __init__(self) -> None:
        self.total = 0
        self._last = 0

    def add_removed(self, now: int) -> None:
        """Adds what is new in the counts *now* of the partitions."""
        self.total += now - self._last if now >= self._last else now
        self._last = now


def upstream_families(sources: Sources, scrape: Scrape, removed: NodesRemoved) -> Iterable[Metric]:
    """Yields the metrics that YuniKorn has as well. It updates *removed*."""
    decisions, timings = sources.measures.decisions, sources.measures.timings
    effects = decisions.effects
    refused, counted = decisions.count_refused(), decisions.everywhere
    if scrape.whole:
        counted.match_running(scrape.sum_of(lambda partition: partition.allocations))
    yield make_counters(
        "yunikorn_scheduler_container_allocation_attempt_total",
        "Allocations made, ended and refused; error: refused allocation updates.",
        ["state"],
        {"allocated": counted.allocated, "released": counted.released, "rejected": refused, "error": refused},
    )
    yield make_counters(
        "yunikorn_scheduler_application_submission_total",
        "Applications put into a queue, accepted and rejected.",
        ["result"],
        {
            "new": effects[ApplicationAccepted],
            "accepted": decisions.states[AppState.ACCEPTED],
            "rejected": effects[ApplicationRejected] + decisions.states[AppState.REJECTED],
        },
    )
    states: Counter[AppState] = Counter()
    for partition in scrape.partitions:
        states.update(partition.applications)
    yield make_gauges(
        "yunikorn_scheduler_application_total",
        "Applications by state; completed and failed ones count up.",
        ["state"],
        {state.lower(): states[state] for state in GOING} | {state.lower(): decisions.states[state] for state in ENDED},
    )
    removed.add_removed(scrape.sum_of(lambda partition: partition.nodes_removed))
    yield make_gauges(
        "yunikorn_scheduler_node",
        "Nodes registered and of these unschedulable; failed and decommissioned ones count up.",
        ["state"],
        {
            "active": scrape.sum_of(lambda partition: partition.nodes),
            "draining": scrape.sum_of(lambda partition: partition.unschedulable),
            "failed": decisions.failed_nodes,
            "decommissioned": removed.total,
        },
    )
    for name, deciles in _usage_buckets([partition.usage for partition in scrape.partitions]).items():
        yield make_gauges(
            f"yunikorn_scheduler_{sanitise_name(name)}_node_usage_total",
            f"Nodes by the part of their {sanitise_name(name)} that is allocated.",
            ["range"],
            dict(zip(RANGES, deciles, strict=True)),
        )
    yield make_histogram(
        "yunikorn_scheduler_scheduling_latency_milliseconds",
        "Seconds that one slice of scheduling took.",
        timings.upstream_slices,
    )
    yield make_histogram(
        "yunikorn_scheduler_scheduling_cycle_milliseconds",
        "Seconds that a whole cycle of scheduling took.",
        timings.upstream_cycles,
    )
    yield make_histograms(
        "yunikorn_scheduler_node_sorting_latency_milliseconds",
        "Seconds spent on sorting: always none, everything is kept in order.",
        ["level"],
        {"app": _NEVER, "queue": _NEVER},
    )
    yield make_histogram(
        "yunikorn_scheduler_trynode_latency_milliseconds",
        "Seconds for each placement: an equal part of its slice.",
        timings.upstream_placements,
    )
    yield make_histogram(
        "yunikorn_scheduler_trynode_evaluation_milliseconds",
        "Seconds for walks over all nodes: always none, a search ends with the first node that will do.",
        _NEVER,
    )
    yield make_histogram(
        "yunikorn_scheduler_trypreemption_latency_milliseconds",
        "Seconds for each attempt to preempt: an equal part of its slice, so at most that.",
        timings.upstream_attempts,
    )
    yield from _events(sources)


def older_families() -> Iterable[Metric]:
    """Returns metrics with names of the Go runtime that mean the same here, for dashboards that use them."""
    yield make_gauge("go_goroutines", "Tasks of the event loop.", len(asyncio.all_tasks()))
    yield make_gauge("go_threads", "Threads of the process.", threading.active_count())


def _usage_buckets(partitions: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """Returns the numbers of nodes by decile of usage and resource type, summed over *partitions*."""
    found = {name: [0] * len(RANGES) for name in ALWAYS}
    for usage in partitions:
        for name, deciles in usage.items():
            if name in found or len(found) < TYPES_SHOWN:
                known = found.get(name) or [0] * len(RANGES)
                found[name] = [one + other for one, other in zip(known, deciles, strict=True)]
    by_metric: dict[str, list[int]] = {}
    for name, deciles in found.items():
        known = by_metric.get(sanitise_name(name)) or [0] * len(RANGES)
        by_metric[sanitise_name(name)] = [one + other for one, other in zip(known, deciles, strict=True)]
    return by_metric


def _events(sources: Sources) -> Iterable[Metric]:
    """Returns the counters of events, which YuniKorn counts but does not publish."""
    made = sources.events.events.next_id
    for name, text, value in (
        ("created", "Events that happened.", made),
        ("channeled", "Events handed on to be kept.", made),
        ("not_channeled", "Events lost before that: none ever.", 0),
        ("processed", "Events dealt with.", made),
        ("stored", "Events put into the ring.", made),
        ("not_stored", "Events that the ring did not take: none ever.", 0),
        ("collected", "Events sent to the shim.", sources.service.events_sent),
    ):
        yield make_gauge(f"yunikorn_event_total_{name}", text, value)
