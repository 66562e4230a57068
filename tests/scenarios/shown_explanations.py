"""What ``explain`` tells of an ask."""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.preemption.foresight import PreemptionOutlook
from kornel.core.telling.allocations.explanation import AskReport, Blocker


def explain_ask(report: AskReport) -> list[str]:
    """A line for the ask, one for each of its blockers, those in front first, and one for preemption."""
    lines = [f"ask {report.key} {report.state}, {report.fitting_nodes} nodes have room"]
    lines += map(_describe_blocker, report.blockers)
    if report.preemption is not None:
        lines += _describe_outlook(report.preemption)
    return lines


def _describe_blocker(blocker: Blocker) -> str:
    lasting = " for ever" if blocker.permanent else ""
    nodes = f" nodes={blocker.nodes}" if blocker.nodes else ""
    lacks = "".join(f" {each.type}:{each.used}+{each.asked}>{each.limit}" for each in blocker.shortages)
    return f"blocked{lasting} by {blocker.kind} {blocker.level} {blocker.name or '-'}{nodes}{lacks}: {blocker.detail}"


def _describe_outlook(outlook: PreemptionOutlook) -> Iterator[str]:
    why = f" because of {outlook.blocked_by}" if outlook.blocked_by else ""
    when = "" if outlook.not_before_ns is None else f" not before {outlook.not_before_ns / 10**9:g}s"
    victims = ",".join(victim.key for victim in outlook.victims)
    whom = f" victims {victims} on {outlook.node_id}" if victims else ""
    said = f": {outlook.detail}" if outlook.detail else ""
    yield f"preemption {outlook.verdict} {outlook.outcome or '-'}{why}{when}{whom}{said}"
    for each in outlook.protected:
        yield f"protected by {each.law} {each.allocations}, such as one of {each.example}"
