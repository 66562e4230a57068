"""Writes queues, applications, nodes and health as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from kornel.cli.text.explain import describe_blocker, say_who_drains
from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import (
    Strokes,
    draw_bar,
    format_percent,
    format_quantities,
    format_quantity,
    types_in_order,
)
from kornel.cli.text.tables import Rows, fit_table, format_table, list_items, make_rows, wrap_text
from kornel.cli.text.times import format_age
from kornel.v1 import read_pb2 as pb
from kornel.v1.history_pb2 import UsagePoint

_DEVICES: Final = "kornel.devices"
"""The attribute of a node that lists its devices, which are shown as a table instead."""

BARS: Final = (16, 10, 6, 0)
"""The possible lengths of bars, longest first. A table uses the first length with which it fits the terminal."""


def render_queues(
    queues: Sequence[pb.QueueInfo],
    strokes: Strokes,
    types: Sequence[str] = (),
    above: Sequence[pb.QueueInfo] = (),
) -> str:
    """Returns a tree of *queues* with a bar for each of *types*, by default the first two types of the cluster.

    A full bar is the max of its queue, or of the nearest queue above that has one; the mark is the guarantee. *above*
    are the ancestors of the first queue, the root first.
    """
    if not queues:
        return "no queues"
    limits = {name: most for queue in above for name, most in queue.max.items()}
    shown = list(types) or types_in_order([limits, queues[0].max, queues[0].used])[:2]
    names = dict(zip([queue.path for queue in queues], _draw_branches(queues, strokes), strict=True))

    def rows_with(bar: int) -> Rows:
        whole: dict[str, dict[str, int]] = {}
        rows = [("queue", "running", *(name for name in shown))]
        for queue in queues:
            whole[queue.path] = most = {**whole.get(queue.path.rpartition(".")[0], limits), **queue.max}
            name = names[queue.path] + ("" if queue.status == "Active" else f" ({queue.status.lower()})")
            uses = (describe_use(queue, most, t, strokes, bar) for t in shown)
            rows.append((name, str(queue.running_application_count), *uses))
        return rows

    return join_lines(fit_table(rows_with, BARS, ("running",)))


def queues_above(queues: Sequence[pb.QueueInfo], path: str) -> list[pb.QueueInfo]:
    """Returns the ancestors of the queue at *path*, the root first. *queues* must have parents before their
    children."""
    return [queue for queue in queues if path.startswith(f"{queue.path}.")]


def describe_use(
    queue: pb.QueueInfo | UsagePoint, most: Mapping[str, int], name: str, strokes: Strokes, bar: int
) -> str:
    """Returns a bar and the amounts of type *name*: ``75% 6/8 g=4 +2``."""
    used, limit = queue.used.get(name, 0), most.get(name, 0)
    own = format_quantity(name, queue.max[name]) if name in queue.max else "-"
    guaranteed = queue.guaranteed.get(name)
    drawn, part = draw_bar(used, limit, bar, strokes, guaranteed), format_percent(used, limit)
    text = f"{drawn} {part:>4} {format_quantity(name, used)}/{own}".lstrip()
    if guaranteed is not None:
        text += f" g={format_quantity(name, guaranteed)}"
    pending = queue.pending.get(name, 0)
    if pending:
        text += f" +{format_quantity(name, pending)}"
    return text


def _draw_branches(queues: Sequence[pb.QueueInfo], strokes: Strokes) -> Iterator[str]:
    """Yields the last name of each queue, behind the strokes of the tree that lead to it."""
    top = queues[0].path
    children: dict[str, str] = {queue.path.rpartition(".")[0]: queue.path for queue in queues[1:]}
    for queue in queues:
        if queue.path == top:
            yield queue.path
            continue
        above = queue.path.rpartition(".")[0]
        lines = strokes.last if children[above] == queue.path else strokes.branch
        while above != top:
            parent = above.rpartition(".")[0]
            lines = (" " * len(strokes.pass_by) if children[parent] == above else strokes.pass_by) + lines
            above = parent
        yield lines + queue.path.rpartition(".")[2]


def render_applications(found: pb.ListApplicationsResponse, now_ns: int, obstacles: Mapping[str, str]) -> str:
    """Returns a row for each application. *obstacles* holds, by ID, what keeps their oldest asks waiting."""
    if not found.applications:
        return "no applications"
    cells: dict[str, Callable[[pb.ApplicationSummary], str]] = {
        "application": lambda one: one.application_id,
        "state": lambda one: one.state,
        "queue": lambda one: one.queue,
        "user": lambda one: one.user,
        "age": lambda one: format_age((one.finished_ns or now_ns) - one.submitted_ns),
        "allocs": lambda one: str(one.allocation_count),
        "asks": lambda one: str(one.ask_count),
        "used": lambda one: format_quantities(one.used),
        "pending": lambda one: format_quantities(one.pending),
    }
    if obstacles:
        cells["waits for"] = lambda one: obstacles.get(one.application_id, "not asked" if one.ask_count else "-")
    lines = list_items(found.applications, cells, ("pending", "user", "age", "queue"))
    return join_lines([*lines, *_say_more(found)])


def render_waits(found: pb.ListWaitsResponse, by: str, now_ns: int) -> str:
    """Returns a row for each application, queue or user that waits, with the first obstacle of its oldest ask."""
    if not found.waits:
        return "nobody waits"
    cells: dict[str, Callable[[pb.Wait], str]] = {
        by or "application": lambda one: one.name,
        "applications" if by else "queue": lambda one: str(one.application_count) if by else one.queue,
        "asks": lambda one: f"{one.ask_count:,}",
        "waited": lambda one: format_age(now_ns - one.oldest_ask_ns),
        "oldest" if by else "user": lambda one: one.application_id if by else one.user,
        "waits for": lambda one: describe_blocker(one.obstacle) or "-",
    }
    left = found.wait_count - len(found.waits)
    more = [f"... and {left:,} more, see --limit"] if left else []
    return join_lines([*list_items(found.waits, cells, ("oldest", "user", "asks")), *more])


def _say_more(
    found: pb.ListApplicationsResponse | pb.ListNodesResponse | pb.ListClaimsResponse | pb.ListDomainsResponse,
) -> list[str]:
    return ["... and more, see --limit"] if found.next_page_token else []


def render_application(found: pb.GetApplicationResponse, now_ns: int) -> str:
    """Returns several lines: the application, its states, its asks, its allocations."""
    summary = found.summary
    used = format_quantities(summary.used)
    lines = [
        *wrap_text(f"{summary.application_id}: {summary.state} in {summary.queue}"),
        *wrap_text(f"user {summary.user}, groups {', '.join(found.groups) or '-'}", indent="  "),
        f"  submitted {format_age(now_ns - summary.submitted_ns)} ago"
        + (f", ended {format_age(now_ns - summary.finished_ns)} ago" if summary.finished_ns else ""),
        *wrap_text(
            f"used {used}; most {format_quantities(found.max_used)}; pending {format_quantities(summary.pending)}",
            indent="  ",
        ),
    ]
    if found.rejected:
        lines += wrap_text(f"rejected: {found.rejected}", indent="  ")
    if found.states:
        entered = " > ".join(f"{entry.state} ({format_age(now_ns - entry.at_ns)} ago)" for entry in found.states)
        lines += wrap_text(entered, indent="  ")
    if found.asks:
        cells: dict[str, Callable[[pb.AskInfo], str]] = {
            "ask": lambda ask: ask.key,
            "waits": lambda ask: format_age(now_ns - ask.created_ns),
            "priority": lambda ask: str(ask.priority),
            "wants": lambda ask: format_quantities(ask.resources),
            "not placed because": lambda ask: (
                ask.last_failure or ("reserved " + ask.reserved_node if ask.reserved_node else "-")
            ),
        }
        lines += ["", *list_items(found.asks, cells, ("priority",))]
    if found.allocations:
        lines += ["", *_allocation_lines(found.allocations, now_ns)]
    return join_lines(lines)


def render_nodes(found: pb.ListNodesResponse, strokes: Strokes, types: Sequence[str] = ()) -> str:
    """Returns a row for each node with a bar for each of *types*, by default the first two types."""
    if not found.nodes:
        return "no nodes"
    shown = list(types) or types_in_order(node.capacity for node in found.nodes)[:2]

    def rows_with(bar: int) -> Rows:
        cells: dict[str, Callable[[pb.NodeSummary], str]] = {
            "node": lambda node: node.node_id,
            "state": lambda node: "ready" if node.schedulable else "draining",
            "allocs": lambda node: str(node.allocation_count),
            "reserved": lambda node: str(node.reservation_count),
        }
        for name in shown:
            cells[name] = partial(_describe_filling, name=name, strokes=strokes, bar=bar)
        return make_rows(found.nodes, cells)

    return join_lines([*fit_table(rows_with, BARS, ("reserved",)), *_say_more(found)])


def sort_stranded(found: pb.ListNodesResponse, most: int, types: Sequence[str] | None) -> pb.ListNodesResponse:
    """Returns the first *most* nodes (0: all) on which something of *types* (none: of any) is stranded, the largest
    part of what all nodes have first."""
    whole = _sum_amounts(node.capacity for node in found.nodes)
    shares = {
        node.node_id: max((n / whole[t] for t, n in node.stranded.items() if t in (types or whole)), default=0)
        for node in found.nodes
    }
    nodes = [node for node in found.nodes if shares[node.node_id]]
    nodes.sort(key=lambda node: (-shares[node.node_id], node.node_id))
    return pb.ListNodesResponse(nodes=nodes[: most or None])


def render_stranded(found: pb.ListNodesResponse, most: int, types: Sequence[str] | None) -> str:
    """Returns what is stranded: the sums by type, then by domain, then a row for each of the first *most* nodes."""
    nodes = sort_stranded(found, 0, types).nodes
    sums = _sum_amounts(node.stranded for node in nodes)
    names = [name for name in types_in_order([sums]) if name in (types or sums)]
    if not names:
        return "nothing is stranded: wherever something is free that a waiting ask wants, one of these asks fits"
    whole = _sum_amounts({t: max(0, n) for t, n in each.available.items()} for each in found.nodes if each.schedulable)
    parts = (f"{format_quantity(name, sums[name])} of {format_quantity(name, whole[name])} {name}" for name in names)
    lines = list(wrap_text(f"stranded, of what is free: {', '.join(parts)}"))
    domains = sorted({node.domain for node in nodes if node.domain})
    rows = [(each, _sum_amounts(node.stranded for node in nodes if node.domain == each)) for each in domains]
    for head, listed in (("domain", rows), ("node", [(each.node_id, each.stranded) for each in nodes[: most or None]])):
        if listed:
            cells = [(each, *(format_quantity(t, held.get(t, 0)) for t in names)) for each, held in listed]
            lines += ["", *format_table([(head, *names), *cells])]
    return join_lines(lines)


def _sum_amounts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def render_claims(found: pb.ListClaimsResponse, now_ns: int) -> str:
    """Returns a row for each claim: the ask, the place, what is kept, what is missing of it, and what it waits for."""
    if not found.claims:
        return "no room is kept for waiting asks"
    cells: dict[str, Callable[[pb.ClaimInfo], str]] = {
        "ask": lambda claim: claim.allocation_key,
        "application": lambda claim: claim.application_id,
        "on": lambda claim: claim.place if claim.place_kind == "node" else f"{claim.place_kind} {claim.place}",
        "kind": lambda claim: claim.kind,
        "reason": lambda claim: claim.reason,
        "held": lambda claim: format_quantities(claim.held),
        "missing": lambda claim: format_quantities(claim.missing),
        "victims": lambda claim: str(claim.victim_count or "-"),
        "for": lambda claim: format_age(now_ns - claim.since_ns),
        "stalled": lambda claim: format_age(claim.idle_ns) if claim.idle_ns else "-",
        "lapses in": lambda claim: format_age(claim.lapses_ns - now_ns) if claim.HasField("lapses_ns") else "-",
    }
    lines = list_items(found.claims, cells, ("application", "reason", "victims", "for"))
    return join_lines([*lines, *_say_more(found)])


def render_domains(found: pb.ListDomainsResponse, level: str, strokes: Strokes, types: Sequence[str] = ()) -> str:
    """Returns a row for each domain of *level* with a bar for each of *types*, by default the first two types.

    A bar shows how much of the schedulable nodes is not free. A last line counts the nodes that are in no domain.
    """
    if not found.domains:
        return f"no node is in a {level}"
    shown = list(types) or types_in_order(domain.capacity for domain in found.domains)[:2]

    def rows_with(bar: int) -> Rows:
        return [
            (level, "nodes", *(f"{name} free" for name in shown)),
            *(
                (
                    "/".join(domain.path),
                    _count_domain_nodes(domain),
                    *(_describe_room(domain, name, strokes, bar) for name in shown),
                )
                for domain in found.domains
            ),
        ]

    lines = list(fit_table(rows_with, BARS, ()))
    outside = next((each.outside_node_count for each in found.levels if each.name == level), 0)
    if outside:
        lines += ["", f"nodes that are in no {level}: {outside}"]
    return join_lines([*lines, *_say_more(found)])


def _count_domain_nodes(domain: pb.DomainInfo) -> str:
    draining = domain.node_count - domain.schedulable_node_count
    return f"{domain.node_count}, {draining} draining" if draining else str(domain.node_count)


def _describe_room(domain: pb.DomainInfo, name: str, strokes: Strokes, bar: int) -> str:
    """Returns a bar and the amounts of type *name* that are free for anybody, such as ``12 of 16``, and what is held
    for waiting asks."""
    held, whole = domain.held.get(name, 0), domain.capacity.get(name, 0)
    free = domain.free.get(name, 0) - held
    drawn = draw_bar(whole - free, whole, bar, strokes)
    text = f"{drawn} {format_quantity(name, free)} of {format_quantity(name, whole)}".lstrip()
    return f"{text}, {format_quantity(name, held)} held" if held else text


def _describe_filling(node: pb.NodeSummary, name: str, strokes: Strokes, bar: int) -> str:
    used, whole = node.allocated.get(name, 0) + node.occupied.get(name, 0), node.capacity.get(name, 0)
    drawn, part = draw_bar(used, whole, bar, strokes), format_percent(used, whole)
    return f"{drawn} {part:>4} {format_quantity(name, used)}/{format_quantity(name, whole)}".lstrip()


def render_node(found: pb.GetNodeResponse, now_ns: int) -> str:
    """Returns several lines: the node, then its allocations."""
    summary, drained = found.summary, say_who_drains(found, now_ns)
    state = "ready" if summary.schedulable else "draining"
    lines = [
        *wrap_text(f"{summary.node_id}: {state}{drained and f', {drained}'}"),
        *wrap_text(f"capacity {format_quantities(summary.capacity)}", indent="  "),
        *wrap_text(
            f"allocated {format_quantities(summary.allocated)}; others {format_quantities(summary.occupied)}",
            indent="  ",
        ),
        *wrap_text(f"available {format_quantities(summary.available)}", indent="  "),
        *wrap_text(f"room held for {', '.join(found.reservations) or 'nobody'}", indent="  "),
    ]
    if found.attributes:
        shown = {key: value for key, value in found.attributes.items() if key != _DEVICES}
        lines += wrap_text(" ".join(f"{key}={shown[key]}" for key in sorted(shown)), indent="  ")
    if found.devices:
        lines += ["", *format_table(_device_rows(found.devices), ("memory", "type"))]
    if found.allocations:
        lines += ["", *_allocation_lines(found.allocations, now_ns)]
    return join_lines(lines)


def _device_rows(devices: Sequence[pb.DeviceInfo]) -> Rows:
    """Returns a row for each device, with its holders and their shares."""
    cells: dict[str, Callable[[pb.DeviceInfo], str]] = {
        "device": lambda one: one.device_id,
        "type": lambda one: one.type or "-",
        "memory": lambda one: format_quantity("memory", one.memory) if one.memory else "-",
        "link": lambda one: one.link or "-",
        "free": lambda one: _write_share(one.free) + (", leaving" if one.leaving else ""),
        "held by": lambda one: ", ".join(f"{each.key} {_write_share(each.share)}" for each in one.holders) or "-",
    }
    return make_rows(devices, cells)


def _write_share(share: int) -> str:
    """Returns thousandths as a decimal fraction: ``0.25``."""
    return f"{share / 1000:.3f}".rstrip("0").rstrip(".")


def render_health(report: pb.GetHealthReportResponse) -> str:
    """Returns a row for each check."""
    cells: dict[str, Callable[[pb.HealthCheckResult], str]] = {
        "check": lambda check: f"{check.name}: {check.description}",
        "result": lambda check: "ok" if check.succeeded else "FAILED",
        "diagnosis": lambda check: check.diagnosis or "-",
    }
    return join_lines(["healthy" if report.healthy else "unhealthy", *list_items(report.checks, cells)])


def _allocation_lines(allocations: Sequence[pb.AllocationInfo], now_ns: int) -> Iterator[str]:
    cells: dict[str, Callable[[pb.AllocationInfo], str]] = {
        "allocation": lambda one: one.key,
        "application": lambda one: one.application_id,
        "node": lambda one: one.node_id,
        "age": lambda one: format_age(now_ns - one.bound_ns),
        "priority": lambda one: str(one.priority),
        "holds": lambda one: format_quantities(one.resources),
        "": lambda one: " ".join(word for word in ("placeholder", "preempted") if getattr(one, word)),
    }
    return list_items(allocations, cells, ("priority", "node"))
