"""Writes the status of a core as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from kornel.cli.text.lines import indent_further, join_lines
from kornel.cli.text.quantities import format_quantities
from kornel.cli.text.tables import format_table, list_items, wrap_text
from kornel.cli.text.times import format_moment
from kornel.cli.text.users import user_rows
from kornel.shared.readable_amounts import format_count
from kornel.v1.status_pb2 import (
    DrainedNode,
    ExplainAskResponse,
    GetStatusResponse,
    ManagerStatus,
    PartitionStatus,
    QueueStatus,
)

QUEUES_LISTED: Final = 20
"""The most queues that are shown one by one. If there are more, only the topmost ones and the number of all queues are
shown."""

_DRAINED_SHOWN: Final = 20
_DRAINED_NAMED: Final = 3
"""The most lines about drained nodes, and the most nodes that one names; the others are counted."""
_MINUTE_NS: Final = 60 * 10**9
_USERS_SHOWN: Final = 10


def render_status(status: GetStatusResponse, now_ns: int) -> str:
    """Returns several lines: the core, then each partition with its queues."""
    if len(status.managers) > 1:
        lines = wrap_text(
            f"core {status.core_version}, {format_count(len(status.managers), 'resource manager')} registered"
        )
        for manager in status.managers:
            lines += ["", *wrap_text(_describe_manager(manager)), *_manager_lines(manager, now_ns)]
    else:
        described = _describe_manager(status)
        lines = [*wrap_text(f"core {status.core_version}, {described}"), *_manager_lines(status, now_ns)]
    lines += _standing_lines(status)
    for partition in status.partitions:
        lines += ["", *_partition_lines(partition, now_ns)]
    return join_lines(lines)


def _standing_lines(status: GetStatusResponse) -> list[str]:
    """Returns the role of the core among those that share its journal; no lines if it shares its journal with none."""
    if not status.HasField("standing"):
        return []
    standing = status.standing
    leader = f"the leader is at {standing.leader_address}" if standing.leader_address else "nobody leads at the moment"
    age_s = standing.lease_age_ms / 1_000
    changes = f"epoch {standing.epoch}, lease renewed {age_s:.1f} s ago"
    match standing.role:
        case "leader":
            said = f"leads, {changes}"
        case "standby":
            records = f", {format_count(standing.records_behind, 'record')}" if standing.records_behind else ""
            said = f"stands by, {standing.behind_ms / 1_000:.1f} s{records} behind; {leader}, {changes}"
        case _:
            said = f"never leads, because it does not hold what the leader does; {leader}"
    problem = indent_further(f"journal: {standing.problem}") if standing.problem else []
    return [*wrap_text(said), *problem]


def _manager_lines(status: GetStatusResponse | ManagerStatus, now_ns: int) -> list[str]:
    """Returns the configuration of a manager, and anything unusual about the two."""
    lines = wrap_text(f"configuration {_describe_configuration(status)}")
    lines += _presence_lines(status, now_ns)
    if status.HasField("rollback"):
        held = status.rollback
        kept_out = f", {format_count(held.kept_out, 'text')} kept out since" if held.kept_out else ""
        lines += wrap_text(
            f"rollback to version {held.version} by {held.principal} holds since"
            f" {format_moment(held.since_ns, now_ns)}{kept_out} (`kornel config rollback --undo` ends it)"
        )
    if status.configuration_problem:
        lines += indent_further(f"configuration file not applied: {status.configuration_problem}")
    if isinstance(status, ManagerStatus) and status.damaged:
        lines += wrap_text("a bug of the core has left its state in doubt, see the log: its shim should register again")
    return lines


def render_explanation(key: str, ask: ExplainAskResponse, now_ns: int) -> str:
    """Returns several lines: the ask, then what kept it from being placed."""
    where = f" on {ask.node_id}" if ask.node_id else ""
    lines = [
        *wrap_text(f"{key}: {ask.state}{where}"),
        *wrap_text(f"application {ask.application_id}, queue {ask.queue}"),
    ]
    if ask.failures:
        rows = [(f"{failed.count}x", format_moment(failed.last_ns, now_ns), failed.message) for failed in ask.failures]
        lines += ["", *format_table([("count", "last", "not placed because"), *rows])]
    return join_lines(lines)


def _describe_manager(status: GetStatusResponse | ManagerStatus) -> str:
    """Returns which manager is registered, and whether its streams are open."""
    if not status.rm_id:
        return "no resource manager is registered"
    streams = status.presence.open_streams
    connected = f" is connected, {format_count(streams, 'stream')} open" if streams else ""
    return f"resource manager {status.rm_id}{connected}"


def _presence_lines(status: GetStatusResponse | ManagerStatus, now_ns: int) -> Iterator[str]:
    if status.HasField("presence") and status.presence.HasField("no_stream_since_ns"):
        gone = ": it counts as gone, and nothing that is decided reaches it" if status.presence.gone else ""
        yield from wrap_text(f"no stream open since {format_moment(status.presence.no_stream_since_ns, now_ns)}{gone}")


def _describe_configuration(status: GetStatusResponse | ManagerStatus) -> str:
    if not status.configuration_checksum:
        return "none"
    return f"version {status.configuration_version}, checksum {status.configuration_checksum}"


def _partition_lines(partition: PartitionStatus, now_ns: int) -> Iterator[str]:
    yield f"partition {partition.name}"
    yield from wrap_text(
        f"{format_count(partition.node_count, 'node')}, {format_count(partition.pending_ask_count, 'ask')} pending,"
        f" {format_count(partition.allocation_count, 'allocation')},"
        f" {format_count(partition.reservation_count, 'reservation')}",
        indent="  ",
    )
    yield from wrap_text(f"total {format_quantities(partition.total)}", indent="  ")
    yield from _drained_lines(partition, now_ns)
    yield from wrap_text(
        f"preemption: {partition.preemption_triggered} of {format_count(partition.preemption_attempts, 'attempt')}"
        f" triggered; {partition.law_violations} of {format_count(partition.law_checks, 'law check')} failed",
        indent="  ",
    )
    for line in _preemption_lines(partition, now_ns):
        yield from wrap_text(line, indent="  ")
    if partition.invariant_violations:
        yield f"  {format_count(partition.invariant_violations, 'accounting check')} failed"
    if partition.queues:
        yield ""
        yield from _queue_lines(partition)
    if partition.users:
        yield ""
        rows = user_rows(partition, "", _USERS_SHOWN)
        yield from format_table(rows)
        more = len(partition.users) - _USERS_SHOWN
        if more > 0:
            yield f"  and {format_count(more, 'more user')}: `kornel users`"


def _queue_lines(partition: PartitionStatus) -> Iterator[str]:
    """Yields the queues as a table. If there are very many, it holds those nearest to the root, and the number of the
    others follows."""
    shown = list(partition.queues)
    if len(shown) > QUEUES_LISTED:
        by_depth = sorted(shown, key=lambda queue: queue.path.count("."))[:QUEUES_LISTED]
        deepest = by_depth[-1].path.count(".")
        whole_levels = [queue for queue in shown if queue.path.count(".") < deepest]
        shown = whole_levels if len(whole_levels) > 1 else sorted(by_depth, key=lambda queue: queue.path)
    apps: Counter[str] = Counter()
    for queue in partition.queues:
        names = queue.path.split(".")
        apps.update({".".join(names[:depth]): queue.application_count for depth in range(1, len(names) + 1)})
    cells: dict[str, Callable[[QueueStatus], str]] = {
        "queue": lambda queue: queue.path + ("" if queue.state == "Active" else f" ({queue.state.lower()})"),
        "apps": lambda queue: str(apps[queue.path]),
        "used": lambda queue: format_quantities(queue.used),
        "pending": lambda queue: format_quantities(queue.pending),
        "guaranteed": lambda queue: format_quantities(queue.guaranteed),
        "max": lambda queue: format_quantities(queue.max),
        "preempted": lambda queue: str(queue.preempted_allocations),
    }
    yield from list_items(shown, cells, ("max", "guaranteed", "preempted"))
    more = len(partition.queues) - len(shown)
    if more:
        yield from wrap_text(
            f"and {format_count(more, 'more queue')} below them, {_describe_states(partition)}: `kornel queues`,"
            " `kornel top`",
            indent="  ",
        )


def _describe_states(partition: PartitionStatus) -> str:
    """Returns a phrase with the numbers of queues that have pending asks, and of queues that are draining."""
    waiting = sum(1 for queue in partition.queues if any(queue.pending.values()))
    draining = sum(1 for queue in partition.queues if queue.state != "Active")
    said = f"{waiting:,} of {len(partition.queues):,} have asks pending"
    return f"{said}, {draining:,} are draining" if draining else said


def _drained_lines(partition: PartitionStatus, now_ns: int) -> Iterator[str]:
    """Yields the nodes that operators have drained, those that one drained within the same minute in one line."""
    together: dict[tuple[str, int, bool], list[DrainedNode]] = {}
    for node in partition.drained_nodes:
        together.setdefault((node.principal, node.since_ns // _MINUTE_NS, node.registered), []).append(node)
    for (principal, _, registered), nodes in islice(together.items(), _DRAINED_SHOWN):
        known = "" if registered else ", not registered now"
        named = ", ".join(node.node_id for node in nodes[:_DRAINED_NAMED])
        more = f" and {format_count(len(nodes) - _DRAINED_NAMED, 'more node')}" if len(nodes) > _DRAINED_NAMED else ""
        since = format_moment(nodes[0].since_ns, now_ns)
        yield from wrap_text(f"drained: {named}{more} by {principal} since {since}{known}", indent="  ")
    left = sum(map(len, list(together.values())[_DRAINED_SHOWN:]))
    if left:
        yield f"  drained: and {format_count(left, 'more node')}"


def _preemption_lines(partition: PartitionStatus, now_ns: int) -> Iterator[str]:
    """Yields what is unusual about preemption: pauses, kinds that only observe, stuck victims, and the monitor if it is
    on."""
    governor = partition.governor
    if governor.shadow:
        yield f"governor: {', '.join(governor.shadow)} only {'watches' if len(governor.shadow) == 1 else 'watch'}"
    for scope in governor.scopes:
        if scope.HasField("paused_until_ns"):
            until = format_moment(scope.paused_until_ns, now_ns)
            if scope.kind == "interval":
                yield f"preemption: {scope.name} held back by the limit of one interval until {until}"
                continue
            where = f"{scope.kind} {scope.name}".strip()
            taken = f"{format_count(scope.victims, 'victim')} in {governor.window_ns // 1_000_000_000} s"
            yield f"governor: preemption paused in {where} until {until}, {taken}"
    if partition.HasField("monitor"):
        monitor = partition.monitor
        at_risk = format_count(monitor.at_risk_allocations, "allocation")
        what = "it only watches" if monitor.observe_only else f"{at_risk} at risk"
        yield f"monitor: {format_count(monitor.rounds, 'round')}, {what}"
    for victim in partition.stuck_victims:
        yield f"stuck: {victim.key} of {victim.queue} does not leave {victim.node_id}"
