"""Explained headroom as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kornel.v1.status_pb2 import ExplainQueueResponse, ExplainUserResponse, QueueBound

from core.service.text_table import amounts_text, table


def render_queue(found: ExplainQueueResponse) -> str:
    """Several lines: the queue, its levels from the root down, and what bounds it."""
    return "\n".join(_lines(found))


def render_user(found: ExplainUserResponse) -> str:
    """Several lines: the user, the limits that bind it from the root down, and the tightest one."""
    lines = [f"user {found.user}: {found.application_count} applications hold {amounts_text(found.used)}", ""]
    if not found.levels:
        return "\n".join([*lines, "no limit binds this user"])
    rows = [("level", "who", "limit", "used", "headroom", "apps")]
    for level in found.levels:
        most = level.max_applications or "any number"
        rows.append(
            (
                level.path,
                f"{level.kind} {level.name}",
                amounts_text(level.max),
                amounts_text(level.used),
                amounts_text(level.headroom),
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
                    amounts_text(level.guaranteed),
                    amounts_text(level.max),
                    amounts_text(level.used),
                    amounts_text(level.pending),
                    amounts_text(level.headroom),
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
    if bound.left < 0:
        return f"{-bound.left} above the max {bound.max} of {bound.path}"
    return f"{bound.left} left of the max {bound.max} of {bound.path}"
