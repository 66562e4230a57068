"""Forecasts for a gang that is only supposed: it is placed by one decision, in idle room or after preemption, or waits.

The engine's own functions choose the nodes and the victims. Both only read: nothing has to be restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.model.allocations import Allocation
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.partition.scheduling.gang_places import choose_places, exceeded_limit
from kornel.core.partition.state import PartitionState
from kornel.core.preemption.guarantee import cycle_limit, unit_laws
from kornel.core.preemption.guarantee.planner import KIND
from kornel.core.preemption.guarantee.unit_search import Tools, UnitSearch
from kornel.core.preemption.plan import Refusal, UnitPlan
from kornel.core.telling.preemption.outlook import ReadingIndex, victim_records
from kornel.core.telling.what_if.supposition import Forecast, Placed, Preempts, Waits

MOST_STEPS: Final = 200
MOST_LOOKS: Final = 10_000
"""Steps of a search for victims, and nodes looked at in all of them, before the answer says that it was cut short."""


def forecast_gang(state: PartitionState, index: ReadingIndex, members: Sequence[Allocation], now_ns: int) -> Forecast:
    """Returns where *members*, all of a gang, would be placed at once, who would leave for them, or why they wait."""
    application, first = members[0].application, members[0]
    names = first.spec.key, application.application_id, application.queue.path
    notes: list[str] = []
    if state.callbacks.predicates or state.callbacks.preemption_predicates:
        notes.append("the shim, which has the last word, was not asked")
    limited = exceeded_limit(state, application, members)
    if limited is None:
        chosen = choose_places(state, members)
        if chosen is not None:
            placed = tuple(
                Placed(ask.spec.key, application.application_id, application.queue.path, node.node_id)
                for ask, node in chosen
            )
            return Forecast(placed, notes=tuple(notes))
        limited = NotPlaced(Unschedulable.GANG_INCOMPLETE)
    found = _find_plan(state, index, members, limited, now_ns)
    complete = not (isinstance(found, Refusal) and found is _CUT_SHORT)
    if isinstance(found, Refusal):
        why = f"{found.outcome}: {found.detail}" if found.detail else str(found.outcome)
        waits = (Waits(*names, len(members), _name_reason(limited), why),)
        return Forecast(waits=waits, complete=complete, notes=tuple(notes))
    due_ns = now_ns + application.queue.properties.preemption_delay_ns
    preempts = tuple(
        Preempts(
            place.ask.spec.key, application.application_id, application.queue.path, place.node.node_id, due_ns, KIND,
            victim_records(place),
        )
        for place in found.places
    )  # fmt: skip
    notes.append("all members start together, once all victims have left")
    return Forecast(preempts=preempts, notes=tuple(notes))


_CUT_SHORT: Final = Refusal(Outcome.GANG_INCOMPLETE, "the search for victims was cut short")


def _find_plan(
    state: PartitionState, index: ReadingIndex, members: Sequence[Allocation], limited: NotPlaced, now_ns: int
) -> UnitPlan | Refusal:
    if not limited.preemption_may_help:
        return Refusal(Outcome.USER_QUOTA, "victims make no room within this limit")
    if not state.guarantee_preemption:
        return Refusal(Outcome.POLICY_OFF, cycle_limit.why_off(state))
    if not members[0].spec.allow_preempt_other:
        return Refusal(Outcome.ASK_MAY_NOT_PREEMPT)
    if members[0].spec.required_node:
        return Refusal(Outcome.REQUIRED_NODE)
    search = UnitSearch(members, state.changes, mends=False, refused={})
    tools = Tools(state.node_order, index, None)
    for _ in range(min(MOST_STEPS, max(2, MOST_LOOKS // max(1, len(state.nodes))))):
        found = search.take_step(state, tools, now_ns)
        if isinstance(found, UnitPlan):
            broken = unit_laws.check(state, found)
            return Refusal(Outcome.LAW_BROKEN, "; ".join(v.detail for v in broken)) if broken else found
        if found is not None:
            return found
    return _CUT_SHORT


def _name_reason(reason: NotPlaced) -> str:
    where = reason.account or reason.queue
    if where is None:
        return str(reason.reason)
    return f"{reason.reason} of {where.path if isinstance(where, Queue) else f'{where.kind} {where.name}'}"
