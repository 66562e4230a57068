"""Writes explanations and forecasts as text for a terminal: the answer first, the details below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import format_quantities, format_quantity
from kornel.cli.text.tables import format_table, wrap_text
from kornel.cli.text.times import format_age, format_moment
from kornel.shared.readable_amounts import format_count
from kornel.v1 import explain_pb2 as pb
from kornel.v1.read_pb2 import GetNodeResponse

MOST_VICTIMS = 10
"""The most victims named in one line."""
MOST_ALIKE = 4
"""The most asks of an application that preempt at the same time and have a line each."""
MOST_SUMS = 10
"""The most queues, users or applications for which a forecast is summed up."""


def render_explanation(found: pb.ExplainResponse, now_ns: int) -> str:
    """Returns several lines, of which the first ones name the most important obstacle."""
    match found.WhichOneof("report"):
        case "ask":
            return join_lines(_ask_lines(found.ask, now_ns))
        case "application":
            return join_lines(_application_lines(found.application, now_ns))
        case "ask_on_node":
            return join_lines(_ask_on_node_lines(found.ask_on_node, now_ns))
        case "node":
            return join_lines(_node_lines(found.node, now_ns))
        case _:
            return join_lines(_preempted_lines(found.lost, now_ns))


def render_forecast(found: pb.WhatIfResponse, now_ns: int) -> str:
    """Returns several lines: a sentence that sums up what would happen, then each placement, victim and waiting ask."""
    return join_lines(_forecast_lines(found, now_ns))


def describe_blocker(blocker: pb.Blocker) -> str:
    """Returns an obstacle in a few words, for a cell of a table: ``queue-quota root.a``."""
    if blocker.node_count > 1:
        return f"{blocker.kind} on {format_count(blocker.node_count, 'node')}"
    return f"{blocker.kind} {blocker.name}".strip()


def _ask_lines(ask: pb.AskReport, now_ns: int) -> Iterator[str]:
    where = f" on {ask.node_id}" if ask.node_id else ""
    yield from wrap_text(f"{ask.key}: {ask.state}{where}")
    yield from wrap_text(f"application {ask.application_id}, queue {ask.queue}, priority {ask.priority}")
    since = f", since {format_moment(ask.created_ns, now_ns)}" if ask.HasField("position") and ask.created_ns else ""
    verb = "asks for" if ask.HasField("position") else "holds"
    yield from wrap_text(f"{verb} {format_quantities(ask.resources)}{since}")
    if ask.HasField("position"):
        at = ask.position
        yield from wrap_text(
            f"position {at.application} of {at.application_of} in its application, {at.leaf} of {at.leaf_of} in its"
            f" queue, {at.partition} of {at.partition_of} in the partition"
        )
        yield ""
        if not ask.blockers:
            nodes = format_count(ask.fitting_node_count, "node")
            yield f"nothing is in its way: {nodes} {'has' if ask.fitting_node_count == 1 else 'have'} room"
        for number, blocker in enumerate(ask.blockers, 1):
            yield from _blocker_lines(f"{number}. ", blocker, now_ns)
        if ask.blockers and ask.fitting_node_count:
            nodes = format_count(ask.fitting_node_count, "node")
            yield f"   {nodes} {'has' if ask.fitting_node_count == 1 else 'have'} room"
        yield ""
        yield from _outlook_lines(ask.preemption, now_ns)
    if ask.HasField("preempted"):
        yield ""
        yield from _preempted_lines(ask.preempted, now_ns)
    if ask.failures:
        yield ""
        rows = [
            (f"{failed.count}x", f"{format_age(now_ns - failed.last_ns)} ago", failed.message)
            for failed in ask.failures
        ]
        yield from format_table([("count", "last", "not placed because"), *rows])


def _blocker_lines(lead: str, blocker: pb.Blocker, now_ns: int, indent: str = "") -> Iterator[str]:
    name = f" {blocker.name}" if blocker.name else ""
    if blocker.node_count > 1:
        name = f" on {format_count(blocker.node_count, 'node')}, closest {blocker.name}"
    for_ever = " (waiting will not help)" if blocker.permanent else ""
    until = f", until {format_moment(blocker.until_ns, now_ns)}" if blocker.HasField("until_ns") else ""
    yield from wrap_text(
        f"{lead}{blocker.level}: {blocker.kind}{name}: {blocker.detail}{until}{for_ever}", indent=indent, hanging="   "
    )
    for s in blocker.shortages:
        asked, used, limit, short = (format_quantity(s.type, each) for each in (s.asked, s.used, s.limit, s.short))
        yield f"{indent}     {s.type}: {asked} asked, {used} of {limit} used, {short} short"


def _ask_on_node_lines(found: pb.AskOnNode, now_ns: int) -> Iterator[str]:
    yield from wrap_text(f"{found.key} {_say_on_node(found)}")
    verb = "holds" if found.runs_on else "asks for"
    yield from wrap_text(
        f"application {found.application_id}, queue {found.queue}, {verb} {format_quantities(found.resources)}"
    )
    if found.blockers:
        yield ""
        for number, blocker in enumerate(found.blockers, 1):
            yield from _blocker_lines(f"{number}. ", blocker, now_ns)
    if found.elsewhere:
        yield ""
        yield "whatever the node, it waits for:"
        for number, blocker in enumerate(found.elsewhere, 1):
            yield from _blocker_lines(f"{number}. ", blocker, now_ns)
    if found.blockers and found.first_node:
        yield ""
        yield from wrap_text(f"{found.first_node} has room for it.")


def _say_on_node(found: pb.AskOnNode) -> str:
    """Returns why the ask is not on the node, as the end of a sentence that begins with the key of the ask."""
    node = found.node_id
    if found.runs_on == node:
        return f"runs on {node}."
    instead = f" It runs on {found.runs_on}." if found.runs_on else ""
    if found.blockers:
        return f"cannot go to {node}: {found.blockers[0].detail}.{instead}"
    if found.runs_on:
        return f"would have room on {node} as well.{instead}"
    if found.elsewhere:
        return f"would have room on {node}, but something else keeps it waiting."
    if found.first_node and found.first_node != node:
        return f"would have room on {node}, but {found.first_node} comes first in the order of nodes."
    return f"has room on {node}: the next cycle may place it there."


def _node_lines(found: pb.NodeReport, now_ns: int) -> Iterator[str]:
    yield from wrap_text(f"node {found.node_id}: {_say_node_use(found, now_ns)}")
    yield from wrap_text(
        f"{format_quantities(found.available)} left of {format_quantities(found.capacity)},"
        f" {format_count(found.allocation_count, 'allocation')}"
    )
    if found.last_placed_ns:
        yield from wrap_text(f"last placed there: {format_moment(found.last_placed_ns, now_ns)}")
    if found.reservations:
        yield from wrap_text(f"room is held for {_join_names(list(found.reservations))}")
    if not found.verdicts:
        return
    yield ""
    waiting = format_count(found.waiting_ask_count, "ask")
    yield f"{waiting} {'waits' if found.waiting_ask_count == 1 else 'wait'}. What keeps them off this node:"
    for verdict in found.verdicts:
        asks = format_count(verdict.ask_count, "ask")
        if not verdict.HasField("blocker"):
            yield from wrap_text(f"{asks}, such as {verdict.example}: nothing, they may be placed there", indent="  ")
            continue
        yield from _blocker_lines(f"{asks}, such as {verdict.example}: ", verdict.blocker, now_ns, "  ")


def _say_node_use(found: pb.NodeReport, now_ns: int) -> str:
    """Returns in one sentence why nothing, or nothing more, runs on the node."""
    if not found.schedulable:
        who = say_who_drains(found, now_ns)
        return f"takes no new work: {who}" if who else "takes no new work"
    if not found.waiting_ask_count:
        return "takes new work, and no ask waits"
    free = sum(verdict.ask_count for verdict in found.verdicts if verdict.kind == "fits")
    if free:
        return f"takes new work: {format_count(free, 'ask')} may be placed there"
    return f"takes new work, but {_say_obstacle(found.verdicts[0])}"


def say_who_drains(found: pb.NodeReport | GetNodeResponse, now_ns: int) -> str:
    """Returns who drains a node; empty: nobody does."""
    who = [f"by {found.drained_by} since {format_moment(found.drained_since_ns, now_ns)}"] if found.drained_by else []
    who += ["by its shim"] if found.drained_by_manager else []
    return f"drained {' and '.join(who)}" if who else ""


def _say_obstacle(verdict: pb.AsksOnNode) -> str:
    them = "the ask that waits" if verdict.ask_count == 1 else f"most of those that wait ({verdict.ask_count:,})"
    return f"{them}: {verdict.blocker.detail}"


def _outlook_lines(found: pb.PreemptionOutlook, now_ns: int) -> Iterator[str]:
    yield from wrap_text(f"preemption: {found.verdict}" + (f", {found.blocked_by}" if found.blocked_by else ""))
    if found.HasField("not_before_ns"):
        yield f"   may try at {format_moment(found.not_before_ns, now_ns)}"
    said = found.outcome if found.outcome != "TRIGGERED" else ""
    if said or found.detail:
        yield from wrap_text(": ".join(part for part in (said, found.detail) if part), indent="   ")
    if found.victims:
        yield from wrap_text(f"{_join_keys(found.victims)} to leave {found.node_id}", indent="   ")
    for p in found.protections:
        others = f" and {format_count(p.queue_count - 1, 'more queue')}" if p.queue_count > 1 else ""
        allocations = format_count(p.allocation_count, "allocation")
        yield from wrap_text(f"{p.law} protects {allocations} in {p.example}{others}", indent="   ")


def _preempted_lines(work: pb.PreemptedWork, now_ns: int) -> Iterator[str]:
    victim = work.victim
    at = format_moment(work.at_ns, now_ns)
    yield from wrap_text(f"{victim.key} was asked to leave {victim.node_id} at {at} ({work.kind} preemption)")
    if work.taken_by:
        whom = f"for {work.taken_by} of {work.taken_by_application_id} in {work.taken_by_queue}"
    else:
        whom = f"for the sake of {work.taken_by_queue}"
    alternatives = f"alternatives: {work.alternatives}" if work.alternatives else ""
    for line in (whom, work.law, work.reason, alternatives):
        if line:
            yield from wrap_text(line, indent="   ")


def _application_lines(found: pb.ApplicationReport, now_ns: int) -> Iterator[str]:
    yield from wrap_text(f"application {found.application_id}: {found.state}, user {found.user}, queue {found.queue}")
    holds = f", {format_quantities(found.used)}" if found.used else ""
    yield from wrap_text(
        f"{format_count(found.pending_ask_count, 'ask')} pending,"
        f" {format_count(found.allocation_count, 'allocation')}{holds}"
    )
    for remark in found.remarks:
        yield from wrap_text(remark)
    for group in found.groups:
        yield ""
        if group.ask_count > 1:
            each = f", each with room of its own (kornel claims --app {found.application_id})"
            yield from wrap_text(
                f"{group.ask_count:,} equal asks{each if group.first.state == 'Reserved' else ''}, the first:"
            )
        yield from _ask_lines(group.first, now_ns)
    if found.group_count > len(found.groups):
        yield ""
        yield format_count(found.group_count - len(found.groups), "more kind of ask", "more kinds of asks")
    if found.preempted:
        yield ""
        yield from wrap_text(
            "preempted, the latest first (kornel explain VICTIM says why, kornel history goes back further):"
        )
        rows = (
            (work.victim.key, f"{format_age(now_ns - work.at_ns)} ago", work.kind, work.taken_by, work.taken_by_queue)
            for work in found.preempted
        )
        yield from format_table([("victim", "asked to leave", "kind", "for", "its queue"), *rows], ("kind",))


def _forecast_lines(found: pb.WhatIfResponse, now_ns: int) -> Iterator[str]:
    yield from wrap_text(_say_forecast(found))
    if found.position:
        yield f"position {found.position} in the partition"
    for e in found.enforcements:
        yield ""
        yield from wrap_text(f"{e.queue} would hold {format_quantities(e.excess)} above its max")
        if not e.HasField("not_before_ns"):
            why = f": {e.reason}" if e.reason else ""
            yield from wrap_text(f"nobody would be asked to leave{why}", indent="   ")
            continue
        leave = f"{_join_keys(e.victims)} {'has' if len(e.victims) == 1 else 'have'}" if e.victims else "nobody has"
        rest = f", {format_quantities(e.unmet)} stays above" if e.unmet else ""
        yield from wrap_text(f"from {format_moment(e.not_before_ns, now_ns)} on, {leave} to leave{rest}", indent="   ")
    yield from _preempting_lines(found.preemptions, now_ns)
    yield from _waiting_lines(_join_equals(found, already=False), already=False)
    yield from sum_lines(
        [
            *(("placed", each, 1) for each in found.placed),
            *(("preempt", each, 1) for each in found.preemptions),
            *(("wait", each, each.ask_count) for each in found.waiting if not each.already),
            *(("leave", each, 1) for each in _all_victims(found)),
        ],
        ("placed", "preempt", "wait", "leave"),
    )
    if leaving := _all_victims(found):
        yield ""
        takers = {victim.key: p.key for p in found.preemptions for victim in p.victims}
        names = ("leaves", "queue", "user", "priority", "originator", "node", "for")[: 7 if takers else 6]
        rows = (
            (v.key, v.queue, v.user, str(v.priority), "yes" if v.originator else "", v.node_id, takers.get(v.key, ""))
            for v in leaving
        )
        yield from format_table([names, *(row[: len(names)] for row in rows)], ("for",))
    if found.placed:
        yield ""
        yield from format_table([("ask", "queue", "node"), *((p.key, p.queue, p.node_id) for p in found.placed)])
    if 0 < len(still := _join_equals(found, already=True)) <= MOST_SUMS:
        yield ""
        yield from _waiting_lines(still, already=True)
    for note in found.notes:
        yield from wrap_text(f"note: {note}")


def _preempting_lines(preemptions: Sequence[pb.ForecastPreemption], now_ns: int) -> Iterator[str]:
    """Yields who preempts whom. Those of an application that begin at the same time have one line if they are many,
    and their victims stand in the table of those who leave."""
    alike: dict[tuple[str, str, int], list[pb.ForecastPreemption]] = {}
    for p in preemptions:
        if not p.victims:
            # Only a member of a gang waits for the victims of others.
            yield from wrap_text(f"{p.key} finds room on {p.node_id}")
            continue
        alike.setdefault((p.application_id, p.kind, p.not_before_ns), []).append(p)
    for (_, kind, not_before_ns), equals in alike.items():
        begin = format_moment(not_before_ns, now_ns)
        if len(equals) > MOST_ALIKE:
            yield from wrap_text(f"{equals[0].key} and {len(equals) - 1:,} more preempt ({kind}) from {begin} on")
            continue
        for p in equals:
            leave = "leaves" if len(p.victims) == 1 else "leave"
            yield from wrap_text(
                f"{p.key} preempts ({kind}) from {begin} on: {_join_keys(p.victims)} {leave} {p.node_id}"
            )


def _waiting_lines(joined: Sequence[tuple[str, str, int]], *, already: bool) -> Iterator[str]:
    for key, reason, count in joined:
        equal, verb = "", "goes on waiting" if already else "would wait"
        if count > 1:
            equal, verb = f" and {count - 1:,} more like it", "go on waiting" if already else "would wait"
        yield from wrap_text(f"{key}{equal} {verb}: {reason}")


def _join_equals(found: pb.WhatIfResponse, *, already: bool) -> list[tuple[str, str, int]]:
    """Returns the first key, the reason and the number of those that wait for the same reason in one application."""
    counts: dict[tuple[str, str], tuple[str, int]] = {}
    for w in found.waiting:
        if w.already is already:
            same = w.application_id, f"{w.reason}; {w.preemption}"
            first, count = counts.get(same, (w.key, 0))
            counts[same] = first, count + w.ask_count
    return [(key, reason, count) for (_, reason), (key, count) in counts.items()]


def _all_victims(found: pb.WhatIfResponse) -> list[pb.ForecastVictim]:
    """Returns everybody who would have to leave, the most important first."""
    victims = {victim.key: victim for preempts in found.preemptions for victim in preempts.victims}
    victims |= {victim.key: victim for enforced in found.enforcements for victim in enforced.victims}
    return sorted(victims.values(), key=lambda victim: (not victim.originator, -victim.priority, victim.key))


def sum_lines(counted: Sequence[tuple[str, Any, int]], columns: Sequence[str]) -> Iterator[str]:
    """Yields sums by queue, user and application, if these are several. *counted*: for each item the column in which it
    counts, the message about it, and as how many it counts."""
    for named in ("queue", "user", "application_id"):
        sums: dict[str, Counter[str]] = {}
        for column, each, count in counted:
            sums.setdefault(getattr(each, named), Counter())[column] += count
        if len(sums) > 1:
            rows = sorted(sums.items(), key=lambda row: (-row[1].total(), row[0]))
            yield ""
            yield from format_table(
                [
                    (named.removesuffix("_id"), *columns),
                    *((name, *(str(row[column]) for column in columns)) for name, row in rows[:MOST_SUMS]),
                ]
            )
            if len(rows) > MOST_SUMS:
                yield f"and {len(rows) - MOST_SUMS:,} more"


def _say_forecast(found: pb.WhatIfResponse) -> str:
    """Returns the answer in one sentence: how many would run, wait, and have to leave."""
    if found.rejected:
        return f"would be rejected: {found.rejected}"
    waiting, still = (
        sum(max(1, each.ask_count) for each in found.waiting if each.already is already) for already in (False, True)
    )
    victims = _all_victims(found)
    parts = [f"{format_count(len(found.displaced), 'allocation')} lost, and asked for again"] if found.displaced else []
    parts.append(f"{format_count(len(found.placed), 'ask')} placed at once")
    more, most = ("", "") if found.complete else (" or more", "up to ")
    if found.preemptions:
        parts.append(f"{len(found.preemptions):,}{more} by preemption")
    if waiting:
        parts.append(f"{most}{waiting:,} would wait")
    if still:
        parts.append(f"{most}{still:,} would go on waiting")
    if victims:
        parts.append(f"{format_count(len(victims), 'allocation')}{more} would have to leave")
    return ", ".join(parts)


def _join_keys(victims: Sequence[Any]) -> str:
    return _join_names([victim.key for victim in victims])


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_VICTIMS:,} more" if len(names) > MOST_VICTIMS else ""
    return ", ".join(names[:MOST_VICTIMS]) + more
