"""Makes Kornel's own metrics of what the engine decides and holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from prometheus_client.core import Metric

from kornel.core.domain.devices import WHOLE
from kornel.core.metrics.families import make_counters, make_gauge, make_gauges, make_histogram
from kornel.core.metrics.queue_series import TYPES_SHOWN
from kornel.core.metrics.sources import Scrape, Sources
from kornel.core.preemption.registry import laws_of
from kornel.core.service.machine.clock import SECOND_NS
from kornel.core.telling.partitions.device_gauges import STATES
from kornel.core.telling.partitions.partition_gauges import Amounts, DomainGauges, PartitionGauges

ABOVE_MAX_SHOWN: Final = 200
"""The most queues above their max that have series of their own."""


def engine_families(sources: Sources, scrape: Scrape) -> Iterable[Metric]:
    """Yields the metrics of the engine."""
    yield from _scheduling_metrics(sources, scrape)
    yield from _preemption_metrics(sources, scrape)
    yield from _governor_metrics(scrape)
    yield from _topology_metrics(scrape)
    yield from _device_metrics(scrape)


def _scheduling_metrics(sources: Sources, scrape: Scrape) -> Iterable[Metric]:
    timings = sources.measures.timings
    yield make_histogram("kornel_scheduling_cycle_seconds", "How long a cycle of scheduling took.", timings.cycles)
    yield make_histogram("kornel_scheduling_slice_seconds", "How long one slice of a cycle took.", timings.slices)
    yield make_histogram("kornel_command_seconds", "How long it took to apply one request.", timings.commands)
    yield make_histogram(
        "kornel_placement_seconds", "How long a placement took: an equal part of its slice.", timings.placements
    )
    for name, text, value in (
        ("nodes", "Nodes.", lambda p: p.nodes),
        ("nodes_drained", "Nodes that operators keep out of scheduling, registered or not.", lambda p: p.drained),
        ("asks_pending", "Asks without a node.", lambda p: p.asks),
        ("allocations", "Allocations.", lambda p: p.allocations),
        ("reservations", "Asks that room is held for on a node.", lambda p: p.reservations),
    ):
        yield make_gauges(f"kornel_{name}", text, ["partition"], _by_partition(scrape, value))
    yield make_gauges(
        "kornel_claims",
        "Claims on room for asks that wait; one on several limits counts once.",
        ["partition", "kind", "reason"],
        {
            (scrape.shown_name(p.name), kind, reason): count
            for p in scrape.partitions
            for (kind, reason), count in p.claims.counts.items()
        },
    )
    yield make_gauges(
        "kornel_claims_longest_stalled_seconds",
        "How long the claim that has stalled longest has made no progress; 0: there is none.",
        ["partition"],
        _by_partition(scrape, lambda p: p.claims.longest_idle_ns / SECOND_NS),
    )


def _preemption_metrics(sources: Sources, scrape: Scrape) -> Iterable[Metric]:
    preemptions = sources.measures.decisions.preemptions
    yield make_counters(
        "kornel_preemption_attempts_total",
        "Decisions of preemption by kind and outcome; law: the one that decided alone, or was broken.",
        ["kind", "outcome", "law"],
        preemptions.attempts,
    )
    yield make_counters(
        "kornel_preemption_victims_total",
        "Allocations preempted by kind; laws: those that bind this kind.",
        ["kind", "laws"],
        {(kind, laws_of(kind)): count for kind, count in preemptions.victims.items()},
    )
    yield make_counters(
        "kornel_preemption_victim_resources_total",
        "What they held, in base units.",
        ["kind", "resource"],
        preemptions.lost,
    )
    wasted: dict[tuple[str, str, str], int] = {}
    for p in scrape.partitions:
        for (queue, kind), sums in p.wasted.items():
            for t, amount in sums.items():
                if t < TYPES_SHOWN:
                    label = queue, kind, p.types[t]
                    wasted[label] = wasted.get(label, 0) + amount
    yield make_counters(
        "kornel_preemption_wasted_resource_seconds_total",
        "Work that tasks of a queue and below lost by preemption: what they held, times how long they had run since "
        "their work was last saved, in base units.",
        ["queue", "kind", "resource"],
        wasted,
    )
    yield make_histogram(
        "kornel_preemption_attempt_seconds",
        "How long an attempt to preempt took: an equal part of its slice, so at most that.",
        sources.measures.timings.attempts,
    )
    yield make_histogram(
        "kornel_preemption_placed_seconds",
        "Time from a decision to preempt to the placement of the ask it was made for.",
        preemptions.placed,
    )
    yield make_counters(
        "kornel_preemption_triggered_asks_total",
        "Asks that preempted: placed where room was made, placed elsewhere, or gone without a node.",
        ["result"],
        preemptions.ended,
    )
    yield make_gauge(
        "kornel_preemption_triggered_asks", "Asks that preempted and have no node yet.", len(preemptions.waiting)
    )
    yield make_gauge(
        "kornel_preemption_triggered_oldest_seconds",
        "How long the ask has waited that preempted first of those without a node.",
        preemptions.oldest_wait_s(),
    )
    for name, text, value in (
        ("law_checks", "Plans of preemption checked against the laws.", lambda p: p.law_checks),
        (
            "law_violations",
            "Plans that broke a law, and were dropped, or slices without progress: always a bug.",
            lambda p: p.law_violations,
        ),
        ("gangs_placed", "Gangs all members of which were placed by one decision.", lambda p: p.gangs_placed),
        (
            "gang_plans_called_off",
            "Plans of preemption for gangs that could not become whole again and were called off.",
            lambda p: p.gang_plans_called_off,
        ),
        ("gang_members_preempted", "Members of gangs that were preempted.", lambda p: p.gang_members_preempted),
    ):
        yield make_counters(f"kornel_{name}_total", text, ["partition"], _by_partition(scrape, value))
    yield make_gauges(
        "kornel_preemption_stuck_victims",
        "Victims that have not left in time.",
        ["partition"],
        _by_partition(scrape, lambda p: p.stuck),
    )
    yield make_gauges(
        "kornel_gangs_below_minimum",
        "Task groups that run with fewer members than their minimum because some were lost.",
        ["partition"],
        _by_partition(scrape, lambda p: p.gangs_below_minimum),
    )
    yield make_gauges(
        "kornel_quota_enforcement_due",
        "Queues whose lowered max is to be enforced.",
        ["partition"],
        _by_partition(scrape, lambda p: p.quotas_due),
    )
    yield make_gauges(
        "kornel_queues_above_max",
        "Configured queues that hold more than their max, whether that is enforced or not.",
        ["partition"],
        _by_partition(scrape, lambda p: len(p.above_max)),
    )
    yield make_gauges(
        "kornel_queue_above_max",
        "What such a queue holds above its max, in base units; gone when it holds no more.",
        ["partition", "queue", "resource"],
        {
            (scrape.shown_name(p.name), path, p.types[t]): amount
            for p in scrape.partitions
            for path, over in islice(p.above_max.items(), ABOVE_MAX_SHOWN)
            for t, amount in over.items()
            if t < TYPES_SHOWN
        },
    )


def _governor_metrics(scrape: Scrape) -> Iterable[Metric]:
    yield make_counters(
        "kornel_governor_denied_total",
        "Plans that bounds against storms kept back.",
        ["partition"],
        _by_partition(scrape, lambda p: p.governor.denied),
    )
    yield make_gauges(
        "kornel_governor_paused_scopes",
        "Where preemption pauses: the cluster, queues, applications.",
        ["partition", "scope"],
        {
            (scrape.shown_name(p.name), kind): count
            for p in scrape.partitions
            for kind, count in p.governor.paused.items()
        },
    )
    yield make_gauges(
        "kornel_governor_budget_used_ratio",
        "The part of a budget that is used, in the scope that has used most of its own; 1: it is spent.",
        ["partition", "scope", "resource"],
        {
            (scrape.shown_name(p.name), use.scope, use.resource): use.used
            for p in scrape.partitions
            for use in p.governor.budgets
        },
    )


def _topology_metrics(scrape: Scrape) -> Iterable[Metric]:
    for name, text, amounts in (
        ("capacity", "What the nodes of a zone, rack or other domain have, in base units.", lambda d: d.capacity),
        ("free", "What is free on those of its nodes that take work.", lambda d: d.free),
        ("held", "Part of that, held for asks that wait for it.", lambda d: d.held),
    ):
        yield make_gauges(
            f"kornel_domain_{name}",
            text,
            ["partition", "level", "domain", "resource"],
            _by_domain(scrape, amounts),
        )
    yield make_gauge(
        "kornel_metrics_domains_omitted",
        "Domains of inner levels without series of their own: too many.",
        sum(p.domains_omitted for p in scrape.partitions),
    )


def _device_metrics(scrape: Scrape) -> Iterable[Metric]:
    found = [(scrape.shown_name(partition.name), each) for partition in scrape.partitions for each in partition.devices]
    yield make_gauges(
        "kornel_devices",
        "Devices of nodes: free, shared, full; closed on nodes that take no work; leaving once no longer reported.",
        ["partition", "type", "state"],
        {(name, each.type, state): n for name, each in found for state, n in zip(STATES, each.states, strict=True)},
    )
    yield make_gauges(
        "kornel_devices_free",
        "What is free on nodes that take work, in devices: whole ones, and parts of those that others share.",
        ["partition", "type", "kind"],
        {(name, each.type, "whole"): each.whole for name, each in found}
        | {(name, each.type, "parts"): each.parts / WHOLE for name, each in found},
    )
    yield make_gauges(
        "kornel_devices_linked_free_most",
        "The most free whole devices that are linked with each other.",
        ["partition", "type"],
        {(name, each.type): each.linked for name, each in found},
    )


def _by_domain(scrape: Scrape, amounts_of: Callable[[DomainGauges], Amounts]) -> dict[tuple[str, str, str, str], float]:
    return {
        (scrape.shown_name(partition.name), domain.level, domain.name, name): amount
        for partition in scrape.partitions
        for domain in partition.domains
        for name, whole, amount in zip(partition.types, domain.capacity, amounts_of(domain), strict=False)
        if whole
    }


def _by_partition(scrape: Scrape, value: Callable[[PartitionGauges], float]) -> dict[str, float]:
    return {scrape.shown_name(partition.name): value(partition) for partition in scrape.partitions}
