"""A partition to try things on: the live records, with every change noted in a journal.

Limits, node order and victims are those of the engine: :func:`kornel.core.partition.asks.finding.kept_back`, the live
:class:`kornel.core.model.node_order.NodeOrder` and the planners. Only the search for a node is written anew, because
the live one remembers what it found: nodes that were not touched are read from the live order, the few others from
one of our own, and of both the better one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.priorities import NOTHING_WAITS, exposed
from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.domain.settings import GuaranteeMode, PriorityPolicy
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.claims import Claims
from kornel.core.model.node_order import NodeOrder
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, ResourceTypes
from kornel.core.partition.asks import finding
from kornel.core.partition.books import ledger
from kornel.core.partition.scheduling.reserving import by_missing_share, most_kept_by_age
from kornel.core.partition.state import PartitionState
from kornel.core.policies.queue_order import fair_terms
from kornel.core.preemption import attempts
from kornel.core.preemption import judging as laws
from kornel.core.preemption.governor import governing
from kornel.core.preemption.guarantee import planner as guarantee
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.preemption.required_node import planner as required_node
from kornel.core.telling.nodes.node_blockers import fits_on
from kornel.core.telling.preemption.outlook import ReadingIndex
from kornel.core.telling.what_if.undo_journal import Journal

MOST_SEARCHES: Final = 4
"""Searches for victims in one answer: each takes milliseconds in a large cluster."""


class View:
    """The partition as planners see it, without the nodes that are supposed to be gone."""

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        self.nodes: Mapping[str, Node] = state.nodes

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def root(self) -> Queue:
        return self._state.root

    @property
    def types(self) -> ResourceTypes:
        return self._state.types

    @property
    def guarantee_mode(self) -> GuaranteeMode:
        return self._state.guarantee_mode

    @property
    def given_up(self) -> Mapping[Allocation, object]:
        return self._state.given_up

    @property
    def victim_order(self) -> str:
        return self._state.victim_order


class Sandbox:
    """Everything here writes through the journal; leaving it restores the partition."""

    def __init__(self, state: PartitionState, journal: Journal, index: ReadingIndex, now_ns: int) -> None:
        self.state = state
        self.journal = journal
        self.now_ns = now_ns
        self.view = View(state)
        self.index = index
        self._priorities: dict[Application, Counter[int]] = {}
        self._expected: dict[Allocation, None] = {}
        """Supposed asks, which lend their priorities like those that wait."""
        self.searches = 0
        """Full searches for victims so far."""
        self._moved = NodeOrder(state.node_order.score_of)
        """Touched nodes that are open to placement."""
        self._moved.widen(len(state.types.names))
        self._touched: dict[Node, None] = {}
        self._untouched: dict[Pairs, tuple[Iterator[Node], Node | None]] = {}
        """By demand, the live nodes with room in order, and the first of them not passed yet."""

    def find(self, ask: Allocation) -> Node | NotPlaced:
        """As :func:`kornel.core.partition.asks.finding.find_node`, for an ask that may have a node kept for it."""
        limited = finding.kept_back(self.state, ask)
        if limited is not None:
            return limited
        pairs, refused = ask.shape.pairs, ask.refused or {}
        if ask.spec.required_node:
            node = self.view.nodes.get(ask.spec.required_node)
            if node is None or not fits_on(node, ask):
                return NotPlaced(Unschedulable.REQUIRED_NODE)
            return NotPlaced(Unschedulable.REFUSED_BY_PREDICATE) if node.node_id in refused else node
        own = ask.reservation.node if ask.reservation is not None else None
        if own is not None and fits_on(own, ask) and own.node_id not in refused and own.node_id in self.view.nodes:
            return own
        found = self._first(pairs)
        if found is not None and found.node_id in refused:
            acceptable = [node for node in self._open() if node.fits(pairs) and node.node_id not in refused]
            if not acceptable:
                return NotPlaced(Unschedulable.REFUSED_BY_PREDICATE)
            return min(acceptable, key=_place)
        return found if found is not None else NotPlaced(Unschedulable.NO_FITTING_NODE)

    def _first(self, pairs: Pairs) -> Node | None:
        known = self._untouched.get(pairs)
        if known is None:
            nodes = self.state.node_order.fitting(pairs)
            known = (nodes, next(nodes, None))
        nodes, first = known
        while first is not None and first in self._touched:
            first = next(nodes, None)
        self._untouched[pairs] = (nodes, first)
        moved = self._moved.first_fit(pairs)
        if first is None or moved is None:
            return first or moved
        return min(first, moved, key=_place)

    def _open(self) -> Iterable[Node]:
        yield from self._moved
        yield from (node for node in self.state.node_order if node not in self._touched)

    def bind(self, ask: Allocation, node: Node) -> None:
        """*ask* runs on *node*: charged on every level, as :func:`kornel.core.partition.scheduling.placement.bind`
        does.
        """
        journal, application, pairs = self.journal, ask.application, ask.shape.pairs
        if ask.reservation is not None:
            self._unreserve(ask.reservation)
        if ask.triggered:
            self._unclaim(ask)
        self.move(node, pairs, -1)
        for queue in ask.queue.lineage():
            journal.add(queue.used, pairs)
            journal.add(queue.pending, pairs, -1)
        for account in application.accounts:
            journal.add(account.used, pairs)
            journal.insert(account.holders, application)
        journal.add(application.placeholder if ask.spec.placeholder else application.real, pairs)
        self._asks_no_more(ask)
        if application.state is AppState.ACCEPTED and not application.allocating:
            journal.set(application, "allocating", True)
            for queue in ask.queue.lineage():
                journal.insert(queue.allocating, application)

    def move(self, node: Node, pairs: Pairs, sign: int) -> None:
        """*node* has *pairs* more room (*sign* 1) or less (-1)."""
        self._touch(node)
        is_open = node in self._moved
        self._moved.discard(node)
        self.journal.add(node.free, pairs, sign)
        self.journal.add(node.allocated, pairs, -sign)
        self._settle_claims(node)
        if is_open:
            self._moved.add(node)

    def _settle_claims(self, node: Node) -> None:
        """What is open on *node* follows from what is free and claimed there."""
        claims = node.claims
        if claims is not None:
            self.journal.set(node, "open", claims.open_room(node.free))
        elif node.open is not node.free:
            self.journal.set(node, "open", node.free)

    def _claim(self, node: Node, claims: Claims) -> None:
        """*claims* are what is claimed on *node* from now on."""
        self._touch(node)
        is_open = node in self._moved
        self._moved.discard(node)
        self.journal.set(node, "claims", claims or None)
        self._settle_claims(node)
        if is_open:
            self._moved.add(node)

    def close(self, node: Node) -> None:
        """Nothing is placed on *node* any more."""
        self._touch(node)
        self._moved.discard(node)

    def _touch(self, node: Node) -> None:
        if node not in self._touched:
            self._touched[node] = None
            self.journal.set(node, "score", node.score)
            if node in self.state.node_order:
                self._moved.add(node)

    def attempt(self, ask: Allocation, not_before_ns: int) -> PreemptionPlan | Refusal:
        """Have victims leave for *ask*, which found no room; marked and claimed on success, as by the engine."""
        if ask.triggered:
            return Refusal(Outcome.ALREADY_TRIGGERED)
        if ask.spec.required_node:
            node = self.view.nodes.get(ask.spec.required_node)
            if node is None or not node.could_hold(ask.shape.pairs):
                return Refusal(Outcome.REQUIRED_NODE, "its node is unknown or smaller than the ask")
            if finding.kept_back(self.state, ask) is not None:
                return Refusal(Outcome.REQUIRED_NODE, "the quotas must admit it first")
            if required_node.KIND not in self.state.preemption.policies:
                return Refusal(Outcome.POLICY_OFF, "preemption.policies does not list required-node")
            result = required_node.plan(self.view, ask, node)
        elif not self.state.preemption.enabled:
            return Refusal(Outcome.ASK_MAY_NOT_PREEMPT, "preemption.enabled is off")
        elif guarantee.KIND not in self.state.preemption.policies:
            return Refusal(Outcome.POLICY_OFF, "preemption.policies does not list guarantee")
        elif not ask.spec.allow_preempt_other:
            return Refusal(Outcome.ASK_MAY_NOT_PREEMPT, "its preemption policy lets it preempt nobody")
        else:
            result = guarantee.plan(self.view, ask, index=self.index, now_ns=not_before_ns)
        if isinstance(result, Refusal):
            self.searches += result.outcome in (Outcome.NO_NODE, Outcome.NO_CANDIDATES)
            return result
        self.searches += 1
        if laws.check(self.view, result):
            return Refusal(Outcome.LAW_BROKEN)
        too_many = governing.too_many(self.state, result)
        if too_many is not None:
            return Refusal(too_many.outcome, too_many.detail)
        self._apply(result, not_before_ns)
        return result

    def due_ns(self, ask: Allocation) -> int:
        """When *ask* may first try to preempt, from now on."""
        if ask.spec.required_node:
            return self.now_ns
        return max(self.now_ns, ask.created_ns + ask.queue.properties.preemption_delay_ns)

    def reserve_by_age(self, asks: Iterable[Allocation]) -> None:
        """Hold room for *asks*, equals that no node has room for, as they grow old before they may preempt (7.3)."""
        delay_ns = self.state.reserving.delay_ns
        waiting = [ask for ask in asks if ask.reservation is None]
        if delay_ns is None or not waiting:
            return
        pairs = waiting[0].shape.pairs
        most = most_kept_by_age(self.state, len(self.view.nodes))
        nodes: Iterator[Node] | None = None
        for ask in waiting:
            too_soon = self.due_ns(ask) <= ask.created_ns + delay_ns
            if too_soon and attempts.may_ever_preempt(ask) and self.state.preemption.enabled:
                return
            if self.state.reserving.kept >= most or not ledger.promise_is_sound(ask):
                return
            if nodes is None:
                nodes = iter(by_missing_share(sorted(self._open(), key=_place), pairs))
            node = next(nodes, None)
            if node is None:
                return
            self.journal.set(self.state.reserving, "kept", self.state.reserving.kept + 1)
            for queue in ask.queue.lineage():
                self.journal.add(queue.promised, pairs)
            self._reserve(ask, node, ask.created_ns + delay_ns + 1, by_age=True)

    def expect(self, asks: Iterable[Allocation]) -> None:
        """*asks* are pending as well: that moves their queues and applications in order."""
        for ask in asks:
            for queue in ask.queue.lineage():
                self.journal.add(queue.pending, ask.shape.pairs)
            self._priorities_of(ask.application)[ask.priority] += 1
            self._expected[ask] = None
            self.show_priority(ask.application)

    def _asks_no_more(self, ask: Allocation) -> None:
        if not self._lends(ask):
            return
        priorities = self._priorities_of(ask.application)
        priorities[ask.priority] -= 1
        if priorities[ask.priority] <= 0:
            del priorities[ask.priority]
            self.show_priority(ask.application)

    def _lends(self, ask: Allocation) -> bool:
        """Whether *ask* lends its application its priority: it waits for its turn or for room (preemption.md G)."""
        if ask.group is not None:
            return ask.group.lent != NOTHING_WAITS
        return ask.pool is not None or ask in self._expected

    def _priorities_of(self, application: Application) -> Counter[int]:
        """How many of its asks lend it each priority."""
        found = self._priorities.get(application)
        if found is None:
            found = Counter(ask.priority for ask in application.asks.values() if self._lends(ask))
            self._priorities[application] = found
        return found

    def show_priority(self, application: Application) -> None:
        """What *application* and the queues above it show, now that its asks are others (preemption.md G)."""
        highest = max(self._priorities_of(application), default=NOTHING_WAITS)
        if highest != application.priority:
            self.journal.set(application, "priority", highest)
            self._refresh_priorities(application.queue)

    def _apply(self, plan: PreemptionPlan, at_ns: int) -> None:
        journal, ask, node = self.journal, plan.ask, plan.node
        for victim in plan.victims:
            journal.set(victim, "place", AskPlace.PREEMPTED)
            journal.set(victim.application, "preempted_count", victim.application.preempted_count + 1)
            for queue in victim.queue.lineage():
                journal.add(queue.preempting, victim.shape.pairs)
            if victim.node is not None:
                claims = self._claims_of(victim.node)
                claims.expect_exit(victim)
                self._claim(victim.node, claims)
        journal.set(ask, "triggered", True)
        for queue in ask.queue.lineage():
            journal.add(queue.claimed, ask.shape.pairs)
            journal.set(queue, "claims", queue.claims + 1)
        if ask.reservation is not None:
            self._unreserve(ask.reservation)
        self._reserve(ask, node, at_ns)

    def _claims_of(self, node: Node) -> Claims:
        """A copy of what is claimed on *node*, to be changed."""
        return Claims(len(node.free)) if node.claims is None else node.claims.copy()

    def _reserve(self, ask: Allocation, node: Node, at_ns: int, *, by_age: bool = False) -> None:
        reservation = Reservation(ask, node, at_ns, by_age=by_age)
        self.journal.set(ask, "reservation", reservation)
        claims = self._claims_of(node)
        claims.add(reservation)
        self._claim(node, claims)

    def _unclaim(self, ask: Allocation) -> None:
        self.journal.set(ask, "triggered", False)
        for queue in ask.queue.lineage():
            self.journal.add(queue.claimed, ask.shape.pairs, -1)
            self.journal.set(queue, "claims", queue.claims - 1)

    def _unreserve(self, reservation: Reservation) -> None:
        ask, node = reservation.ask, reservation.node
        self.journal.set(ask, "reservation", None)
        if reservation.by_age:
            self.journal.set(self.state.reserving, "kept", self.state.reserving.kept - 1)
            for queue in ask.queue.lineage():
                self.journal.add(queue.promised, ask.shape.pairs, -1)
        claims = self._claims_of(node)
        claims.drop(reservation)
        self._claim(node, claims)

    def lose(self, node: Node) -> list[Allocation]:
        """*node* is gone with all it held. Returns what ran there."""
        journal, state = self.journal, self.state
        gone = [allocation for allocation in node.allocations.values() if allocation.replaces is None]
        for reservation in list(node.reservations.values()):
            ask = reservation.ask
            self._unreserve(reservation)
            if ask.triggered:
                self._unclaim(ask)
        self.view.nodes = {name: other for name, other in state.nodes.items() if other is not node}
        self.close(node)
        lost: dict[str, dict[str, Allocation]] = {}
        for allocation in gone:
            self._release(allocation)
            lost.setdefault(allocation.application.application_id, {})[allocation.key] = allocation
        for application_id, allocations in lost.items():
            application = state.applications[application_id]
            kept = {key: held for key, held in application.allocations.items() if key not in allocations}
            journal.set(application, "allocations", kept)
            self.index.forget(application.queue)
        root = state.root
        maximum = {t: most - node.capacity[t] for t, most in root.max.items()}
        self.set_terms(root, {}, {t: most for t, most in maximum.items() if most})
        return gone

    def _release(self, allocation: Allocation) -> None:
        journal, application, pairs = self.journal, allocation.application, allocation.shape.pairs
        for queue in allocation.queue.lineage():
            journal.add(queue.used, pairs, -1)
            if allocation.preempted:
                journal.add(queue.preempting, pairs, -1)
        for account in application.accounts:
            journal.add(account.used, pairs, -1)
        journal.add(application.placeholder if allocation.spec.placeholder else application.real, pairs, -1)

    def set_terms(self, queue: Queue, guaranteed: dict[int, int], maximum: dict[int, int]) -> None:
        """Another guarantee and max for *queue*, and what fair shares make of them everywhere below."""
        journal = self.journal
        journal.set(queue, "guaranteed", {t: amount for t, amount in guaranteed.items() if amount > 0})
        journal.set(queue, "max", maximum)
        journal.set(queue, "ceilings", tuple(maximum.items()) if queue.parent is not None else ())
        stack = [queue]
        while stack:
            below = stack.pop()
            journal.set(below, "fair_terms", fair_terms(below))
            stack.extend(below.children.values())

    def _refresh_priorities(self, leaf: Queue) -> None:
        """Show on the way up from *leaf* what its applications now show it (preemption.md G)."""
        shown = [application.priority for application in leaf.applications.values() if not application.set_back]
        for queue in leaf.lineage():
            properties = queue.properties
            fenced = properties.priority_policy is PriorityPolicy.FENCE
            priority = exposed(max(shown, default=NOTHING_WAITS), properties.priority_offset, fenced=fenced)
            if priority != queue.priority:
                self.journal.set(queue, "priority", priority)
            if queue.parent is not None:
                shown = [sibling.priority for sibling in queue.parent.children.values()]


def _place(node: Node) -> tuple[float, str]:
    return (node.score, node.node_id)
