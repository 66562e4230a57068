"""Forecasts what the periodic monitor could do for an ask, from the result of its last round and what has happened
since."""

from __future__ import annotations

from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.topology import Wish
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.foresight import (
    Circumstances,
    PreemptionOutlook,
    PreemptionVerdict,
)  # fmt: skip
from kornel.core.preemption.monitor.plan import Place
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.notices import Entry

_MOST_NAMED: Final = 5
_DOMAIN: Final = "its group waits for a domain"
_DOMAIN_DETAIL: Final = "a victim of the monitor makes room for one ask, and its group needs a domain for all"
RESTS = "the periodic monitor is on: asks do not preempt by themselves"


def foresee_round(state: PartitionState, ask: Allocation, _asked: Circumstances) -> PreemptionOutlook | None:
    """Returns the forecast for *ask* from the last round of the monitor.

    Returns ``None`` if the monitor is off or only observes, or if *ask* preempts by itself (preemption.md H).
    """
    by_itself = state.guarantee_preemption and ask.spec.allow_preempt_other
    if by_itself or not state.has_periodic_policy or ask.spec.required_node:
        return None
    verdict, notices, names = PreemptionVerdict, state.notices, state.types.names
    path = ask.queue.path
    place: Place | None = next((place for place in notices.places if place.ask is ask), None)
    if place is not None:
        return _describe_place(state, place)
    if ask.spec.topology is not None and ask.spec.topology.wish == Wish.REQUIRED:
        return PreemptionOutlook(verdict.FORBIDDEN, _DOMAIN, "", _DOMAIN_DETAIL)
    if not notices.rounds:
        return PreemptionOutlook(verdict.FORBIDDEN, RESTS, "", "its first round has not ended yet")
    lacking = {t: amount for t, amount in notices.lacking.get(path, {}).items() if amount > 0}
    asked = ask.shape.amounts
    if not any(t in lacking for t in asked):
        detail = f"round {notices.rounds}: {path} holds what it should, or free room makes up for the rest"
        return PreemptionOutlook(verdict.FORBIDDEN, "monitor: no share is owed to its queue", "", detail)
    owed = ", ".join(f"{amount} {names[t]}" for t, amount in sorted(lacking.items()))
    detail = f"round {notices.rounds}: {path} should hold {owed} more"
    if not ask.spec.allow_preempt_other:
        why = "the preemption policy of the ask forbids it to preempt, so the monitor takes nothing for it"
        return PreemptionOutlook(verdict.FORBIDDEN, "preemption policy of the ask", Outcome.ASK_MAY_NOT_PREEMPT, why)
    why = "in this round, no tasks of queues above their shares would free enough room on one node"
    return PreemptionOutlook(verdict.NO_VICTIMS, "monitor: nothing is released for it now", "", f"{detail}; {why}")


def _describe_place(state: PartitionState, place: Place) -> PreemptionOutlook:
    """Describes the place that the ask of *place* has in the last round, and who is to leave for it."""
    verdict, notices, names = PreemptionVerdict, state.notices, state.types.names
    path = place.ask.queue.path
    lacking = {t: amount for t, amount in notices.lacking.get(path, {}).items() if amount > 0}
    owed = ", ".join(f"{amount} {names[t]}" for t, amount in sorted(lacking.items()))
    detail = f"round {notices.rounds}: {path} should hold {owed} more; " if owed else f"round {notices.rounds}: "
    entries = [notices.entries[victim.key] for victim in place.victims if victim.key in notices.entries]
    detail += f"it is to run on {place.node.node_id}"
    if not entries:
        detail += ", where others leave room for it"
        return PreemptionOutlook(verdict.UNDER_WAY, "", Outcome.NOTIFIED, detail, None, place.node.node_id)
    last = max(entry.deadline_ns for entry in entries)
    risk = "; ".join(_describe_entry(state, entry) for entry in entries[:_MOST_NAMED])
    more = f"; and {len(entries) - _MOST_NAMED} more" if len(entries) > _MOST_NAMED else ""
    detail += f" once these allocations at risk are gone: {risk}{more}"
    return PreemptionOutlook(verdict.UNDER_WAY, "", Outcome.NOTIFIED, detail, last, place.node.node_id)


def _describe_entry(state: PartitionState, entry: Entry) -> str:
    """Describes an allocation at risk, and how its application answered the notice."""
    key = entry.allocation.key
    answer = {None: "", True: ", its application prepares for it", False: ", its application does nothing about it"}
    saved_ns = state.notices.checkpoints.get(key)
    saved = "" if saved_ns is None else f", its work was saved {(entry.deadline_ns - saved_ns) / 1e9:g} s before then"
    return f"{entry.allocation.spec.key}{answer[entry.notice.accepted]}{saved}"
