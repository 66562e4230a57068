"""Explained headroom as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kornel.v1.status_pb2 import ExplainQueueResponse, ExplainUserResponse, QueueBound

from core.cli.text.quantities import quantities, quantity
from core.cli.text.tables import table


def render_queue(found: ExplainQueueResponse) -> str:
    """Several lines: the queue, its levels from the root down, and what bounds it."""
    return "\n".join(_lines(found))


def render_user(found: ExplainUserResponse) -> str:
    """Several lines: the user, the limits that bind it from the root down, and the tightest one."""
    lines = [f"user {found.user}: {found.application_count} applications hold {quantities(found.used)}", ""]
    if not found.levels:
        return "\n".join([*lines, "no limit binds this user"])
    rows = [("level", "who", "limit", "used", "headroom", "apps")]
    for level in found.levels:
        most = level.max_applications or "any number"
        rows.append(
            (
                level.path,
                f"{level.kind} {level.name}",
                quantities(level.max),
                quantities(level.used),
                quantities(level.headroom),
                f"{level.application_count} of {most}",
            )
        )
    lines += [*table(rows), ""]
    if found.HasField("tightest"):
        lines.append(f"tightest: {found.tightest.type} at {found.tightest.path}, {_left(found.tightest)}")
    return "\n".join(lines)


def _lines(found: ExplainQueueResponse) -> Iterator[str]:
    state = "" if found.state == "Active" else f", {found.state.lower()}"
    yield f"queue {found.path} ({'leaf' if found.leaf else 'parent'}{state})"
    yield ""
    yield from table(
        [
            ("level", "guaranteed", "max", "used", "pending", "headroom"),
            *(
                (
                    level.path,
                    quantities(level.guaranteed),
                    quantities(level.max),
                    quantities(level.used),
                    quantities(level.pending),
                    quantities(level.headroom),
                )
                for level in reversed(found.levels)
            ),
        ]
    )
    yield ""
    for bound in found.bounds:
        yield f"  {bound.type}: {_left(bound)}"
    if not found.HasField("tightest"):
        yield "nothing bounds this queue"
    else:
        yield f"tightest: {found.tightest.type} at {found.tightest.path}, {_left(found.tightest)}"


def _left(bound: QueueBound) -> str:
    left, most = quantity(bound.type, abs(bound.left)), quantity(bound.type, bound.max)
    return f"{left} {'above' if bound.left < 0 else 'left of'} the max {most} of {bound.path}"
