"""One attempt of a gang to preempt: it searches a plan, then asks the shim, the laws and the governor about it.

It continues from slice to slice. Rules: preemption.md B.11.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, Reservation, sum_amounts
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.guarantee import laws
from kornel.core.preemption.guarantee.attempts.gang_consulting import GangDialogue
from kornel.core.preemption.guarantee.gangs.search import GangSearch, Refused, Tools
from kornel.core.preemption.guarantee.guarantee_record import GuaranteeRecord
from kornel.core.preemption.guarantee.search.planner import KIND
from kornel.core.preemption.guarantee.search.prospects import Unprepared
from kornel.core.preemption.plan import GangPlan, Refusal
from kornel.core.state.asks.savings import lift_saved
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.gathering import find_least

MOST_RESTARTS: Final = 4
"""The most times that a search begins again because something has changed. After that, it continues in spite of
changes."""


class GangAttempt:
    """The progress of an attempt of one gang, which continues from slice to slice."""

    __slots__ = ("dialogue", "restarts", "search")

    def __init__(self, dialogue: GangDialogue) -> None:
        self.search: GangSearch | None = None
        self.restarts = 0
        self.dialogue: Final = dialogue


def is_proposing(state: PartitionState) -> bool:
    """Tells whether the periodic policy carries out the plans for gangs (preemption.md H)."""
    return state.has_periodic_policy and not state.guarantee_preemption


def list_usable(state: PartitionState, members: Sequence[Allocation]) -> Collection[Reservation]:
    """Returns the claims whose room *members* of a gang may use: their own, and those that lend to them."""
    own = [ask.reservation for ask in members if ask.reservation is not None]
    if any(ask.shape.devices is not None for ask in members):
        return own
    lent = state.find_lent(find_least(members), tuple(sorted(sum_amounts(members).items())))
    return dict.fromkeys([*own, *chain.from_iterable(lent.values())])


def advance_search(
    state: PartitionState, attempt: GangAttempt, members: Sequence[Allocation], now_ns: int, *, mends: bool
) -> GangPlan | Refusal | None:
    """Takes one step of *attempt*, as if *members* held nothing, nor those who lend them room. Returns a plan that may
    be carried out now, the refusal if there is none, or ``None`` if further steps are needed or the shim is being
    asked."""
    with lift_saved(state, list_usable(state, members)) as nodes:
        found = _take_step(state, attempt, members, now_ns, mends=mends)
    state.records[GuaranteeRecord].prospects.doubt_nodes(nodes)
    return found


def _take_step(
    state: PartitionState, attempt: GangAttempt, members: Sequence[Allocation], now_ns: int, *, mends: bool
) -> GangPlan | Refusal | None:
    record = state.records[GuaranteeRecord]
    search, refused = attempt.search, _refused_nodes(members)
    if search is None or not search.is_about(members, refused):
        search = attempt.search = GangSearch(members, state.marks, mends=mends, refused=refused)
    elif search.marks != state.marks and attempt.restarts < MOST_RESTARTS:
        attempt.restarts += 1
        search = attempt.search = GangSearch(members, state.marks, mends=mends, refused=refused)
    tools = Tools(state.node_order, state.victim_index, record.prospects)
    try:
        found = search.take_step(state, tools, now_ns)
    except Unprepared:
        record.prospects.behind = True
        return None
    if not isinstance(found, GangPlan):
        return found
    attempt.search = None
    if search.marks != state.marks and laws.check(state, found) and attempt.restarts < 2 * MOST_RESTARTS:
        # The plan was right for the state at the beginning of the search, so this is no bug, and the search begins
        # again.
        attempt.restarts += 1
        return None
    asked = attempt.dialogue.ask_about(found, now_ns)
    if asked is not None:
        return asked if isinstance(asked, Refusal) else None
    return _approve_plan(state, found, now_ns)


def _approve_plan(state: PartitionState, plan: GangPlan, now_ns: int) -> GangPlan | Refusal:
    """Returns *plan* if the laws and the governor permit it now, otherwise the refusal."""
    if any(victim.released or victim.preempted for victim in plan.victims):
        return Refusal(Outcome.VICTIM_RELEASED)
    broken = eviction.judge_plan(state, laws.check(state, plan))
    if broken is not None:
        return broken
    if is_proposing(state):
        return plan  # The periodic policy asks the governor before each turn.
    refusal = budgets.refuse_too_many(state, plan)
    if refusal is not None:
        return refusal
    if plan.victims:
        denied = budgets.deny_victims(state, plan.victims, plan.application.queue.path, now_ns)
        if denied is not None:
            return Refusal(denied.outcome, denied.detail, retry_ns=denied.retry_ns)
    if budgets.is_shadowed(state, KIND):
        for place in plan.places:
            if place.victims:
                eviction.record_decision(state, KIND, place.ask, now_ns, Outcome.SHADOW, plan=place)
        return Refusal(Outcome.SHADOW)
    return plan


def _refused_nodes(members: Sequence[Allocation]) -> Refused:
    """Returns, by member, the nodes that the shim has refused for it, and those on which it has waited for victims in
    vain."""
    found: dict[Allocation, frozenset[str]] = {}
    for ask in members:
        nodes = frozenset({*(ask.refused or ()), *ask.stuck.values()})
        if nodes:
            found[ask] = nodes
    return found


def count_steps_left(state: PartitionState) -> int:
    """Returns the number of steps that the searches of all gangs have left together."""
    attempts = state.gangs.attempts.values()
    return sum(attempt.search.steps_left for attempt in attempts if attempt.search is not None)
