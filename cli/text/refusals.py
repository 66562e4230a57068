"""Writes refusals as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kornel.cli.text.lines import join_lines
from kornel.cli.text.tables import list_items
from kornel.cli.text.times import format_moment
from kornel.shared.readable_amounts import format_count
from kornel.v1 import read_pb2 as pb


def render_refusals(found: pb.ListRefusalsResponse, now_ns: int) -> str:
    """Returns how many of each kind were refused since the core started, and a row for each refusal."""
    if not any(found.counts.values()):
        return "nothing has been refused since the core started"
    counts = ", ".join(format_count(found.counts[kind], kind) for kind in sorted(found.counts) if found.counts[kind])
    return join_lines([f"refused since the core started: {counts}", "", *list_refused(found.refusals, now_ns)])


def list_refused(refusals: Sequence[pb.Refusal], now_ns: int) -> list[str]:
    """Returns a row for each of *refusals*."""
    cells: dict[str, Callable[[pb.Refusal], str]] = {
        "when": lambda each: format_moment(each.at_ns, now_ns),
        "kind": lambda each: pb.RefusalKind.Name(each.kind).removeprefix("REFUSAL_KIND_").lower(),
        "name": lambda each: each.name,
        "application": lambda each: each.application_id if each.application_id != each.name else "",
        "manager": lambda each: each.rm_id,
        "reason": lambda each: each.reason,
        "because": lambda each: each.message.partition("\n")[0],
    }
    return list(list_items(refusals, cells, ("application", "manager")))
