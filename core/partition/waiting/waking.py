"""Whoever waits is woken here, and only when something was gained that can help: room, a slot, a higher limit."""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.domain.ask_places import AskMove
from kornel.core.model.allocations import AskGroup, Reservation, Room
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.users import Account
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.places import move_ask, resume_waiting
from kornel.core.partition.waiting.rooms import activate_group, look_again, offer_application, offer_slots


def wake_waiting(state: PartitionState) -> None:
    """Wakes those whom something that the ledger noted as gained can help, in the order of the notes.

    To be called after each event that was booked: until then nobody who waits knows of it.
    """
    gained = state.gained
    if not gained:
        return
    for what in gained:
        if isinstance(what, Node):
            wake_for_node(state, what)
        elif isinstance(what, Queue):
            wake_for_queue(state, what)
        elif isinstance(what, Account):
            wake_for_account(state, what)
        else:
            offer_slots(what.account)
    gained.clear()


def take_review_steps(state: PartitionState) -> Iterator[None]:
    """Looks again at whoever a limit of a user or group may have kept back, since other limits apply now. Yields after
    each application."""
    for application in state.applications.values():
        offer_application(application)
        for group in application.groups.values():
            if group.kept_back:
                activate_group(group)
        yield
    for reservation in list(state.reservations.values()):
        look_again(state, reservation)


def wake_for_node(state: PartitionState, node: Node) -> None:
    """Wakes those whom *node*, which appeared, opened, grew or was freed, can hold now."""
    # Those who hold room here come first: what is free may be theirs.
    if node.claims is not None:
        for reservation in node.claims.to_wake(node.free):
            look_again(state, reservation)
    # Also for a node that takes nothing new: an ask that must run there does not mind a drain (scheduling.md 9).
    waiting = state.waiting_for_node.pop(node.node_id, None)
    if waiting:
        _wake_room(state, waiting)
    if state.gangs.rooms:
        wake_gangs(state, node)
    if node not in state.node_order:
        return
    if state.refused:
        _offer_to_refused(state, node)
    if state.gangs.without_room:
        state.gangs.to_match.update(state.gangs.without_room)
        state.gangs.without_room.clear()
    # A node with more room may now be the one that lacks least for an old ask.
    if state.no_room and state.reserving.delay_ns is not None:
        state.reserving.call_round()
    for shape in [shape for shape in state.no_room if node.has_room(shape.pairs)]:
        shape.no_room = False
        _wake_room(state, state.no_room.pop(shape))


def _offer_to_refused(state: PartitionState, node: Node) -> None:
    """Lets those try again that were not refused on *node*, which has room again."""
    for shape in [shape for shape in state.refused if node.has_room(shape.pairs)]:
        rooms = state.refused[shape]
        for refused_on in [nodes for nodes in rooms if node.node_id not in nodes]:
            for ask in list(rooms[refused_on]):
                move_ask(state, ask, AskMove.FORGIVE)
                resume_waiting(state, ask)


def wake_for_queue(state: PartitionState, queue: Queue) -> None:
    """Wakes those whom *queue* kept back and no longer must: it has more room under its max."""
    if not queue.parked:
        return
    # Empty rooms go as well: who leaves one for another reason leaves it standing.
    for shape in [shape for shape, room in queue.parked.items() if not room or queue.admits(shape.pairs)]:
        _wake_room(state, queue.parked.pop(shape))
    if queue.claims:
        for shape in [shape for shape in queue.parked if queue.has_room(shape.pairs)]:
            for waiter in list(queue.parked[shape]):
                if isinstance(waiter, Reservation) and waiter.ask.triggered:
                    look_again(state, waiter)  # What keeps others back beside its claim is that claim.


def wake_for_account(state: PartitionState, account: Account) -> None:
    """Wakes those whom the limit of *account* kept back and no longer must: its user or group holds less."""
    if not account.parked:
        return
    for shape in [shape for shape, room in account.parked.items() if not room or account.admits(shape.pairs)]:
        _wake_room(state, account.parked.pop(shape))


def wake_for_turn(state: PartitionState) -> None:
    """Wakes those who wait for their turn to be asked about, in the order of scheduling."""
    _wake_room(state, state.waiting_for_turn)
    state.waiting_for_turn.clear()


def wake_gangs(state: PartitionState, node: Node) -> None:
    """Wakes the gangs for all members of which there may be enough room, now that *node* has more."""
    counts = node in state.node_order
    for demand, room in list(state.gangs.rooms.items()):
        if not room.waiters:
            del state.gangs.rooms[demand]
        elif not counts and not any(members.required_node == node.node_id for members in demand):
            room.forget_node(node)
        elif room.count_again(node):
            del state.gangs.rooms[demand]
            _wake_room(state, room.waiters)


def _wake_room(state: PartitionState, room: Room) -> None:
    for waiter in list(room):
        if isinstance(waiter, AskGroup):
            activate_group(waiter)
        else:
            waiter.parked_at = None
            state.reserved_ready[waiter] = None
