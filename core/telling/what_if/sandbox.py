"""Runs the engine's own functions on the live records of a partition, which a journal restores afterwards.

Asks are added, tried, placed, set aside, given reservations and woken, victims are marked and nodes are lost by the
same functions as in the engine: those of :mod:`kornel.core.state.asks`, :mod:`kornel.core.state.waiting` and
:mod:`kornel.core.engine.scheduling`, and the drivers of preemption. So a forecast has no rules of its own. This
module only knows which records such a function may change, so that they are kept before it is called:

- of an ask that moves: the ask, its size, the group of its equals, its reservation with its node, and its application;
- of an application: itself, its queues up to the root, its accounts, and the applications and asks that are held back
  at one of these, because an application that starts, or does not, may pass on its turn;
- of a node: itself with all claims there, and the asks that made these claims, which may have to give way;
- of an ask that preempts: those in its leaf to whom its claim may pass, because they are woken;
- the partition's own lists, counters, clocks and books, always;
- everything that waits and may be woken. If the question concerns everybody, this is everything that waits. If it
  concerns one application or ask, the others are assumed to have found nothing, and their waiting rooms are empty for
  the duration of the question.

Effects, timers and events stay inside: the list of effects is one of the lists that are restored, and nothing is
recorded. The shim is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.engine import lifecycle
from kornel.core.engine.configuration import dynamic_queues
from kornel.core.engine.configuration.dynamic_queues import Prospect
from kornel.core.engine.gangs import gang_turns
from kornel.core.engine.gangs.gang_places import Places, find_places
from kornel.core.engine.scheduling import limit_savings, loans, placement, reserved, vetting
from kornel.core.engine.scheduling.cycle import set_aside
from kornel.core.engine.scheduling.reserving import Turns
from kornel.core.model.allocations import Allocation, AskGroup, standing_of
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import GangUnit, unit_of
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.orders.waiting_rooms import WaitingRoom
from kornel.core.model.queues import Queue
from kornel.core.policies.placement.decide import Placed
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.guarantee import gang_laws
from kornel.core.preemption.guarantee.attempts import drive as guarantee
from kornel.core.preemption.guarantee.gangs.search import GangSearch, Tools
from kornel.core.preemption.guarantee.guarantee_record import GuaranteeRecord
from kornel.core.preemption.guarantee.search.prospects import NoProspects
from kornel.core.preemption.plan import GangPlan, PreemptionPlan, Refusal
from kornel.core.preemption.required_node import drive as required_node
from kornel.core.state.asks import finding, moves, savings
from kornel.core.state.asks.reservations import end_reservation, reserve_node
from kornel.core.state.books import ledger
from kornel.core.state.books.fair_terms import refresh_fair_terms, refresh_fair_terms_below
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.missing_shares import MissingShares
from kornel.core.state.waiting.gathering import minimum_members
from kornel.core.state.waiting.places import refused_asks
from kornel.core.state.waiting.rooms import Gate, note_lost_capacity
from kornel.core.state.waiting.turns import first_group
from kornel.core.state.waiting.waking import wake_for_queue, wake_waiting
from kornel.core.telling.preemption.outlook import ReadingIndex
from kornel.core.telling.what_if.undo_journal import Journal

MOST_STEPS: Final = 200
MOST_LOOKS: Final = 10_000
"""The most steps of a search for victims, and the most nodes examined in all of them, before the answer says that it
was cut short."""
MOST_SEARCHES: Final = 4
"""The most searches for victims in one answer, because each takes milliseconds in a large cluster."""
MOST_PAUSES: Final = 8
"""The most pauses, due to the limit of one interval, over which one ask is followed."""

ENOUGH_LEAVES: Final = Refusal(Outcome.REQUIRED_NODE, "room on its node is leaving already")
"""The refusal of an ask for which the victims of earlier asks free enough room. The next equal ask may still lack
room."""

_LEFT_ALONE: Final = frozenset({"requests", "instances"})
"""The lists of all requests, which are long and do not change between the arrival and the end of an ask."""


class Sandbox:
    """A partition whose records the journal notes before they change; when the context of the journal ends, the
    partition is restored."""

    def __init__(
        self, state: PartitionState, journal: Journal, index: ReadingIndex, now_ns: int, *, everybody: bool
    ) -> None:
        """Prepares the sandbox. With *everybody*, waiting asks are tried as well as soon as something wakes them."""
        self.state = state
        self.journal = journal
        self.now_ns = now_ns
        self.index = index
        self._searches_before = state.preemption_attempts
        self._gates: set[Gate] = set()
        self._moving: set[Allocation] = set()
        """The asks that are kept with all records that change when they move."""
        self._groups: dict[Application, frozenset[AskGroup]] = {}
        """The groups of asks that each kept application, including supposed ones, had at first."""
        self.shim_has_a_say = state.callbacks.predicates or state.callbacks.preemption_predicates
        self.everybody = everybody
        self._begin_cycle()
        if everybody:
            self._keep_waiting()
        else:
            self._empty_rooms()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A group and its waiting room refer to each other, so if they are made here, only the garbage collector would
        # free them.
        for application, before in self._groups.items():
            for group in application.groups.values():
                if group not in before:
                    group.parked_at = None

    @property
    def searches(self) -> int:
        """The number of searches for victims made so far."""
        return self.state.preemption_attempts - self._searches_before

    def _begin_cycle(self) -> None:
        state, journal = self.state, self.journal
        journal.keep_record(state, but=_LEFT_ALONE)
        for room in state.awake:
            journal.keep_record(room)
        # Rankings are kept for the next question; making prospects would take longer than a search without them.
        for record, name, value in (
            (state, "recording", False),
            (state, "victim_index", self.index),
            (state.records[GuaranteeRecord], "prospects", NoProspects()),
            (state.reserving, "shares", MissingShares()),
        ):
            setattr(record, name, value)
        state.callbacks.predicates = state.callbacks.preemption_predicates = False
        state.callbacks.open.clear()
        state.callbacks.now_ns = self.now_ns
        # The enforcement of lowered maxima comes before preemption for guarantees, and is over when that has its turn.
        state.enforcement.run = None
        state.enforcement.due.clear()
        for ask in refused_asks(state):
            self._keep_ask(ask)

    def _keep_waiting(self) -> None:
        for application in self.state.applications.values():
            if application.asks:
                self._keep_groups(application)
        for reservation in self.state.reservations.values():
            self._keep_ask(reservation.ask)
        for claim in self.state.reserving.at_limits:
            self._keep_ask(claim.ask)

    def _empty_rooms(self) -> None:
        state = self.state
        for shape in state.no_room:
            self.journal.keep_record(shape)
            shape.no_room = False
        state.no_room.clear()
        state.awake.clear()
        state.waiting_for_node.clear()
        state.waiting_for_domain.clear()
        state.gangs.without_room.clear()
        state.gangs.gathering.clear()
        state.gangs.rooms.clear()

    def _keep_groups(self, application: Application) -> None:
        self._keep_application(application)
        for group in application.groups.values():
            self._keep_group(group)

    def _keep_group(self, group: AskGroup) -> None:
        self.journal.keep_record(group)
        self.journal.keep_record(group.shape)
        if isinstance(group.parked_at, WaitingRoom):
            self.journal.keep_record(group.first_ask())  # Its log is added to when the group leaves the room.

    def _keep_ask(self, ask: Allocation) -> None:
        if ask in self._moving:
            return
        self._moving.add(ask)
        journal, application = self.journal, ask.application
        self._keep_application(application)
        journal.keep_record(ask)
        journal.keep_record(ask.shape)
        unit = application.groups.get(unit_of(ask).key)
        if unit is not None:
            self._keep_group(unit)
        group = application.groups.get(ask.group_key)
        if group is not None:
            self._keep_group(group)
        if ask.reservation is not None:
            journal.keep_record(ask.reservation)
            self._keep_node(ask.reservation.node)

    def _keep_application(self, application: Application) -> None:
        if application in self.journal:
            return
        self.journal.keep_record(application)
        self._groups[application] = frozenset(application.groups.values())
        for queue in application.queue.lineage():
            self._keep_gate(queue)
        for account in application.accounts:
            self._keep_gate(account)

    def _keep_gate(self, gate: Gate) -> None:
        if gate in self._gates:
            return
        self._gates.add(gate)
        self.journal.keep_record(gate, but=("accounts", "applications", "children"))
        if isinstance(gate, Queue):
            for application in gate.starting:
                self.journal.keep_record(application)
        for waiting in gate.held_back.values():
            for application in waiting:
                self._keep_groups(application)
        if not self.everybody:
            gate.parked.clear()

    def _keep_node(self, node: Node) -> None:
        if node in self.journal:
            return
        self.journal.keep_record(node)
        for domain in node.domains:
            self.journal.keep_record(domain)
        for reservation in node.reservations.values():
            self.journal.keep_record(reservation)
            self._keep_ask(reservation.ask)

    def find_place(self, ask: Allocation) -> Node | NotPlaced:
        """Returns the node that *ask* would get now, tried first on the node where room is held for it, or why there is
        none."""
        self.journal.keep_record(ask.shape)
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
                self._choose_savers()
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
                self._keep_ask(ask)
                vetting.refused_everywhere(state, ask, self.now_ns)
            elif found.reason is not Unschedulable.REQUIRED_NODE or not self._insist_on_node(ask, self.now_ns):
                self.journal.keep_record(ask)
                set_aside(state, group, found, self.now_ns)

    def _choose_savers(self) -> None:
        """Lets those save below limits for whom too little came free there (preemption.md B.7)."""
        for ask, _ in limit_savings.find_part(self.state, limit_savings.find_waiters(self.state), self.now_ns)[0]:
            self._keep_ask(ask)
        limit_savings.choose_savers(self.state, self.now_ns)

    def _place_gang(self, unit: GangUnit) -> Iterator[tuple[Allocation, Node]]:
        """Places the gang of *unit* as its turn in the cycle would, or makes it wait; yields the placed members with
        their nodes. It has nobody leave, because victims are sought when nobody else finds a place."""
        members = unit.asks()
        for ask in members:
            self._keep_ask(ask)
        unit.no_attempt_is_due()
        chosen = self.find_places(unit.application, minimum_members(unit))
        if isinstance(chosen, Places):
            for _, node in chosen.nodes:
                self._keep_node(node)
        gang_turns.serve_gang(self.state, unit, self.now_ns)
        yield from ((ask, ask.node) for ask in members if ask.node is not None)

    def find_places(self, application: Application, members: Sequence[Allocation]) -> Places | NotPlaced:
        """Returns the nodes that *members*, a whole gang, would get now, or what keeps it back."""
        for claim in self.state.reserving.saved:
            self._keep_node(claim.node)  # It may be tried without what is saved there.
        return find_places(self.state, application, members)

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

    def _insist_on_node(self, ask: Allocation, now_ns: int) -> bool:
        """Reserves the required node of *ask*. Returns false if the node is unknown or too small."""
        node = self.state.nodes.get(ask.spec.required_node)
        if node is not None:
            self._keep_node(node)
        self._keep_ask(ask)
        return reserved.insist_on_node(self.state, ask, now_ns)

    def bind(self, ask: Allocation, node: Node) -> None:
        """Places *ask* on *node*."""
        self._keep_ask(ask)
        self._keep_node(node)
        placement.bind(self.state, ask, node, self.now_ns)

    def enter_leaf(self, placed: Placed, prospect: Prospect) -> Queue:
        """Returns the leaf at *placed*, which exists for this question only if placement would create it."""
        if placed.exists:
            return placed.above
        self.journal.keep_record(placed.above)
        for ancestor in placed.above.lineage():
            self._keep_gate(ancestor)
        leaf = dynamic_queues.enter_leaf(self.state, placed, prospect)
        self.journal.made += leaf.lineage()[: leaf.depth - placed.above.depth]
        return leaf

    def add(self, asks: Iterable[Allocation]) -> None:
        """Adds *asks*, which are pending from now on, and moves their applications to Accepted if they are new."""
        for ask in asks:
            self._keep_ask(ask)
            lifecycle.ask_added(self.state, ask.application, self.now_ns)
            moves.add_ask(self.state, ask)

    def accept_application(self, application: Application) -> None:
        """Moves *application* to Accepted, as its first ask does, so that limits of applications bind it."""
        self._keep_application(application)
        lifecycle.ask_added(self.state, application, self.now_ns)

    def attempt_preemption(self, ask: Allocation, due_ns: int) -> tuple[PreemptionPlan | Refusal, int]:
        """Preempts for *ask*, which found no room, at *due_ns* or later. Returns the plan, or why there is none, and
        the time of the attempt."""
        state = self.state
        record = state.records[GuaranteeRecord]
        known = record.gate.known_answer(ask, state.changes) if budgets.may_ever_preempt(ask) else None
        if known is not None and not ask.triggered:
            return known, due_ns  # The driver would find the same, but would also record it for each ask.
        self.journal.keep_record(ask)
        ask.dialogue = None  # The shim is not asked, and its earlier answers are ignored.
        if ask.triggered:
            return Refusal(Outcome.ALREADY_TRIGGERED), due_ns
        if ask.group is not None and ask.group.is_unit:
            return Refusal(Outcome.GANG_INCOMPLETE), due_ns
        if ask.spec.required_node:
            return self._attempt_on_required_node(ask, due_ns), due_ns
        if not state.guarantee_preemption:
            return Refusal(Outcome.POLICY_OFF, guarantee.why_off(state)), due_ns
        for _ in range(MOST_PAUSES):
            # A leaf that has used up its attempts gets new ones a moment later.
            record.attempts_left.clear()
            found = guarantee.find_plan(state, ask, due_ns)
            if not isinstance(found, Refusal) or found.outcome is not Outcome.ROUND_LIMIT or found.retry_ns is None:
                break
            due_ns = found.retry_ns
        if isinstance(found, PreemptionPlan):
            self._keep_plan(found)
            guarantee.apply_plan(state, found, due_ns)
        assert found is not None, "nobody is asked, nothing is enforced, and a search is made in one go"
        return found, due_ns

    def _attempt_on_required_node(self, ask: Allocation, due_ns: int) -> PreemptionPlan | Refusal:
        state = self.state
        node = state.nodes.get(ask.spec.required_node)
        if node is None or not node.could_hold_shape(ask.shape):
            return Refusal(Outcome.REQUIRED_NODE, "its node is unknown or smaller than the ask")
        if finding.exceeded_limit(state, ask) is not None:
            return Refusal(Outcome.REQUIRED_NODE, "the quotas must admit it first")
        if ask.reservation is None and not self._insist_on_node(ask, due_ns):
            return Refusal(Outcome.REQUIRED_NODE, "other load leaves too little of its node")
        self._keep_node(node)
        self._keep_ask(ask)
        assert ask.reservation is not None, "room is held for it on a node that is large enough"
        found = required_node.find_plan(state, ask.reservation, due_ns)
        if isinstance(found, PreemptionPlan):
            self._keep_plan(found)
            required_node.apply_plan(state, ask.reservation, found, due_ns)
        return found or ENOUGH_LEAVES

    def _keep_plan(self, plan: PreemptionPlan) -> None:
        self._keep_ask(plan.ask)
        self._keep_node(plan.node)
        self._keep_claimants(plan.ask)
        for victim in plan.victims:
            self._keep_allocation(victim)
        for application in dict.fromkeys(victim.application for victim in plan.victims):
            if application.task_groups:
                self._keep_gang(application)

    def _keep_claimants(self, holder: Allocation) -> None:
        """Keeps those who are woken because the claim of *holder*, or an earlier one in its leaf, may pass to them."""
        leaf = holder.queue
        least = min(each.turn_priority for each in (holder, *leaf.claimants))
        for room in leaf.rooms:
            for application, rank in room.branches[leaf].ranks.items():
                if rank > least:
                    self._keep_groups(application)
        for claim in self.state.reserving.saved:
            if claim.ask.queue is leaf:
                self.journal.keep_record(claim)

    def _keep_gang(self, application: Application) -> None:
        """Keeps the asks of a gang, which give back the room that is held for them if all members that run leave."""
        for ask in application.asks.values():
            self._keep_ask(ask)
            ask.dialogue = None  # The shim is not told that its answers are no longer needed.
            if ask.held_on is not None:
                self._keep_node(ask.held_on)
            if ask.reservation is not None:
                self._keep_node(ask.reservation.node)

    def _keep_allocation(self, allocation: Allocation) -> None:
        self.journal.keep_record(allocation)
        self._keep_application(allocation.application)
        if allocation.node is not None:
            self._keep_node(allocation.node)

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
            node = next((node for node in nodes if savings.can_save(node, ask, savings.saved_on(node))), None)
            if node is None:
                return
            self._keep_ask(ask)
            self._keep_node(node)
            reserve_node(state, ask, node, ask.created_ns + delay_ns + 1, by_age=True)

    def lose_node(self, node: Node) -> list[Allocation]:
        """Removes *node* with all allocations there, which are returned, and makes asks with reservations there wait in
        line."""
        state = self.state
        self._keep_node(node)
        self._keep_queues(state.root)
        state.node_order.discard(node)
        for reservation in list(node.reservations.values()):
            end_reservation(state, reservation, requeue=True)
            moves.end_claim(state, reservation.ask)
        gone = [allocation for allocation in node.allocations.values() if allocation.replaces is None]
        for allocation in gone:
            self._keep_allocation(allocation)
        del state.nodes[node.node_id]
        if state.topology is not None:
            self.journal.keep_record(state.topology)
            state.topology.remove_node(node)
        for allocation in gone:
            moves.free_allocation(state, allocation)
        for shape in state.holders.get(node, ()):
            self.journal.keep_record(shape)
        note_lost_capacity(state, node)
        ledger.capacity_changed(state, node.capacity, [])
        wake_waiting(state)
        refresh_fair_terms(state)
        return gone

    def set_limits(self, queue: Queue, guaranteed: dict[int, int], maximum: dict[int, int]) -> None:
        """Gives *queue* another guarantee and max, and computes the fair shares below it again."""
        for ancestor in queue.lineage():
            self._keep_gate(ancestor)
        self._keep_queues(queue)
        queue.set_limits(guaranteed, maximum)
        refresh_fair_terms_below(queue)
        wake_for_queue(self.state, queue)
        self.state.rules_changed()

    def _keep_queues(self, top: Queue) -> None:
        stack = [top]
        while stack:
            queue = stack.pop()
            self._keep_gate(queue)
            stack.extend(queue.children.values())

    def set_priority(self, request: Allocation, priority: int) -> Allocation:
        """Gives *request* another priority. Returns *request*; if it is pending, the ask that replaces it."""
        state, spec = self.state, request.spec._replace(priority=priority)
        self._keep_ask(request)
        if request.pending:
            if request.held_on is not None or request.place is AskPlace.REFUSED:
                request.spec = spec
                return request
            for victim in request.victims.values():
                self._keep_allocation(victim)
            for member in request.group.unordered_asks() if request.group is not None and request.group.is_unit else ():
                self._keep_ask(member)  # The gang is tried without it.
            eviction.forget_ask(state, request)
            moves.drop_ask(state, request)
            changed = Allocation(spec, request.application, request.shape, request.created_ns, state.next_number())
            self.add([changed])
            return changed
        request.spec = spec
        request.standing = standing_of(spec)
        state.rules_changed()
        self.index.drop_ranking(request.queue)
        return request


_CUT_SHORT: Final = Refusal(Outcome.GANG_INCOMPLETE, "the search for victims was cut short", cut_short=True)


def find_unit_plan(
    state: PartitionState, index: ReadingIndex, members: Sequence[Allocation], limited: NotPlaced, now_ns: int
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
    search = GangSearch(members, state.marks, mends=False, refused={})
    tools = Tools(state.node_order, index, None)
    for _ in range(min(MOST_STEPS, max(2, MOST_LOOKS // max(1, len(state.nodes))))):
        found = search.take_step(state, tools, now_ns)
        if isinstance(found, GangPlan):
            broken = gang_laws.check(state, found)
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
