"""Runs the engine's own functions on the records of a partition, which change for good: they are those of a copy of the
process, which ends with its answer (:mod:`kornel.core.service.machine.process_copies`).

Asks are added, tried, placed, set aside, given reservations and woken, victims are marked and nodes are lost by the
same functions as in the engine: those of :mod:`kornel.core.state.asks`, :mod:`kornel.core.state.waiting` and
:mod:`kornel.core.engine.scheduling`, and the drivers of preemption. So a forecast has no rules of its own.

If a question concerns one application or ask, all others are assumed to have found nothing, and their waiting rooms are
empty. Nobody takes the effects, timers and events, and the shim is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.engine import lifecycle
from kornel.core.engine.configuration import dynamic_queues
from kornel.core.engine.configuration.dynamic_queues import Prospect
from kornel.core.engine.gangs import gang_turns
from kornel.core.engine.scheduling import limit_savings, loans, placement, reserved, vetting
from kornel.core.engine.scheduling.cycle import set_aside
from kornel.core.engine.scheduling.reserving import Turns
from kornel.core.model.allocations import Allocation, standing_of
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.policies.placement.decide import Placed
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.guarantee import laws
from kornel.core.preemption.guarantee.attempts import drive as guarantee
from kornel.core.preemption.guarantee.attempts.gang_attempts import list_usable
from kornel.core.preemption.guarantee.gangs.search import GangSearch, Tools
from kornel.core.preemption.guarantee.guarantee_record import GuaranteeRecord
from kornel.core.preemption.guarantee.search.prospects import KnownProspects, NoProspects
from kornel.core.preemption.plan import GangPlan, PreemptionPlan, Refusal
from kornel.core.preemption.required_node import drive as required_node
from kornel.core.state.asks import finding, moves, savings
from kornel.core.state.asks.reservations import end_reservation, reserve_node
from kornel.core.state.books import ledger
from kornel.core.state.books.fair_terms import refresh_fair_terms, refresh_fair_terms_below
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.rooms import bring_forward, note_lost_capacity
from kornel.core.state.waiting.turns import first_group
from kornel.core.state.waiting.waking import wake_for_queue, wake_waiting

MOST_STEPS: Final = 200
MOST_LOOKS: Final = 10_000
"""The most steps of a search for victims, and the most nodes examined in all of them, before the answer says that it
was cut short."""
MOST_SEARCHES: Final = 30
"""The most searches for victims in one answer, because each takes milliseconds in a large cluster."""
FEW_SEARCHES: Final = 1
"""The searches without prospects, which take about as long as it takes to make these."""
MOST_PAUSES: Final = 8
"""The most pauses, due to the limit of one interval, over which one ask is followed."""

ENOUGH_LEAVES: Final = Refusal(Outcome.REQUIRED_NODE, "room on its node is leaving already")
"""The refusal of an ask for which the victims of earlier asks free enough room. The next equal ask may still lack
room."""


class Sandbox:
    """A partition that is changed as the engine would change it."""

    def __init__(self, state: PartitionState, now_ns: int, *, everybody: bool, alike: bool) -> None:
        """Prepares the partition. With *everybody*, waiting asks are tried as well as soon as something wakes them.
        *alike*: several equal asks may look for victims."""
        self.state = state
        self.now_ns = now_ns
        self.made: list[Queue] = []
        """The queues that placement made for the question."""
        self._searches_before = state.preemption_attempts
        self.shim_has_a_say = state.callbacks.predicates or state.callbacks.preemption_predicates
        state.recording = False
        state.records[GuaranteeRecord].prospects = KnownProspects() if alike else NoProspects()
        state.callbacks.predicates = state.callbacks.preemption_predicates = False
        state.callbacks.open.clear()
        for leaf in [queue for queue in state.queues.values() if queue.set_back]:
            bring_forward(leaf)
        state.callbacks.now_ns = now_ns
        # The enforcement of lowered maxima comes before preemption for guarantees, and is over when that has its turn.
        state.enforcement.run = None
        state.enforcement.due.clear()
        if not everybody:
            self._empty_rooms()

    @property
    def searches(self) -> int:
        """The number of searches for victims made so far."""
        return self.state.preemption_attempts - self._searches_before

    def _empty_rooms(self) -> None:
        state = self.state
        for shape in state.no_room:
            shape.no_room = False
        state.no_room.clear()
        state.awake.clear()
        state.waiting_for_node.clear()
        state.waiting_for_domain.clear()
        state.gangs.without_room.clear()
        state.gangs.gathering.clear()
        state.gangs.rooms.clear()
        for queue in state.queues.values():
            queue.parked.clear()
            for account in queue.accounts.values():
                account.parked.clear()

    def find_place(self, ask: Allocation) -> Node | NotPlaced:
        """Returns the node that *ask* would get now, tried first on the node where room is held for it, or why there is
        none."""
        own = ask.reservation.node if ask.reservation is not None else None
        if own is None or not own.fits_ask(ask) or own.node_id in (ask.refused or {}):
            found = finding.find_node(self.state, ask)
            return loans.find_lent_node(self.state, ask, found) if isinstance(found, NotPlaced) else found
        return finding.exceeded_limit(self.state, ask) or own

    def place_everybody(self) -> Iterator[tuple[Allocation, Node]]:
        """Tries all asks that may find a place now, in the order of the cycle, and yields those that were placed with
        their nodes."""
        state = self.state
        while True:
            if state.reserved_ready:
                yield from self._place_holders()
                continue
            if state.reserving.short and limit_savings.is_due(state, self.now_ns):
                limit_savings.choose_savers(state, self.now_ns)
                continue
            group = first_group(state)
            if group is None:
                return
            if state.reserving.short and limit_savings.is_due(state, self.now_ns):
                continue
            if isinstance(group, GangUnit):
                yield from self._place_gang(group)
                continue
            ask = group.first_ask()
            found = self.find_place(ask)
            if isinstance(found, Node):
                self.bind(ask, found)
                yield ask, found
            elif found.reason is Unschedulable.REFUSED_BY_PREDICATE:
                vetting.refused_everywhere(state, ask, self.now_ns)
            elif found.reason is not Unschedulable.REQUIRED_NODE or not reserved.insist_on_node(
                state, ask, self.now_ns
            ):
                set_aside(state, group, found, self.now_ns)

    def _place_gang(self, unit: GangUnit) -> Iterator[tuple[Allocation, Node]]:
        """Places the gang of *unit* as its turn in the cycle would, or makes it wait; yields the placed members with
        their nodes. It has nobody leave, because victims are sought when nobody else finds a place."""
        members = unit.asks()
        unit.no_attempt_is_due()
        gang_turns.serve_gang(self.state, unit, self.now_ns)
        yield from ((ask, ask.node) for ask in members if ask.node is not None)

    def _place_holders(self) -> Iterator[tuple[Allocation, Node]]:
        state, turns = self.state, Turns()
        ready = sorted(state.reserved_ready, key=lambda reservation: turns.sort_key(reservation.ask))
        state.reserved_ready.clear()
        for reservation in ready:
            ask = reservation.ask
            if ask.reservation is not reservation or ask.held_on is not None:
                continue
            found = self.find_place(ask)
            if isinstance(found, Node):
                self.bind(ask, found)
                yield ask, found

    def find_limit(self, ask: Allocation) -> NotPlaced | None:
        """Returns the limit that *ask* would exceed now beside what runs and what is claimed; ``None``: none."""
        return finding.exceeded_limit(self.state, ask)

    def bind(self, ask: Allocation, node: Node) -> None:
        """Places *ask* on *node*."""
        placement.bind(self.state, ask, node, self.now_ns)

    def enter_leaf(self, placed: Placed, prospect: Prospect) -> Queue:
        """Returns the leaf at *placed*, which exists for this question only if placement would create it."""
        if placed.exists:
            return placed.above
        leaf = dynamic_queues.enter_leaf(self.state, placed, prospect)
        self.made += leaf.lineage()[: leaf.depth - placed.above.depth]
        return leaf

    def add(self, asks: Iterable[Allocation]) -> None:
        """Adds *asks*, which are pending from now on, and moves their applications to Accepted if they are new."""
        for ask in asks:
            lifecycle.ask_added(self.state, ask.application, self.now_ns)
            moves.add_ask(self.state, ask)

    def accept_application(self, application: Application) -> None:
        """Moves *application* to Accepted, as its first ask does, so that limits of applications bind it."""
        lifecycle.ask_added(self.state, application, self.now_ns)

    def attempt_preemption(self, ask: Allocation, due_ns: int) -> tuple[PreemptionPlan | Refusal, int]:
        """Preempts for *ask*, which found no room, at *due_ns* or later. Returns the plan, or why there is none, and
        the time of the attempt."""
        state = self.state
        record = state.records[GuaranteeRecord]
        known = record.gate.known_answer(ask, state.changes, self.now_ns) if budgets.may_ever_preempt(ask) else None
        if known is not None and not ask.triggered:
            return known, due_ns  # The driver would find the same, but would also record it for each ask.
        ask.dialogue = None  # The shim is not asked, and its earlier answers are ignored.
        if ask.triggered:
            return Refusal(Outcome.ALREADY_TRIGGERED), due_ns
        if ask.group is not None and ask.group.is_unit:
            return Refusal(Outcome.GANG_INCOMPLETE), due_ns
        if ask.spec.required_node:
            return self._attempt_on_required_node(ask, due_ns), due_ns
        if not guarantee.may_preempt(state, ask.queue):
            return Refusal(Outcome.POLICY_OFF, guarantee.why_off(state)), due_ns
        if self.searches == FEW_SEARCHES and isinstance(record.prospects, NoProspects):
            record.prospects = KnownProspects()
        for _ in range(MOST_PAUSES):
            # A leaf that has used up its attempts gets new ones a moment later.
            record.attempts_left.clear()
            found = guarantee.find_plan(state, ask, due_ns)
            while found is None and record.prospects.behind:
                record.prospects.behind = False  # The search goes on at once.
                found = guarantee.find_plan(state, ask, due_ns)
            if not isinstance(found, Refusal) or found.outcome is not Outcome.ROUND_LIMIT or found.retry_ns is None:
                break
            due_ns = found.retry_ns
        if isinstance(found, PreemptionPlan):
            _end_dialogues(found)
            guarantee.apply_plan(state, found, due_ns)
        assert found is not None, "nobody is asked, and nothing is enforced"
        return found, due_ns

    def _attempt_on_required_node(self, ask: Allocation, due_ns: int) -> PreemptionPlan | Refusal:
        state = self.state
        node = state.nodes.get(ask.spec.required_node)
        if node is None or not node.could_hold_shape(ask.shape):
            return Refusal(Outcome.REQUIRED_NODE, "its node is unknown or smaller than the ask")
        if finding.exceeded_limit(state, ask) is not None:
            return Refusal(Outcome.REQUIRED_NODE, "the quotas must admit it first")
        if ask.reservation is None and not reserved.insist_on_node(state, ask, due_ns):
            return Refusal(Outcome.REQUIRED_NODE, "other load leaves too little of its node")
        assert ask.reservation is not None, "room is held for it on a node that is large enough"
        found = required_node.find_plan(state, ask.reservation, due_ns)
        if isinstance(found, PreemptionPlan):
            _end_dialogues(found)
            required_node.apply_plan(state, ask.reservation, found, due_ns)
        return found or ENOUGH_LEAVES

    def due_ns(self, ask: Allocation) -> int:
        """Returns the first time from now on at which *ask* may try to preempt."""
        if ask.spec.required_node:
            return self.now_ns
        return max(self.now_ns, ask.created_ns + ask.queue.properties.preemption_delay_ns)

    def reserve_by_age(self, asks: Iterable[Allocation]) -> None:
        """Makes reservations by age for *asks*, which are equal and found no room, if they reach that age before they
        may preempt (scheduling.md 7.3)."""
        state = self.state
        delay_ns = state.reserving.delay_ns
        waiting = [ask for ask in asks if ask.reservation is None]
        if delay_ns is None or not waiting:
            return
        nodes: Iterator[Node] | None = None
        for ask in waiting:
            too_soon = self.due_ns(ask) <= ask.created_ns + delay_ns
            if too_soon and budgets.may_ever_preempt(ask) and state.preemption.enabled:
                return
            if not state.reserving.more_may_be_saved(len(state.nodes)) or not savings.may_save(state, ask):
                return
            if nodes is None:
                nodes = iter(state.reserving.shares.order_nodes(state.nodes, state.node_order, ask.shape.pairs))
            is_home = savings.find_homes(state, ask)
            free = (node for node in nodes if savings.can_save(node, ask, savings.saved_on(node)) and is_home(node))
            node = next(free, None)
            if node is None:
                return
            reserve_node(state, ask, node, ask.created_ns + delay_ns + 1, by_age=True)

    def lose_node(self, node: Node) -> list[Allocation]:
        """Removes *node* with all allocations there, which are returned, and makes asks with reservations there wait in
        line."""
        state = self.state
        state.node_order.discard(node)
        for reservation in list(node.reservations.values()):
            end_reservation(state, reservation, requeue=True)
            moves.end_claim(state, reservation.ask)
        gone = [allocation for allocation in node.allocations.values() if allocation.replaces is None]
        del state.nodes[node.node_id]
        if state.topology is not None:
            state.topology.remove_node(node)
        for allocation in gone:
            moves.free_allocation(state, allocation)
        note_lost_capacity(state, node)
        ledger.capacity_changed(state, node.capacity, [])
        wake_waiting(state)
        refresh_fair_terms(state)
        return gone

    def set_limits(self, queue: Queue, guaranteed: dict[int, int], maximum: dict[int, int]) -> None:
        """Gives *queue* another guarantee and max, and computes the fair shares below it again."""
        queue.set_limits(guaranteed, maximum)
        refresh_fair_terms_below(queue)
        wake_for_queue(self.state, queue)
        self.state.rules_changed()

    def set_priority(self, request: Allocation, priority: int) -> Allocation:
        """Gives *request* another priority. Returns *request*; if it is pending, the ask that replaces it."""
        state, spec = self.state, request.spec._replace(priority=priority)
        if request.pending:
            if request.held_on is not None or request.place is AskPlace.REFUSED:
                request.spec = spec
                return request
            eviction.forget_ask(state, request)
            moves.drop_ask(state, request)
            changed = Allocation(spec, request.application, request.shape, request.created_ns, state.next_number())
            self.add([changed])
            return changed
        request.spec = spec
        request.standing = standing_of(spec)
        state.rules_changed()
        state.victim_index.drop_ranking(request.queue)
        return request


def _end_dialogues(plan: PreemptionPlan) -> None:
    """Ends what the shim is asked about members of gangs of which *plan* has somebody leave."""
    for application in dict.fromkeys(victim.application for victim in plan.victims if victim.application.task_groups):
        for ask in application.asks.values():
            ask.dialogue = None


_CUT_SHORT: Final = Refusal(Outcome.GANG_INCOMPLETE, "the search for victims was cut short", cut_short=True)


def find_unit_plan(
    state: PartitionState, members: Sequence[Allocation], limited: NotPlaced, now_ns: int
) -> GangPlan | Refusal:
    """Returns the places and victims for *members*, a supposed gang that *limited* keeps back, or the reason why no
    victims would leave. Changes nothing."""
    if not limited.preemption_may_help:
        return Refusal(Outcome.USER_QUOTA, "victims make no room within this limit")
    if not state.guarantee_preemption:
        return Refusal(Outcome.POLICY_OFF, guarantee.why_off(state))
    if not members[0].spec.allow_preempt_other:
        return Refusal(Outcome.ASK_MAY_NOT_PREEMPT)
    if members[0].spec.required_node:
        return Refusal(Outcome.REQUIRED_NODE)
    with savings.lift_saved(state, list_usable(state, members)):
        return _search_for_unit(state, members, now_ns)


def _search_for_unit(state: PartitionState, members: Sequence[Allocation], now_ns: int) -> GangPlan | Refusal:
    search = GangSearch(members, state.marks, mends=False, refused={})
    tools = Tools(state.node_order, state.victim_index, None)
    for _ in range(min(MOST_STEPS, max(2, MOST_LOOKS // max(1, len(state.nodes))))):
        found = search.take_step(state, tools, now_ns)
        if isinstance(found, GangPlan):
            broken = laws.check(state, found)
            return Refusal(Outcome.LAW_BROKEN, "; ".join(v.detail for v in broken)) if broken else found
        if found is not None:
            return found
    return _CUT_SHORT


def find_moment(state: PartitionState, plan: GangPlan, due_ns: int) -> tuple[GangPlan | Refusal, int]:
    """Returns *plan* and the first time, from *due_ns* on, at which the limit of one interval has room for it, or the
    bound that forbids it then."""
    for _ in range(MOST_PAUSES):
        held = guarantee.hold_back(state, plan.places[0].ask, due_ns)
        if held is None:
            break
        if held.retry_ns is None:
            return held, due_ns
        due_ns = held.retry_ns
    if plan.victims:
        denied = budgets.judge_plan(state, plan, due_ns)
        if denied is not None:
            return Refusal(denied.outcome, denied.detail, retry_ns=denied.retry_ns), due_ns
    return (Refusal(Outcome.SHADOW) if budgets.is_shadowed(state, plan.kind) else plan), due_ns
