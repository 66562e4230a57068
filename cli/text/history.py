"""Writes the history as text for a terminal: a line for each record, the newest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from kornel.cli.text.configuration import describe_result
from kornel.cli.text.events import name_of
from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import format_quantities, format_quantity
from kornel.cli.text.tables import list_items, wrap_text
from kornel.cli.text.times import format_age, format_moment
from kornel.shared.readable_amounts import format_count, format_time
from kornel.si.v1 import si_pb2
from kornel.v1 import configuration_pb2
from kornel.v1 import history_pb2 as pb

_SECOND_NS: Final = 10**9
RecordT = TypeVar("RecordT")
_NOTHING: Final = "nothing in this range"


def render_applications(records: Sequence[pb.ApplicationRecord]) -> str:
    """Returns a line for each state entered: when, by which application, and how long after its submission."""
    cells: dict[str, Callable[[pb.ApplicationRecord], str]] = {
        "when": lambda each: _format_time(each.at_ns),
        "application": lambda each: each.application_id,
        "state": lambda each: each.state,
        "age": lambda each: f"{(each.at_ns - each.submitted_ns) / _SECOND_NS:.1f}s" if each.submitted_ns else "-",
        "queue": lambda each: each.queue or "-",
        "user": lambda each: each.user or "-",
        "why": lambda each: each.message or "-",
    }
    return _render_table(records, cells, ("age",))


def render_preemptions(records: Sequence[pb.PreemptionRecord]) -> str:
    """Returns a line for each victim: when it was preempted, for which ask, and how soon it left."""
    cells: dict[str, Callable[[pb.PreemptionRecord], str]] = {
        "when": lambda each: _format_time(each.at_ns),
        "kind": lambda each: each.kind,
        "outcome": lambda each: each.outcome,
        "victim": lambda each: each.victim.allocation_key or "-",
        "left": _describe_departure,
        "of application": lambda each: each.victim.application_id or "-",
        "of user": lambda each: each.victim.user or "-",
        "in queue": lambda each: each.victim.queue or "-",
        "node": lambda each: each.victim.node_id or each.node_id or "-",
        "for": _name_ask,
        "its application": lambda each: each.for_application_id or "-",
        "its user": lambda each: each.for_user or "-",
        "its queue": lambda each: each.for_queue or "-",
        "laws": lambda each: " ".join(map(str, each.laws)) or "-",
    }
    spare = ("laws", "node", "kind", "its application", "of application", "its user", "of user", "outcome")
    return _render_table(records, cells, spare)


def _name_ask(each: pb.PreemptionRecord) -> str:
    """Returns the ask that room was made for; of a gang, with the number of its plan, which begins the text of the
    decision."""
    key = each.for_allocation_key or "-"
    plan, found, _ = each.detail.partition(": ")
    return f"{key} ({plan})" if found and plan.removeprefix("plan ").isdecimal() else key


def render_sums(found: pb.SumPreemptionsResponse) -> str:
    """Returns a sentence for each pair of preemptor and victims' side, the pair with most victims first."""
    lines = []
    for each in found.sums:
        held = f" ({format_quantities(each.resources)})" if each.resources else ""
        left = _describe_departures(each.left_count, each.victim_count)
        victims = format_count(each.victim_count, "allocation")
        if each.taken_by in ("", each.taken_from):
            said = f"{each.taken_from or '-'} gave up {victims} for no ask"
        else:
            said = f"{each.taken_by} took {victims} from {each.taken_from or '-'}"
        lines += wrap_text(f"{said}{held}: {left}")
    if not found.complete:
        lines += wrap_text("There are more: the oldest records, or the smallest sums, are left out.")
    return join_lines(lines) if lines else _NOTHING


def _describe_departures(left: int, told: int) -> str:
    if told == 1:
        return "it has left" if left else "the core did not see it leave"
    if left == told:
        return "all have left"
    return f"{left:,} of them {'was' if left == 1 else 'were'} seen to leave"


def _describe_departure(record: pb.PreemptionRecord) -> str:
    """Returns how long after the decision the victim was gone."""
    if not record.HasField("victim"):
        return "-"
    left_ns = record.victim.left_ns
    return f"after {format_age(left_ns - record.at_ns)}" if left_ns else "not seen"


def render_events(records: Sequence[pb.HistoryEvent]) -> str:
    """Returns a line for each event."""
    kinds = si_pb2.EventRecord
    cells: dict[str, Callable[[pb.HistoryEvent], str]] = {
        "when": lambda each: _format_time(each.at_ns),
        "type": lambda each: name_of(kinds.Type.DESCRIPTOR, each.type),
        "object": lambda each: each.object_id,
        "change": lambda each: name_of(kinds.ChangeType.DESCRIPTOR, each.change),
        "detail": lambda each: name_of(kinds.ChangeDetail.DESCRIPTOR, each.detail),
        "with": lambda each: each.reference_id or "-",
        "amounts": lambda each: format_quantities(each.resources),
        "message": lambda each: each.message or "-",
    }
    return _render_table(records, cells)


def render_configurations(records: Sequence[pb.ConfigurationRecord]) -> str:
    """Returns a line for each configuration: when, by whom, and with what result. Versions are numbered within each
    run."""
    origin = configuration_pb2.ConfigurationVersion.Origin
    cells: dict[str, Callable[[pb.ConfigurationRecord], str]] = {
        "when": lambda each: _format_time(each.version.at_ns),
        "run": lambda each: f"{each.id.run:016x}"[-8:],
        "version": lambda each: str(each.version.number),
        "how": lambda each: origin.Name(each.version.origin).removeprefix("ORIGIN_").lower(),
        "by": lambda each: each.version.principal or "-",
        "for": lambda each: each.version.rm_id or "-",
        "checksum": lambda each: each.version.checksum[:12] or "-",
        "result": lambda each: describe_result(each.version),
    }
    return _render_table(records, cells)


def render_history_status(status: pb.GetHistoryStatusResponse, now_ns: int) -> str:
    """Returns several lines about the state of the history."""
    if not status.enabled:
        return "the core keeps no history"
    problem = f"{status.problem}, since {format_moment(status.problem_since_ns, now_ns)}" if status.problem else "none"
    share = 100 * status.spool_bytes / status.spool_limit_bytes if status.spool_limit_bytes else 0
    return join_lines(
        [
            f"database     {status.database}",
            f"problem      {problem}",
            f"stored       {format_count(status.stored, 'record')} of this run",
            f"committed    {status.committed}, last {_describe_commit(status, now_ns)}",
            f"spool        {format_quantity('memory', status.spool_bytes)}B, {share:.0f} % of what it may hold",
            f"in memory    {status.queued}",
            f"lost         {status.dropped} without room, {status.refused} refused by the database",
            f"set aside    {status.set_aside} in {status.set_aside_in}" if status.set_aside else "set aside    nothing",
        ]
    )


def _describe_commit(status: pb.GetHistoryStatusResponse, now_ns: int) -> str:
    return format_moment(status.last_commit_ns, now_ns) if status.last_commit_ns else "never"


def _render_table(
    records: Sequence[RecordT], cells: Mapping[str, Callable[[RecordT], str]], spare: Sequence[str] = ()
) -> str:
    return join_lines(list_items(records, cells, spare)) if records else _NOTHING


def _format_time(at_ns: int) -> str:
    if not at_ns:
        return "never"
    return format_time(at_ns)
