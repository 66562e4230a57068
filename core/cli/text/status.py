"""A core's status as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from kornel.core.cli.text.lines import indent_further, join_lines
from kornel.core.cli.text.quantities import format_quantities
from kornel.core.cli.text.tables import format_table
from kornel.v1.status_pb2 import ExplainAskResponse, GetStatusResponse, PartitionStatus, QueueStatus, UserStatus

_DRAINED_SHOWN: Final = 20
"""The number of drained nodes that are named; the others are counted."""


def render_status(status: GetStatusResponse) -> str:
    """Returns several lines: the core, then each partition with its queues."""
    lines = [
        f"core {status.core_version}, resource manager {status.rm_id or 'none'}",
        f"configuration {_describe_configuration(status)}",
    ]
    lines += _presence_lines(status)
    if status.HasField("rollback"):
        held = status.rollback
        texts = "text" if held.kept_out == 1 else "texts"
        kept_out = f", {held.kept_out} {texts} kept out since" if held.kept_out else ""
        lines.append(
            f"rollback to version {held.version} by {held.principal} holds since {_format_time(held.since_ns)}"
            f"{kept_out} (`kornel config rollback --undo` ends it)"
        )
    if status.configuration_problem:
        lines += indent_further(f"configuration file not applied: {status.configuration_problem}")
    for partition in status.partitions:
        lines += ["", *_partition_lines(partition)]
    return join_lines(lines)


def _presence_lines(status: GetStatusResponse) -> Iterator[str]:
    if status.HasField("presence") and status.presence.HasField("no_stream_since_ns"):
        gone = ": it counts as gone, and nothing that is decided reaches it" if status.presence.gone else ""
        yield f"no stream open since {_format_time(status.presence.no_stream_since_ns)}{gone}"


def _describe_configuration(status: GetStatusResponse) -> str:
    if not status.configuration_checksum:
        return "none"
    return f"{status.configuration_checksum}, version {status.configuration_version}"


def render_explanation(key: str, ask: ExplainAskResponse) -> str:
    """Returns several lines: the ask, then what kept it from being placed."""
    where = f" on {ask.node_id}" if ask.node_id else ""
    lines = [f"{key}: {ask.state}{where}", f"application {ask.application_id}, queue {ask.queue}"]
    if ask.failures:
        rows = [(f"{failure.count}x", _format_time(failure.last_ns), failure.message) for failure in ask.failures]
        lines += ["", *format_table([("count", "last", "not placed because"), *rows])]
    return join_lines(lines)


def _format_time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _partition_lines(partition: PartitionStatus) -> Iterator[str]:
    yield f"partition {partition.name}"
    yield (
        f"  {partition.node_count} nodes, {partition.pending_ask_count} asks pending,"
        f" {partition.allocation_count} allocations, {partition.reservation_count} reservations"
    )
    yield f"  total {format_quantities(partition.total)}"
    yield from _drained_lines(partition)
    yield (
        f"  preemption: {partition.preemption_triggered} of {partition.preemption_attempts} attempts triggered;"
        f" {partition.law_violations} of {partition.law_checks} law checks failed"
    )
    yield from _preemption_lines(partition)
    if partition.invariant_violations:
        yield f"  {partition.invariant_violations} accounting checks failed"
    if partition.queues:
        yield ""
        yield from format_table(
            [
                ("queue", "apps", "used", "pending", "guaranteed", "max", "preempted"),
                *(_queue_row(queue) for queue in partition.queues),
            ]
        )
    if partition.users:
        yield ""
        yield from format_table([("user", "apps", "used"), *(_user_row(user) for user in partition.users)])


def _drained_lines(partition: PartitionStatus) -> Iterator[str]:
    """Yields the nodes that operators keep out, and how to have them back."""
    for node in partition.drained_nodes[:_DRAINED_SHOWN]:
        known = "" if node.registered else ", not registered now"
        yield f"  drained: {node.node_id} by {node.principal} since {_format_time(node.since_ns)}{known}"
    more = len(partition.drained_nodes) - _DRAINED_SHOWN
    if more > 0:
        yield f"  drained: and {more} more nodes"


def _preemption_lines(partition: PartitionStatus) -> Iterator[str]:
    """Yields what is out of the ordinary: pauses, kinds that only watch, stuck victims, the monitor where it is on."""
    governor = partition.governor
    if governor.shadow:
        yield f"  governor: {', '.join(governor.shadow)} only watch"
    for scope in governor.scopes:
        if scope.HasField("paused_until_ns"):
            if scope.kind == "interval":
                until = _format_time(scope.paused_until_ns)
                yield f"  preemption: {scope.name} held back by the limit of one interval until {until}"
                continue
            where = f"{scope.kind} {scope.name}".strip()
            taken = f"{scope.victims} victims in {governor.window_ns // 1_000_000_000} s"
            yield f"  governor: preemption paused in {where} until {_format_time(scope.paused_until_ns)}, {taken}"
    if partition.HasField("monitor"):
        monitor = partition.monitor
        what = "watches" if monitor.observe_only else f"{monitor.at_risk_allocations} allocations at risk"
        yield f"  monitor: {monitor.rounds} rounds, {what}"
    for victim in partition.stuck_victims:
        yield f"  stuck: {victim.key} of {victim.queue} does not leave {victim.node_id}"


def _user_row(user: UserStatus) -> tuple[str, ...]:
    return (user.user, str(user.application_count), format_quantities(user.used))


def _queue_row(queue: QueueStatus) -> tuple[str, ...]:
    return (
        queue.path + ("" if queue.state == "Active" else f" ({queue.state.lower()})"),
        str(queue.application_count),
        format_quantities(queue.used),
        format_quantities(queue.pending),
        format_quantities(queue.guaranteed),
        format_quantities(queue.max),
        str(queue.preempted_allocations),
    )
