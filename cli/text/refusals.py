"""Writes refusals as text for a terminal."""

from __future__ import annotations

from kornel.cli.text.lines import join_lines
from kornel.cli.text.tables import format_table
from kornel.cli.text.times import format_moment
from kornel.shared.readable_amounts import format_count
from kornel.v1 import read_pb2 as pb


def render_refusals(found: pb.ListRefusalsResponse, now_ns: int) -> str:
    """Returns how many of each kind were refused since the core started, and a row for each refusal."""
    if not any(found.counts.values()):
        return "nothing has been refused since the core started"
    counts = ", ".join(format_count(found.counts[kind], kind) for kind in sorted(found.counts) if found.counts[kind])
    rows = [("when", "kind", "name", "application", "manager", "reason", "because")]
    rows += [
        (
            format_moment(refusal.at_ns, now_ns),
            pb.RefusalKind.Name(refusal.kind).removeprefix("REFUSAL_KIND_").lower(),
            refusal.name,
            refusal.application_id if refusal.application_id != refusal.name else "",
            refusal.rm_id,
            refusal.reason,
            refusal.message.partition("\n")[0],
        )
        for refusal in found.refusals
    ]
    heading = f"refused since the core started: {counts}"
    return join_lines([heading, "", *format_table(rows, ("application", "manager"))])
