"""Explanations and forecasts as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kornel.core.cli.text.lines import join_lines
from kornel.core.cli.text.quantities import format_quantities, format_quantity
from kornel.core.cli.text.tables import format_table
from kornel.v1 import explain_pb2 as pb

MOST_VICTIMS = 10
"""The most victims named in one line."""


def render_explanation(found: pb.ExplainResponse) -> str:
    """Returns several lines, of which the first names the most important obstacle."""
    match found.WhichOneof("report"):
        case "ask":
            return join_lines(_ask_lines(found.ask))
        case "application":
            return join_lines(_application_lines(found.application))
        case _:
            return join_lines(_preempted_lines(found.lost))


def render_forecast(found: pb.WhatIfResponse) -> str:
    """Returns several lines: allocations lost, placed, preempted, waiting, and enforced maxima."""
    return join_lines(_forecast_lines(found))


def _ask_lines(ask: pb.AskReport) -> Iterator[str]:
    where = f" on {ask.node_id}" if ask.node_id else ""
    yield f"{ask.key}: {ask.state}{where}"
    yield f"application {ask.application_id}, queue {ask.queue}, priority {ask.priority}"
    yield f"{'asks for' if ask.HasField('position') else 'holds'} {format_quantities(ask.resources)}"
    if ask.HasField("position"):
        at = ask.position
        yield (
            f"position {at.application} of {at.application_of} in its application, {at.leaf} of {at.leaf_of} in its"
            f" queue, {at.partition} of {at.partition_of} in the partition"
        )
        yield ""
        if not ask.blockers:
            yield f"nothing is in its way: {ask.fitting_node_count} nodes have room"
        for number, blocker in enumerate(ask.blockers, 1):
            yield from _blocker_lines(number, blocker)
        if ask.blockers and ask.fitting_node_count:
            yield f"   {ask.fitting_node_count} nodes have room"
        yield ""
        yield from _outlook_lines(ask.preemption)
    if ask.HasField("preempted"):
        yield ""
        yield from _preempted_lines(ask.preempted)
    if ask.failures:
        yield ""
        rows = [(f"{failure.count}x", _format_time(failure.last_ns), failure.message) for failure in ask.failures]
        yield from format_table([("count", "last", "not placed because"), *rows])


def _blocker_lines(number: int, blocker: pb.Blocker) -> Iterator[str]:
    name = f" {blocker.name}" if blocker.name else ""
    if blocker.node_count > 1:
        name = f" on {blocker.node_count} nodes, closest {blocker.name}"
    for_ever = " (waiting does not help)" if blocker.permanent else ""
    until = f", until {_format_time(blocker.until_ns)}" if blocker.HasField("until_ns") else ""
    yield f"{number}. {blocker.level}: {blocker.kind}{name}: {blocker.detail}{until}{for_ever}"
    for s in blocker.shortages:
        asked, used, limit, short = (format_quantity(s.type, each) for each in (s.asked, s.used, s.limit, s.short))
        yield f"     {s.type}: {asked} asked, {used} of {limit} used, {short} short"


def _outlook_lines(found: pb.PreemptionOutlook) -> Iterator[str]:
    yield f"preemption: {found.verdict}" + (f", {found.blocked_by}" if found.blocked_by else "")
    if found.HasField("not_before_ns"):
        yield f"   may try at {_format_time(found.not_before_ns)}"
    said = found.outcome if found.outcome != "TRIGGERED" else ""
    if said or found.detail:
        yield "   " + ": ".join(part for part in (said, found.detail) if part)
    if found.victims:
        yield f"   {_join_keys(found.victims)} to leave {found.node_id}"
    for p in found.protections:
        others = f" and {p.queue_count - 1} more queues" if p.queue_count > 1 else ""
        yield f"   {p.law} protects {p.allocation_count} allocations in {p.example}{others}"


def _preempted_lines(work: pb.PreemptedWork) -> Iterator[str]:
    victim = work.victim
    yield f"{victim.key} was asked to leave {victim.node_id} at {_format_time(work.at_ns)} ({work.kind} preemption)"
    if work.taken_by:
        yield f"   for {work.taken_by} of {work.taken_by_application_id} in {work.taken_by_queue}"
    else:
        yield f"   for the sake of {work.taken_by_queue}"
    if work.law:
        yield f"   {work.law}"
    yield f"   {work.reason}"
    if work.alternatives:
        yield f"   alternatives: {work.alternatives}"


def _application_lines(found: pb.ApplicationReport) -> Iterator[str]:
    yield f"application {found.application_id}: {found.state}, user {found.user}, queue {found.queue}"
    used = format_quantities(found.used)
    yield f"{found.pending_ask_count} asks pending, {found.allocation_count} allocations, {used}"
    for group in found.groups:
        yield ""
        if group.ask_count > 1:
            yield f"{group.ask_count} equal asks, the first:"
        yield from _ask_lines(group.first)
    if found.group_count > len(found.groups):
        yield ""
        yield f"{found.group_count - len(found.groups)} more kinds of asks"
    for work in found.preempted:
        yield ""
        yield from _preempted_lines(work)


def _forecast_lines(found: pb.WhatIfResponse) -> Iterator[str]:
    if found.position:
        yield f"position {found.position} in the partition"
    if found.displaced:
        yield f"{len(found.displaced)} allocations lost, and asked for again"
    yield f"{len(found.placed)} asks placed"
    if found.placed:
        yield from format_table([("ask", "queue", "node"), *((p.key, p.queue, p.node_id) for p in found.placed)])
    for p in found.preemptions:
        begin, victims = _format_time(p.not_before_ns), _join_keys(p.victims)
        yield f"{p.key} preempts ({p.kind}) from {begin} on: {victims} leave {p.node_id}"
    for w in found.waiting:
        equal = f" and {w.ask_count - 1} more like it" if w.ask_count > 1 else ""
        yield f"{w.key}{equal} would wait: {w.reason}; {w.preemption}"
    for e in found.enforcements:
        yield f"{e.queue} would hold {format_quantities(e.excess)} above its max"
        if not e.HasField("not_before_ns"):
            yield "   nothing is preempted for that"
        else:
            leave = _join_keys(e.victims) if e.victims else "nobody"
            begin, rest = _format_time(e.not_before_ns), format_quantities(e.unmet)
            yield f"   from {begin} on {leave} has to leave, {rest} stays above"
    yield from (f"note: {note}" for note in found.notes)


def _join_keys(victims: Sequence[pb.ForecastVictim]) -> str:
    more = f" and {len(victims) - MOST_VICTIMS} more" if len(victims) > MOST_VICTIMS else ""
    return ", ".join(victim.key for victim in victims[:MOST_VICTIMS]) + more


def _format_time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
