"""The replacement step: a real ask takes the place of a placeholder of its task group (scheduling.md 10.3).

A placeholder that is smaller than the ask is asked to leave. Otherwise the ask takes its place on the same node,
without any check of room, or if it may not run there, on another node that has room. The shim then ends the placeholder
and confirms (:mod:`kornel.core.engine.intake.handshake`). Only applications with a new or changed ask or placeholder
are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from operator import attrgetter
from typing import Any, NamedTuple

from kornel.core.domain.commands import TerminationType
from kornel.core.domain.devices import DeviceRequest
from kornel.core.domain.effects import Released
from kornel.core.engine.gangs import placeholders
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.orders.keyed_heap import KeyedHeap
from kornel.core.model.queues import Queue
from kornel.core.policies.application_order import application_key
from kornel.core.policies.queue_order import queue_key
from kornel.core.preemption import budgets
from kornel.core.state.asks import group_domains, moves
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import dependence
from kornel.core.state.waiting.rooms import UNSERVED


class Pair(NamedTuple):
    """A real ask and the placeholder whose place it can take. *ask* is to take the place of *placeholder* and to run on
    *node*."""

    ask: Allocation
    placeholder: Allocation
    node: Node


class Choice(NamedTuple):
    """The outcome of the search for a pair of ask and placeholder in one application.

    *too_small* are to leave, oldest first, before *pair* is served; each with the ask it is too small for.
    """

    too_small: Mapping[Allocation, Allocation]
    pair: Pair | None
    without_room: bool
    """Tells whether some ask matches a placeholder but may not run on its node, and no other node has room."""
    waits_for_turn: bool = False
    """Tells whether some ask depends on other placements, and the line of such asks is full."""


MayStay = Callable[[PartitionState, Allocation, Node], bool]
FindOther = Callable[[PartitionState, Allocation, Node], Node | None]
Settle = Callable[[PartitionState, Pair, int], None]


def may_stay(_state: PartitionState, ask: Allocation, own: Node) -> bool:
    """Tells whether *ask* may run on *own*, the node of the placeholder that it matches."""
    if ask.refused is not None and own.node_id in ask.refused:
        return False
    return ask.spec.required_node in ("", own.node_id)


def find_other_node(state: PartitionState, ask: Allocation, own: Node) -> Node | None:
    """Returns the first open node in order, other than the placeholder's *own*, that has room for *ask* and may take
    it."""
    if ask.spec.required_node:
        required = state.nodes.get(ask.spec.required_node)
        if required is None or required is own or required not in state.node_order:
            return None
        if not required.has_room(ask.shape.pairs) or not required.has_devices(wanted_devices(ask)):
            return None
        return required if required.node_id not in (ask.refused or {}) else None
    return next(other_nodes(state, ask, own), None)


def other_nodes(state: PartitionState, ask: Allocation, own: Node) -> Iterator[Node]:
    """Yields the open nodes in order, other than *own*, where *ask* may take the place of a placeholder on *own*."""
    refused, task_group = ask.refused or {}, ask.pool
    request = task_group.topology if task_group is not None else None
    devices = wanted_devices(ask)
    for node in state.node_order.fitting_nodes(ask.shape.pairs):
        if node is own or node.node_id in refused or not node.has_devices(devices):
            continue
        if group_domains.may_move(state, request, own, node):
            yield node


def wanted_devices(ask: Allocation) -> DeviceRequest | None:
    """Returns the devices that *ask* needs on a node other than that of its placeholder: its own, or, if it requests
    none, those of its placeholders."""
    if ask.shape.devices is not None or ask.pool is None:
        return ask.shape.devices
    return ask.pool.shape.devices


def serve(
    state: PartitionState,
    now_ns: int,
    budget: int,
    *,
    stays: MayStay = may_stay,
    elsewhere: FindOther = find_other_node,
    settle: Settle | None = None,
) -> int:
    """Serves applications in turn until nothing matches or *budget* decisions are made. Returns the number of
    decisions.

    After each pair, the next application is determined again, as if every pair had its own cycle. *settle* deals with
    each pair that is found; by default, it links the pair at once.
    """
    turns = _Turns(state)
    spent = 0
    while spent < budget:
        application = turns.next_application()
        if application is None:
            break
        choice = choose_pair(state, application, stays=stays, elsewhere=elsewhere)
        spent += _apply(state, choice, settle or commit, now_ns)
        if choice.pair is not None:
            turns.note_served(application)
            continue
        turns.leave_out(application)
        del state.gangs.to_match[application]
        if choice.without_room:
            state.gangs.without_room[application] = None
        if choice.waits_for_turn:
            state.gangs.waiting_for_turn[application] = None
    return spent


def choose_pair(
    state: PartitionState,
    application: Application,
    *,
    stays: MayStay = may_stay,
    elsewhere: FindOther = find_other_node,
) -> Choice:
    """Finds the first ask, in order, that can take the place of a placeholder, and the placeholders that are too small
    for asks looked at before."""
    too_small: dict[Allocation, Allocation] = {}
    without_room = waits_for_turn = False
    if application.state in UNSERVED:
        return Choice({}, None, without_room)
    is_line_full = state.callbacks.predicates and dependence.is_line_full(state.callbacks)
    for ask in _asks(application):
        task_group = ask.pool
        assert task_group is not None, "only asks of a pool come here"
        if ask.inquiry is not None:
            continue
        if is_line_full and ask.dependent:
            waits_for_turn = True
            continue
        matching: Allocation | None = None
        for placeholder in _in_order(task_group.free):
            if placeholder in too_small or placeholder.proposed_by is not None:
                continue
            if is_larger(ask, placeholder):
                too_small[placeholder] = ask
                continue
            own = _node_of(placeholder)
            if stays(state, ask, own):
                return Choice(too_small, Pair(ask, placeholder, own), without_room, waits_for_turn)
            matching = matching or placeholder
        if matching is not None:
            other = elsewhere(state, ask, _node_of(matching))
            if other is not None:
                return Choice(too_small, Pair(ask, matching, other), without_room, waits_for_turn)
            without_room = True
    return Choice(too_small, None, without_room, waits_for_turn)


def commit(state: PartitionState, pair: Pair, now_ns: int) -> None:
    """Links *pair*, books it, and asks the shim to end the placeholder."""
    ask, placeholder, node = pair
    moves.start_replacement(state, ask, placeholder, node, now_ns)
    state.effects.append(
        Released(
            state.name,
            placeholder.application.application_id,
            placeholder.spec.key,
            TerminationType.PLACEHOLDER_REPLACED,
            f"replaced by {ask.spec.key}",
            placeholder.spec.instance,
        )
    )


def undo_replacement(state: PartitionState, real: Allocation) -> None:
    """Makes *real*, which lost its placeholder or the node it was to run on, a pending ask again.

    The placeholder was asked to leave already: no ask replaces it any more, and it counts as timed out once it is gone.
    """
    moves.undo_replacement(state, real)
    budgets.watch_age(state, real)


def is_larger(ask: Allocation, placeholder: Allocation) -> bool:
    """Tells whether *ask* wants more of any type than *placeholder* holds, or wants other devices."""
    if ask.shape is placeholder.shape:
        return False
    if ask.shape.devices is not None and ask.shape.devices != placeholder.shape.devices:
        return True
    held = placeholder.shape.amounts
    return any(amount > held.get(t, 0) for t, amount in ask.shape.pairs)


def _apply(state: PartitionState, choice: Choice, settle: Settle, now_ns: int) -> int:
    if choice.too_small:
        if state.recording:
            state.events.placeholders_too_small(choice.too_small)
        placeholders.dismiss_placeholders(state, choice.too_small, "smaller than the real ask of its task group")
    if choice.pair is None:
        return len(choice.too_small)
    settle(state, choice.pair, now_ns)
    return len(choice.too_small) + 1


class _Turns:
    """The order in which applications are looked at: from the root down, the first child at each level.

    Serving an application changes the keys on its own path only.
    """

    def __init__(self, state: PartitionState) -> None:
        self._root = state.root
        self._below: dict[Queue, KeyedHeap[Any]] = {}
        for application in state.gangs.to_match:
            self._order_of(application.queue).add(application)
            for queue in application.queue.lineage()[:-1]:
                if queue.parent is not None:
                    self._order_of(queue.parent).add(queue)

    def _order_of(self, queue: Queue) -> KeyedHeap[Any]:
        found = self._below.get(queue)
        if found is None:
            found = self._below[queue] = KeyedHeap(application_key if queue.leaf else queue_key)
        return found

    def next_application(self) -> Application | None:
        queue = self._root
        while not queue.leaf:
            child = self._order_of(queue).first_member()
            if child is None:
                return None
            queue = child
        application: Application | None = self._order_of(queue).first_member()
        return application

    def note_served(self, application: Application) -> None:
        """Notes that the priorities and the pending amounts of *application* and of its queues have changed."""
        self._order_of(application.queue).mark_changed(application)
        for queue in application.queue.lineage()[:-1]:
            if queue.parent is not None:
                self._order_of(queue.parent).mark_changed(queue)

    def leave_out(self, application: Application) -> None:
        """Leaves *application* out from now on, because none of its asks matches a placeholder any more."""
        below = self._order_of(application.queue)
        below.discard(application)
        for queue in application.queue.lineage()[:-1]:
            if below or queue.parent is None:
                return
            below = self._order_of(queue.parent)
            below.discard(queue)


def _asks(application: Application) -> Iterable[Allocation]:
    """Yields the asks in all task groups of *application* that have a free placeholder, in ask order."""
    pools = [g.asks for g in application.task_groups.values() if g.asks and g.free]
    if len(pools) == 1:
        return _in_order(pools[0])
    return merge(*map(_in_order, pools), key=attrgetter("order"))


def _in_order(members: KeyedHeap[Allocation]) -> Iterator[Allocation]:
    """Yields *members* in order. The first one is cheap to find and usually enough; the others are sorted only if the
    caller goes on."""
    first = members.first_member()
    if first is not None:
        yield first
        yield from members.sorted_members()[1:]


def _node_of(placeholder: Allocation) -> Node:
    assert placeholder.node is not None, "only allocated placeholders are free"
    return placeholder.node
