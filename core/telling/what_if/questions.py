"""Answers what-if questions: makes the supposed change, and lets the asks concerned try in turn.

Placements happen at once, but preemption only after delays, so all asks try to find a place before the first search for
victims. Allocations that are supposed to have left are gone already, whereas victims are still leaving. The shim is not
asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.domain.resources import NOTHING
from kornel.core.engine.scheduling.reserving import Turns
from kornel.core.model.allocations import Allocation, Together, together_of
from kornel.core.model.applications import Application
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.policies.ask_order import line_up
from kornel.core.policies.claim_order import line_key
from kornel.core.preemption import budgets
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.preemption.quota import planner as quota
from kornel.core.preemption.quota.shares import find_excess as above_max
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.rooms import UNSERVED
from kornel.core.telling.allocations.ask_report import find_position
from kornel.core.telling.allocations.blockers import find_blockers, gang_limit_blockers
from kornel.core.telling.queues.above_max import switched_off_by
from kornel.core.telling.what_if.gangs import forecast_gang
from kornel.core.telling.what_if.quota_rules import SupposedLimits
from kornel.core.telling.what_if.sandbox import ENOUGH_LEAVES, MOST_SEARCHES, Sandbox
from kornel.core.telling.what_if.supposed_asks import (
    LATE,
    ask_again,
    find_applicant,
    name_leaf,
    name_leavers,
    refuse_question,
    refuse_tags,
    shape_of,
    supposed_asks,
)
from kornel.core.telling.what_if.supposition import (
    Enforced,
    Forecast,
    Placed,
    Preempts,
    SupposeAsk,
    SupposeNodeLost,
    SupposePriority,
    SupposeQuota,
    Supposition,
    Waits,
)

MOST_ASKS: Final = 10_000
"""The most supposed asks in one question."""
MOST_MEMBERS: Final = 1_000
"""The most members of a supposed gang."""
MOST_DECISIONS: Final = 2_000
"""The most placements in one answer."""
MOST_ENFORCED: Final = 10_000
"""The most allocations below a queue for which the victims of a lowered max are computed."""
_CUT_SHORT: Final = f"cut short after {MOST_DECISIONS} placements"


def suppose(state: PartitionState, question: Supposition, now_ns: int) -> Forecast:
    """Forecasts the consequences of *question*. Changes *state*, which must belong to a copy of the process.

    Raises :class:`kornel.core.domain.commands.CommandRefused` for a question that makes no sense.
    """
    everybody = isinstance(question, SupposeNodeLost | SupposeQuota)
    alike = isinstance(question, SupposeAsk) and question.asks > 1
    sandbox = Sandbox(state, now_ns, everybody=everybody, alike=alike)
    if isinstance(question, SupposeAsk):
        return _forecast_ask(sandbox, question)
    if isinstance(question, SupposeNodeLost):
        return _forecast_node_lost(sandbox, question)
    if isinstance(question, SupposeQuota):
        return _forecast_quota(sandbox, question)
    return _forecast_priority(sandbox, question)


def _forecast_ask(sandbox: Sandbox, question: SupposeAsk) -> Forecast:
    state = sandbox.state
    if not 1 <= question.asks <= MOST_ASKS:
        raise refuse_question(f"{question.asks} asks are not between 1 and {MOST_ASKS}")
    if question.gang and (question.application_id or question.asks > MOST_MEMBERS):
        raise refuse_question(f"a gang is supposed as a new application of at most {MOST_MEMBERS} members")
    application = find_applicant(sandbox, question)
    if isinstance(application, str):
        return Forecast(rejected=application)
    # All are alike: at most this many can be placed, hold room or look for victims, and what holds for the last one
    # holds for the rest.
    alike = MOST_DECISIONS + state.reserving.most_saved(len(state.nodes)) + MOST_SEARCHES + 1
    count = question.asks if question.gang else min(alike, question.asks)
    asks = supposed_asks(application, shape_of(state, question), question, count, sandbox.now_ns)
    refused = refuse_tags(state, asks[0].spec)
    if refused is not None:
        return Forecast(rejected=refused)
    if question.gang:
        forecast = forecast_gang(sandbox, asks)
    else:
        sandbox.add(asks)
        forecast = _forecast_equals(sandbox, asks)
    if question.asks > count and len(forecast.placed) < MOST_DECISIONS:
        *waits, last = forecast.waits
        last = last._replace(asks=last.asks + question.asks - count)
        forecast = forecast._replace(waits=(*waits, last))
    blockers = [*find_blockers(state, asks[-1])[0], *(gang_limit_blockers(state, asks) if question.gang else ())]
    permanent = [each for each in blockers if each.permanent] if forecast.waits else []
    vain = (f"waiting will not help: {each.kind} {each.name}: {each.detail}" for each in permanent)
    return forecast._replace(notes=(*forecast.notes, *vain, *name_leaf(sandbox, application.queue, question)))


def _forecast_node_lost(sandbox: Sandbox, question: SupposeNodeLost) -> Forecast:
    node = sandbox.state.nodes.get(question.node_id)
    if node is None:
        raise refuse_question(f"no node {question.node_id!r}")
    gone = sandbox.lose_node(node)
    asks = [ask_again(allocation, number, sandbox.now_ns) for number, allocation in enumerate(gone)]
    sandbox.add(asks)
    forecast = _forecast_everybody(sandbox)
    return forecast._replace(displaced=tuple(allocation.spec.key for allocation in gone))


def _forecast_quota(sandbox: Sandbox, question: SupposeQuota) -> Forecast:
    state = sandbox.state
    queue = state.queues.get(question.queue.lower())
    if queue is None:
        raise refuse_question(f"no queue {question.queue!r}")
    if queue.parent is None:
        raise refuse_question("the root's max is what its nodes offer, and it guarantees nothing")
    guaranteed = _changed_amounts(state, queue.guaranteed, question.guaranteed)
    maximum = _changed_amounts(state, queue.max, question.max)
    problems = SupposedLimits(queue, guaranteed, maximum, state.types.names).find_problems() if queue.managed else []
    if problems:
        raise refuse_question(f"no configuration could say so: {'; '.join(problems)}")
    sandbox.set_limits(queue, guaranteed, maximum)
    enforced = _foretell_enforcement(sandbox, queue)
    forecast = _forecast_everybody(sandbox)
    return forecast._replace(enforced=enforced)


def _forecast_priority(sandbox: Sandbox, question: SupposePriority) -> Forecast:
    state = sandbox.state
    request = state.requests.get(question.key)
    if request is None:
        raise refuse_question(f"no ask or allocation {question.key!r}")
    request = sandbox.set_priority(request, question.priority)
    if request.pending:
        forecast = _forecast_equals(sandbox, [request] if _is_served(request) else [])
        return forecast._replace(position=find_position(state, request).partition)
    waiting = [ask for ask in _waiting_asks(state) if budgets.may_ever_preempt(ask)]
    return _forecast_victims(sandbox, [], _find_unplaced(sandbox, waiting), [])


def _changed_amounts(state: PartitionState, before: Mapping[int, int], new: Mapping[str, int | None]) -> dict[int, int]:
    after = dict(before)
    for name, amount in new.items():
        t = state.types.known_index(name)
        if t is None:
            raise refuse_question(f"no node, queue or ask ever had the resource type {name!r}")
        if amount is None:
            after.pop(t, None)
        elif amount < 0:
            raise refuse_question(f"{name}={amount} is negative")
        else:
            after[t] = amount
    return after


def _waiting_asks(state: PartitionState) -> list[Allocation]:
    """Returns every ask that waits for a place of its own, in no particular order."""
    return [
        ask for application in state.applications.values() for ask in application.asks.values() if _is_served(ask)
    ]  # fmt: skip


def _is_served(ask: Allocation) -> bool:
    application = ask.application
    served = application.state not in UNSERVED and not application.backoff_until_ns
    return served and ask.pending and ask.held_on is None and ask.pool is None


Unplaced = list[tuple[list[Allocation], NotPlaced]]
"""Equal asks of one application, in order, with the reason why the first of them found no place."""


def _forecast_equals(sandbox: Sandbox, asks: list[Allocation]) -> Forecast:
    """Forecasts places for as many of *asks*, which are alike and in order, as there is room for, then victims for the
    rest."""
    placed: list[Placed] = []
    for at, ask in enumerate(asks):
        if len(placed) == MOST_DECISIONS:
            return _forecast_victims(sandbox, placed, [], [_CUT_SHORT])
        found = sandbox.find_place(ask)
        if isinstance(found, NotPlaced):
            return _forecast_victims(sandbox, placed, [(asks[at:], found)], [])
        sandbox.bind(ask, found)
        placed.append(Placed(*_identify_ask(ask), found.node_id, ask.application.user))
    return _forecast_victims(sandbox, placed, [], [])


def _forecast_everybody(sandbox: Sandbox) -> Forecast:
    """Forecasts places for all asks that find one, in turn, then victims for those that may preempt."""
    placed: list[Placed] = []
    for ask, node in sandbox.place_everybody():
        placed.append(Placed(*_identify_ask(ask), node.node_id, ask.application.user))
        if len(placed) == MOST_DECISIONS:
            return _forecast_victims(sandbox, placed, [], [_CUT_SHORT])
    return _forecast_victims(sandbox, placed, _find_unplaced(sandbox, _waiting_asks(sandbox.state)), [])


def _find_unplaced(sandbox: Sandbox, asks: Iterable[Allocation]) -> Unplaced:
    """Returns those of *asks* that find no place, in the order in which they try, with their equals."""
    turns = Turns()
    alike: dict[tuple[Application, Shape, str, Together | None], list[Allocation]] = {}
    for ask in sorted(asks, key=turns.sort_key):
        spec = ask.spec
        alike.setdefault((ask.application, ask.shape, spec.required_node, together_of(spec)), []).append(ask)
    found = [(equals, sandbox.find_place(equals[0])) for equals in alike.values()]
    return [(equals, reason) for equals, reason in found if isinstance(reason, NotPlaced)]


def _forecast_victims(sandbox: Sandbox, placed: list[Placed], left: Unplaced, notes: list[str]) -> Forecast:
    for equals, reason in sorted(left, key=lambda found: line_key(found[0][0])):
        if reason.reason is Unschedulable.NO_FITTING_NODE:
            sandbox.reserve_by_age(equals)
    preempts: list[Preempts] = []
    waits: list[Waits] = []
    seeking = _in_turn(
        sandbox, [_Seekers(asks, why, sandbox) for equals, why in left for asks in _holders_apart(equals)]
    )
    while seeking:
        first, searches = seeking[0], sandbox.searches
        found = first.find_victims(sandbox)
        if found is not None:
            preempts.append(found)
        if not first.asks:
            waits.extend(first.waits)
            seeking.popleft()
        if found is not None and sandbox.searches != searches:
            # The queue of the ask has more than before, so other asks may come before the next one of its equals.
            seeking = _in_turn(sandbox, seeking)
    if sandbox.searches >= MOST_SEARCHES:
        notes.append(f"cut short after {MOST_SEARCHES} searches for victims")
    if sandbox.shim_has_a_say:
        notes.append("the shim, which has the last word, was not asked")
    return Forecast(
        tuple(placed), tuple(preempts), tuple(waits), complete=not notes or not _is_cut(notes), notes=tuple(notes)
    )


def _is_cut(notes: list[str]) -> bool:
    return any(not note.startswith("the shim") for note in notes)


class _Seekers:
    """Equal asks of one application that found no place and look for victims, one after the other."""

    def __init__(self, equals: list[Allocation], reason: NotPlaced, sandbox: Sandbox) -> None:
        self.asks = deque(equals)
        """The asks that have not tried yet; the first is the next."""
        self.turn: tuple[object, ...] | None = None
        """The turn of an ask that holds room. It does not change, whatever earlier asks take, because all asks that
        hold room come before all others."""
        self.waits: list[Waits] = []
        """The asks that found no victims; consecutive asks with the same reason share an entry."""
        self._reason = reason
        self._for_all = ""
        self._note_limit(sandbox, equals[0], reason)

    def _note_limit(self, sandbox: Sandbox, ask: Allocation, reason: NotPlaced | None) -> None:
        """Notes that no victim makes room for any of the asks if *reason* is such a limit, which earlier asks may have
        filled."""
        if reason is not None and not sandbox.state.victims_may_help(ask, reason):
            self._reason, self._for_all = reason, "victims make no room within this limit"

    def find_victims(self, sandbox: Sandbox) -> Preempts | None:
        """Returns the victims for the next ask that finds some; ``None`` if none of the remaining equals does.

        If an ask finds none for a reason that holds for all of them, the rest are not tried.
        """
        while self.asks:
            ask = self.asks.popleft()
            if not self._for_all and sandbox.searches >= MOST_SEARCHES:
                self._for_all = "not examined"
            if not self._for_all:
                self._note_limit(sandbox, ask, sandbox.find_limit(ask))
            why = str(Outcome.ALREADY_TRIGGERED) if ask.triggered else self._for_all
            if not why:
                result, due_ns = sandbox.attempt_preemption(ask, sandbox.due_ns(ask))
                if isinstance(result, PreemptionPlan):
                    leave = name_leavers(result.victims, result.adjusted)
                    user = ask.application.user
                    return Preempts(*_identify_ask(ask), result.node.node_id, due_ns, result.kind, leave, user)
                why = f"{result.outcome}: {result.detail}" if result.detail else str(result.outcome)
                if result.outcome is not Outcome.ASK_MAY_NOT_PREEMPT and result is not ENOUGH_LEAVES:
                    self._for_all = why
            self._note_waiting(ask, why, already=ask.arrival < LATE)
        return None

    def _note_waiting(self, ask: Allocation, why: str, *, already: bool) -> None:
        if self.waits and (self.waits[-1].preemption, self.waits[-1].already) == (why, already):
            self.waits[-1] = self.waits[-1]._replace(asks=self.waits[-1].asks + 1)
        else:
            reason, user = _name_reason(self._reason), ask.application.user
            self.waits.append(Waits(*_identify_ask(ask), 1, reason, why, user, already))


def _holders_apart(equals: list[Allocation]) -> Iterator[list[Allocation]]:
    """Yields each of *equals* with a reservation by itself, and the others together."""
    for holder in [ask for ask in equals if ask.reservation is not None]:
        yield [holder]
    if others := [ask for ask in equals if ask.reservation is None]:
        yield others


def _in_turn(sandbox: Sandbox, seeking: Collection[_Seekers]) -> deque[_Seekers]:
    """Returns *seeking* in the order in which they try: by the time from which they may preempt, then those with
    reservations, then in the order of queues over those that are left."""
    turns = Turns()
    due: dict[int, list[Allocation]] = {}
    for seekers in seeking:
        ask = seekers.asks[0]
        if ask.reservation is None:
            due.setdefault(sandbox.due_ns(ask), []).append(ask)
        elif seekers.turn is None:
            seekers.turn = turns.sort_key(ask)
    places = {ask: place for asks in due.values() for place, ask in enumerate(line_up(asks))}

    def order(seekers: _Seekers) -> tuple[object, ...]:
        ask = seekers.asks[0]
        if ask.reservation is not None:
            return sandbox.due_ns(ask), False, seekers.turn
        return sandbox.due_ns(ask), True, places[ask]

    return deque(sorted(seeking, key=order))


def _name_reason(reason: NotPlaced) -> str:
    where = reason.account or reason.queue
    if where is None:
        return str(reason.reason)
    return f"{reason.reason} of {where.path if isinstance(where, Queue) else f'{where.kind} {where.name}'}"


def _identify_ask(ask: Allocation) -> tuple[str, str, str]:
    return ask.spec.key, ask.application.application_id, ask.queue.path


def _foretell_enforcement(sandbox: Sandbox, queue: Queue) -> tuple[Enforced, ...]:
    """Forecasts what happens if the max of *queue* is below what it holds (preemption.md D)."""
    state = sandbox.state
    named = state.types.to_resources
    excess = {t: queue.used[t] - most for t, most in queue.max.items() if queue.used[t] > most}
    if not excess:
        return ()
    if switch := switched_off_by(state, queue):
        return (Enforced(queue.path, named(excess), None, (), NOTHING, switch),)
    due_ns = sandbox.now_ns + queue.properties.quota_preemption_delay_ns
    if _held_below(queue) > MOST_ENFORCED:
        return (Enforced(queue.path, named(excess), due_ns, (), named(above_max(queue, queue.max))),)
    plan = quota.plan_enforcement(queue, queue.properties.quota_preemption_miss, now_ns=due_ns)
    victims = name_leavers(plan.victims)
    return (Enforced(queue.path, named(excess), due_ns, victims, named(dict(plan.unmet))),)


def _held_below(queue: Queue) -> int:
    if queue.leaf:
        return sum(len(application.allocations) for application in queue.applications.values())
    return sum(map(_held_below, queue.children.values()))
