"""The history as text for a terminal: a line for each record, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from kornel.core.cli.text.lines import join_lines
from kornel.core.cli.text.quantities import format_quantities
from kornel.core.cli.text.tables import format_table
from kornel.si.v1 import si_pb2
from kornel.v1 import configuration_pb2
from kornel.v1 import history_pb2 as pb

_SECOND_NS: Final = 10**9
_NOTHING: Final = "nothing in this range"


def render_applications(records: Sequence[pb.ApplicationRecord]) -> str:
    """Returns a line for each state entered: when, by which application, and how long after its submission."""
    heading = ("when", "application", "state", "age", "queue", "user", "why")
    rows = [
        (
            _format_time(each.at_ns),
            each.application_id,
            each.state,
            f"{(each.at_ns - each.submitted_ns) / _SECOND_NS:.1f}s" if each.submitted_ns else "-",
            each.queue or "-",
            each.user or "-",
            each.message or "-",
        )
        for each in records
    ]
    return _render_table(heading, rows)


def render_preemptions(records: Sequence[pb.PreemptionRecord]) -> str:
    """Returns a line for each victim: when it was preempted, by which kind and laws, and for which ask."""
    heading = ("when", "kind", "laws", "outcome", "victim", "victim's queue", "node", "for", "its queue")
    rows = [
        (
            _format_time(each.at_ns),
            each.kind,
            " ".join(map(str, each.laws)) or "-",
            each.outcome,
            each.victim.allocation_key or "-",
            each.victim.queue or "-",
            each.victim.node_id or each.node_id or "-",
            each.for_allocation_key or "-",
            each.for_queue or "-",
        )
        for each in records
    ]
    return _render_table(heading, rows)


def render_events(records: Sequence[pb.HistoryEvent]) -> str:
    """Returns a line for each event."""
    kinds = si_pb2.EventRecord
    heading = ("when", "type", "object", "change", "detail", "with", "amounts", "message")
    rows = [
        (
            _format_time(each.at_ns),
            _name_of(kinds.Type, each.type),
            each.object_id,
            _name_of(kinds.ChangeType, each.change),
            _name_of(kinds.ChangeDetail, each.detail),
            each.reference_id or "-",
            format_quantities(each.resources),
            each.message or "-",
        )
        for each in records
    ]
    return _render_table(heading, rows)


def render_configurations(records: Sequence[pb.ConfigurationRecord]) -> str:
    """Returns a line for each configuration: when, by whom, and with what result. A version's number counts within its
    run."""
    origin = configuration_pb2.ConfigurationVersion.Origin
    heading = ("when", "run", "version", "by", "who", "for", "checksum", "result")
    rows = [
        (
            _format_time(each.version.at_ns),
            f"{each.id.run:016x}"[-8:],
            str(each.version.number),
            origin.Name(each.version.origin).removeprefix("ORIGIN_").lower(),
            each.version.principal or "-",
            each.version.rm_id or "-",
            each.version.checksum[:12] or "-",
            f"applied{f'; {each.version.note}' if each.version.note else ''}"
            if each.version.applied
            else f"refused: {(each.version.reason.splitlines() or ['?'])[0]}",
        )
        for each in records
    ]
    return _render_table(heading, rows)


def render_history_status(status: pb.GetHistoryStatusResponse) -> str:
    """Returns several lines about the state of the history."""
    if not status.enabled:
        return "no history is kept"
    problem = f"{status.problem}, since {_format_time(status.problem_since_ns)}" if status.problem else "none"
    share = 100 * status.spool_bytes / status.spool_limit_bytes if status.spool_limit_bytes else 0
    return join_lines(
        [
            f"database     {status.database}",
            f"problem      {problem}",
            f"stored       {status.stored} records of this run",
            f"committed    {status.committed}, last {_format_time(status.last_commit_ns)}",
            f"spool        {status.spool_bytes} bytes, {share:.0f} % of what it may hold",
            f"in memory    {status.queued}",
            f"lost         {status.dropped} without room, {status.refused} refused by the database",
            f"set aside    {status.set_aside} in {status.set_aside_in}" if status.set_aside else "set aside    nothing",
        ]
    )


def _render_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return join_lines(format_table([heading, *rows])) if rows else _NOTHING


def _format_time(at_ns: int) -> str:
    if not at_ns:
        return "never"
    return datetime.fromtimestamp(at_ns // _SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _name_of(names: type, number: int) -> str:
    try:
        return str(names.Name(number))  # type: ignore[attr-defined]  # every enum of the stubs has it
    except ValueError:
        return str(number)
