"""Writes the headroom of a queue or a user, with all its bounds, as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import format_quantities, format_quantity
from kornel.cli.text.tables import format_table, list_items, wrap_text
from kornel.cli.text.times import format_moment
from kornel.shared.readable_amounts import format_count
from kornel.v1.status_pb2 import ExplainQueueResponse, ExplainUserResponse, LimitLevel, QueueAboveMax, QueueBound


def render_queue(found: ExplainQueueResponse, now_ns: int) -> str:
    """Returns several lines: the queue, its levels from the root down, its tightest bound, and its properties."""
    said = [line for name, value in sorted(found.properties.items()) for line in wrap_text(f"{name}: {value}")]
    return join_lines([*_queue_lines(found, now_ns), *(["", *said] if said else [])])


def render_user(found: ExplainUserResponse) -> str:
    """Returns several lines: the user, the limits that bind it from the root down, and the tightest one."""
    applications = format_count(found.application_count, "application")
    holding = f"{applications} {'holds' if found.application_count == 1 else 'hold'} {format_quantities(found.used)}"
    lines = [*wrap_text(f"user {found.user}: {holding}"), ""]
    if not found.levels:
        return join_lines([*lines, "no limit binds this user"])
    limits: dict[str, Callable[[LimitLevel], str]] = {
        "level": lambda level: level.path,
        "who": lambda level: f"{level.kind} {level.name}",
        "limit": lambda level: format_quantities(level.max),
        "used": lambda level: format_quantities(level.used),
        "headroom": lambda level: format_quantities(level.headroom),
        "apps": lambda level: f"{level.application_count} of {level.max_applications or 'any number'}",
    }
    lines += [*list_items(found.levels, limits), ""]
    if found.HasField("tightest"):
        lines.append(f"tightest: {found.tightest.type} at {found.tightest.path}, {_describe_left(found.tightest)}")
    return join_lines(lines)


def _queue_lines(found: ExplainQueueResponse, now_ns: int) -> Iterator[str]:
    state = "" if found.state == "Active" else f", {found.state.lower()}"
    yield f"queue {found.path} ({'leaf' if found.leaf else 'parent'}{state})"
    yield ""
    amounts = ("guaranteed", "max", "used", "pending", "headroom")
    rows = [(level.path, *(format_quantities(getattr(level, name)) for name in amounts)) for level in found.levels]
    yield from format_table([("level", *amounts), *reversed(rows)])
    for above in found.above_max:
        yield ""
        yield from _above_max_lines(above, now_ns)
    for work in found.wasted:
        yield ""
        lost = format_quantities(work.resources)
        yield from wrap_text(f"work lost by preemption, {work.kind}, in resource-seconds: {lost}")
    yield ""
    for bound in found.bounds:
        yield from wrap_text(f"{bound.type}: {_describe_left(bound)}", indent="  ")
    if not found.HasField("tightest"):
        yield "nothing bounds this queue"
    else:
        yield from wrap_text(
            f"tightest: {found.tightest.type} at {found.tightest.path}, {_describe_left(found.tightest)}"
        )


def _above_max_lines(above: QueueAboveMax, now_ns: int) -> Iterator[str]:
    since = format_moment(above.since_ns, now_ns)
    yield from wrap_text(f"{above.path} is {format_quantities(above.above)} above its max since {since}")
    if above.leaving:
        yield from wrap_text(f"leaving: {format_quantities(above.leaving)}", indent="  ")
    due = f", at {format_moment(above.due_ns, now_ns)}" if above.HasField("due_ns") else ""
    yield from wrap_text(f"{above.course}{due}", indent="  ")
    for reason in above.protected_by:
        yield from wrap_text(reason, indent="  ")


def _describe_left(bound: QueueBound) -> str:
    left, most = format_quantity(bound.type, abs(bound.left)), format_quantity(bound.type, bound.max)
    return f"{left} {'above' if bound.left < 0 else 'left of'} the max {most} of {bound.path}"
