"""A core's status as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from kornel.v1.status_pb2 import ExplainAskResponse, GetStatusResponse, PartitionStatus, QueueStatus


def render_status(status: GetStatusResponse) -> str:
    """Several lines: the core, then each partition with its queues."""
    lines = [
        f"core {status.core_version}, resource manager {status.rm_id or 'none'}",
        f"configuration {status.configuration_checksum or 'none'}",
    ]
    for partition in status.partitions:
        lines += ["", *_partition(partition)]
    return "\n".join(lines)


def render_explanation(key: str, ask: ExplainAskResponse) -> str:
    """Several lines: the ask, then what kept it from being placed."""
    where = f" on {ask.node_id}" if ask.node_id else ""
    lines = [f"{key}: {ask.state}{where}", f"application {ask.application_id}, queue {ask.queue}"]
    if ask.failures:
        rows = [(f"{failure.count}x", _time(failure.last_ns), failure.message) for failure in ask.failures]
        lines += ["", *_table([("count", "last", "not placed because"), *rows])]
    return "\n".join(lines)


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _partition(partition: PartitionStatus) -> Iterator[str]:
    yield f"partition {partition.name}"
    yield (
        f"  {partition.node_count} nodes, {partition.pending_ask_count} asks pending,"
        f" {partition.allocation_count} allocations, {partition.reservation_count} reservations"
    )
    yield f"  total {_amounts(partition.total)}"
    yield (
        f"  preemption: {partition.preemption_triggered} of {partition.preemption_attempts} attempts triggered;"
        f" {partition.law_violations} of {partition.law_checks} law checks failed"
    )
    if partition.invariant_violations:
        yield f"  {partition.invariant_violations} accounting checks failed"
    if partition.queues:
        yield ""
        yield from _table(
            [
                ("queue", "apps", "used", "pending", "guaranteed", "max", "preempted"),
                *(_queue(queue) for queue in partition.queues),
            ]
        )


def _queue(queue: QueueStatus) -> tuple[str, ...]:
    return (
        queue.path + ("" if queue.state == "Active" else f" ({queue.state.lower()})"),
        str(queue.application_count),
        _amounts(queue.used),
        _amounts(queue.pending),
        _amounts(queue.guaranteed),
        _amounts(queue.max),
        str(queue.preempted_allocations),
    )


def _amounts(amounts: Mapping[str, int]) -> str:
    return " ".join(f"{name}={amounts[name]}" for name in sorted(amounts)) or "-"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
