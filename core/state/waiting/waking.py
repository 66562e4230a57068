"""Wakes asks and applications that wait when something was gained that can help them: room, a slot, a higher limit."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import Allocation, AskGroup, LimitClaim, Reservation, Room
from kornel.core.model.applications import Application
from kornel.core.model.claim_clocks import sum_missing
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.leaf_accounts import MoreShares
from kornel.core.model.nodes import Node
from kornel.core.model.orders.waiting_rooms import WaitingRoom
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape, Vector, holds_pairs
from kornel.core.model.users import Account, AccountKind
from kornel.core.policies.claim_order import (
    Dues,
    admits_beside,
    comes_before,
    importance_of,
    is_let_through,
    list_lent,
    list_older,
    rank_below,
)
from kornel.core.policies.guarantees import project_usage
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.gathering import find_least, minimum_members
from kornel.core.state.waiting.places import resume_refused
from kornel.core.state.waiting.rooms import (
    activate_group,
    line_up,
    look_again,
    note_short,
    offer_application,
    offer_slots,
)


def wake_waiting(state: PartitionState) -> None:
    """Wakes the waiters that can be helped by what the ledger noted as gained, in the order of its notes.

    It has to be called after each booking, because no waiter is woken before.
    """
    gained = state.gained
    if not gained:
        return
    shared: dict[Queue, None] = {}
    for what in gained:
        if isinstance(what, Node):
            wake_for_node(state, what)
        elif isinstance(what, Queue):
            wake_for_queue(state, what)
        elif isinstance(what, Account):
            wake_for_account(state, what)
        elif isinstance(what, MoreShares):
            shared[what.leaf] = None
        else:
            offer_slots(what.account)
    gained.clear()
    for leaf in shared:
        for account in leaf.accounts.values():
            if account.kind is AccountKind.SHARE and account.parked:
                _wake_for_share(state, account)


def take_review_steps(state: PartitionState) -> Iterator[None]:
    """Tries again what a limit of a user or group may have kept back, because other limits apply now. Yields after each
    application."""
    for application in state.applications.values():
        offer_application(application)
        for group in application.groups.values():
            if group.kept_back:
                activate_group(group)
        yield
    for reservation in list(state.reservations.values()):
        look_again(state, reservation)


def wake_for_node(state: PartitionState, node: Node) -> None:
    """Wakes the asks that *node* can hold now, after it was added, opened, enlarged or freed."""
    # Asks that hold room here come first, because the free room may be theirs.
    state.reserving.lapsed.pop(node, None)
    if node.claims is not None:
        for reservation in node.claims.to_wake(node.free):
            look_again(state, reservation)
    # This holds for a draining node as well: an ask that must run there is placed all the same (scheduling.md 9).
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
    if state.waiting_for_domain:
        _wake_for_domain(state, node)
    # A node with more room may now be the one that lacks the least for an ask that has waited long.
    waits = state.no_room or state.waiting_for_domain or state.refused or state.gangs.rooms or state.gangs.holds
    if waits and state.reserving.delay_ns is not None:
        state.reserving.call_round()
    if state.gangs.holds:
        _wake_saver(state, node)
    for shape in [shape for shape in state.no_room if node.has_room(shape.pairs) and node.has_devices(shape.devices)]:
        shape.no_room = False
        _wake_in_turn(state, None, state.no_room, shape)
    if node.claims is not None:
        wake_borrowers(state, node)


def _wake_saver(state: PartitionState, node: Node) -> None:
    """Wakes the gang for which places are saved if *node* has room for a member that lacks some where its place is, or,
    if others have used some of what is saved, if that member would lack less on *node*."""
    saver = state.gangs.find_saver()
    claims = [] if saver is None else saver.claims()
    lost = saver is not None and saver.clock is not None and saver.clock.has_lost(sum_missing(claims))
    for claim in claims:
        wanted = claim.node.more_than_has(claim) if claim.node is not node else ()
        if wanted and node.has_room(wanted if lost else claim.pairs):
            look_again(state, claim)
            return


def wake_borrowers(state: PartitionState, node: Node) -> None:
    """Wakes the asks that may use room saved on *node* for others, if there is enough of it now."""
    claims = node.claims
    if claims is None or node not in state.node_order or not (saved := claims.list_saved()):
        return
    most, dues = claims.open_room(node.free, saved), state.dues
    for shape, waiters in [each for each in state.no_room.items() if holds_pairs(most, each[0].pairs)]:
        if not node.has_devices(shape.devices, None, saved):
            continue
        known: dict[tuple[Application, int], bool] = {}
        for waiter in [*waiters.at_once, *_groups_that_may_pass(waiters, saved, dues)]:
            ask = waiter.first_ask() if isinstance(waiter, AskGroup) else waiter.ask
            rank = ask.application, ask.spec.priority
            if rank not in known:
                known[rank] = bool(count_lent(node, ask, dues))
            if known[rank]:
                _try_again(state, waiter)
    if state.waiting_for_domain and any(amount > 0 for amount in most):
        _wake_borrowers_in_domains(state, node, saved, most, dues)
    for shape in [shape for shape in state.refused if holds_pairs(most, shape.pairs)]:
        elsewhere = [asks for nodes, asks in state.refused.get(shape, {}).items() if node.node_id not in nodes]
        for ask in [ask for asks in elsewhere for ask in asks if count_lent(node, ask, dues)]:
            resume_refused(state, ask)
    _wake_borrowing_gangs(state, saved, most, dues)


def _wake_borrowers_in_domains(
    state: PartitionState, node: Node, saved: list[Reservation], most: Vector, dues: Dues
) -> None:
    """Wakes those who wait for a domain and may use what is *saved* on *node*, where *most* is open to them."""
    claims = node.claims
    assert claims is not None, "room is saved there"
    # Whoever comes before a holder stands before it in the line, but for asks of its own application in a leaf where
    # priorities do not count between applications; others may pass only where they are owed a guarantee.
    holders = {c.ask.application: None for c in saved if not c.ask.queue.properties.sort_by_priority}
    groups = state.in_line.list_before((max(importance_of(claim.waiter) for claim in saved),))
    owed = list(_owed_leaves(state.root))
    around = holders | dict.fromkeys(application for leaf in owed for application in leaf.applications.values())
    lent: dict[tuple[object, ...], list[Reservation]] = {}
    fits: dict[object, bool] = {}
    near = [*groups, *(group for each in around for group in each.groups.values())]
    waiting: dict[AskGroup | Reservation, Shape] = {r: r.ask.shape for r in state.reservations.values()}
    for waiter, shape in (waiting | {group: group.shape for group in near}).items():
        if shape not in fits:
            fits[shape] = holds_pairs(most, shape.pairs)
        if not fits[shape] or waiter not in state.waiting_for_domain:
            continue
        ask = waiter.first_ask() if isinstance(waiter, AskGroup) else waiter.ask
        if ask.reservation in saved:  # Its own claim counts for it.
            if count_lent(node, ask, dues):
                _try_again(state, waiter)
            continue
        # All of one standing may pass the same holders.
        same = ask.application in holders and ask.application
        standing = ask.queue, ask.turn_priority, same, dues.find_owing(ask)
        if standing not in lent:
            lent[standing] = list_lent(ask, saved, dues)
        if (passed := lent[standing]) and (shape, standing) not in fits:
            room = claims.open_room(node.free, passed)
            fits[shape, standing] = holds_pairs(room, shape.pairs) and node.has_devices(shape.devices, ask, passed)
        if passed and fits[shape, standing]:
            _try_again(state, waiter)


def _owed_leaves(queue: Queue, *, owes: bool = False) -> Iterator[Queue]:
    """Yields the leaves in and below *queue* that it, one above or one below owes a guarantee, or may. *owes*: one
    above does."""
    owes = owes or any(project_usage(queue, t) < most for t, most in queue.guaranteed.items())
    if queue.leaf and owes:
        yield queue
    for child in queue.children.values() if owes or queue.counted else ():
        yield from _owed_leaves(child, owes=owes)


def _wake_borrowing_gangs(state: PartitionState, saved: list[Reservation], most: Vector, dues: Dues) -> None:
    """Wakes the gangs that may use what is *saved* on a node where *most* is open to them."""
    saver = state.gangs.find_saver()
    waiters: list[AskGroup | Reservation] = [] if saver is None else [*saver.claims()[:1]]
    for demand, room in state.gangs.rooms.items():
        if any(holds_pairs(most, members.pairs) for members in demand):
            waiters += room.waiters
    for waiter in waiters:
        if list_lent(waiter.first_ask() if isinstance(waiter, AskGroup) else waiter.waiter, saved, dues):
            _try_again(state, waiter)


def _groups_that_may_pass(room: WaitingRoom, claims: Sequence[Reservation | LimitClaim], dues: Dues) -> list[AskGroup]:
    """Returns the groups that take turns in *room*, without most of those that may pass none of *claims*: whole leaves
    and subtrees in which nobody comes before a holder, and nobody is owed anything."""
    one_each = {claim.waiter: claim for claim in claims}.values()  # A gang may have hundreds of claims.
    leaves = (leaf for claim in one_each for leaf in _leaves_that_may_pass(room, claim, dues))
    branches = map(room.branches.__getitem__, dict.fromkeys(leaves))
    return [group for branch in branches for each in branch.groups for group in branch.groups_of(each)]


def _leaves_that_may_pass(room: WaitingRoom, claim: Reservation | LimitClaim, dues: Dues) -> Iterator[Queue]:
    holder = claim.waiter
    lineage = holder.queue.lineage()
    around = set(lineage)
    closed = bool(holder.spec.required_node) or dues.is_owed(claim)  # Then only those who come first may pass.
    left = [(queue, False, False) for queue in lineage[-1:] if queue in room.branches]
    while left:
        queue, comes_first, owes = left.pop()
        branch = room.branches[queue]
        if queue.leaf:
            if queue is holder.queue:
                comes_first = max(branch.orders) > holder.turn_priority
            # Asks of one size are owed the same in all of a leaf.
            first = branch.groups_of(next(iter(branch.groups)))[0].first_ask()
            if comes_first or not (closed or around.issuperset(dues.find_owing(first))):
                yield queue
            continue
        own = rank_below(holder, queue) if queue in around and queue.properties.sort_by_priority else math.inf
        for child, rank in branch.ranks.items():
            may_come_first = comes_first or rank > own
            may_owe = not closed and (owes or (child not in around and bool(child.counted)))
            if may_come_first or may_owe or child in around:
                left.append((child, may_come_first, may_owe))


def count_lent(node: Node, ask: Allocation, dues: Dues) -> int:
    """Returns for how many asks such as *ask* there is room on *node* if they use what is saved there for those whom it
    may pass, whatever the shim has refused; with devices, for one at most; 0: nothing is lent."""
    claims, shape = node.claims, ask.shape
    if claims is None or not holds_pairs(node.free, shape.pairs):
        return 0
    saved = claims.list_saved()
    lent = list_lent(ask, [claim for claim in saved if claim.ask is not ask], dues)
    if not lent:
        return 0
    room = claims.open_room(node.free, [*lent, *(claim for claim in saved if claim.ask is ask)])
    if not holds_pairs(room, shape.pairs) or not node.has_devices(shape.devices, ask, lent):
        return 0
    return 1 if shape.devices else min((room[t] // amount for t, amount in shape.pairs if amount), default=1)


def _wake_for_domain(state: PartitionState, node: Node) -> None:
    """Wakes the asks that wait for a domain with room and for which *node* has room."""
    fits: dict[Shape, bool] = {}
    for waiter in list(state.waiting_for_domain) if node.devices or any(n > 0 for n in node.open) else ():
        shape = waiter.shape if isinstance(waiter, AskGroup) else waiter.ask.shape
        if shape not in fits:
            fits[shape] = node.has_room_for(shape)
        if fits[shape]:
            _try_again(state, waiter)


def _offer_to_refused(state: PartitionState, node: Node) -> None:
    """Wakes the asks in rooms of refused asks that the shim has not refused on *node*, which has room again."""
    for shape in [shape for shape in state.refused if node.has_room_for(shape)]:
        rooms = state.refused.get(shape, {}).items()  # Those that were resumed may have taken others along.
        for ask in [ask for nodes, asks in rooms if node.node_id not in nodes for ask in asks]:
            resume_refused(state, ask)


def wake_for_queue(state: PartitionState, queue: Queue) -> None:
    """Wakes the asks that *queue* kept back and now has room for under its max."""
    if not queue.parked:
        return
    _wake_below(state, queue)
    if queue.claims:
        for shape in [shape for shape in queue.parked if queue.has_room(shape.pairs)]:
            for waiter in list(queue.parked[shape]):
                if isinstance(waiter, Reservation) and waiter.ask.triggered:
                    look_again(state, waiter)  # Its own claim may be what keeps the others back.


def _wake_for_share(state: PartitionState, account: Account) -> None:
    """Wakes the asks of a user who may have more of what users share. So may hundreds of others: if they took turns,
    each decision would look at all of them."""
    if account.saving is not None:
        wake_for_account(state, account)
        return
    for shape, room in list(account.parked.items()):
        for waiter in list(room) if account.admits(shape.pairs) else ():
            _try_again(state, waiter)


def wake_for_account(state: PartitionState, account: Account) -> None:
    """Wakes the asks that the limit of *account* kept back and now has room for, because the user or group holds
    less."""
    if account.parked:
        _wake_below(state, account)


def _wake_below(state: PartitionState, limit: Queue | Account) -> None:
    """Wakes the waiters that *limit* has room for now, and notes those for whom too little came free."""
    wake_admitted(state, limit)
    state.reserving.lapsed.pop(limit, None)
    if limit.parked:
        note_short(state, limit, tuple(limit.parked))


def wake_admitted(state: PartitionState, limit: Queue | Account) -> None:
    """Wakes the waiters that *limit* has room for now, but those that another one keeps back who saves there."""
    rooms, claim = limit.parked, limit.saving
    # Empty rooms are removed as well: an ask that leaves its room for another reason does not remove it.
    for shape in [shape for shape, room in rooms.items() if not room or limit.admits(shape.pairs)]:
        if claim is None or admits_beside(limit, shape.pairs, claim):
            _wake_in_turn(state, limit, rooms, shape)
            continue
        _wake_let_through(state, rooms[shape], claim)


def wake_others(state: PartitionState, limit: Queue | Account, shape: Shape) -> None:
    """Wakes those who wait at *limit* for room for *shape* and are let through by whoever saves there, because one who
    was tried in turn is not."""
    claim = limit.saving
    if claim is not None and limit.admits(shape.pairs):
        _wake_let_through(state, limit.parked[shape], claim)


def _wake_let_through(state: PartitionState, room: WaitingRoom, claim: LimitClaim) -> None:
    for waiter in _list_candidates(state, room, claim):
        ask = _stands_for(waiter)
        if not is_let_through(ask, claim, state.guarantee_mode):
            continue
        if not comes_before(ask, claim.ask):
            claim.clock.count_anew()  # The line goes on, so the holder does not stand still: its turn has not come.
        _try_again(state, waiter)


def _list_candidates(state: PartitionState, room: WaitingRoom, claim: LimitClaim) -> Collection[AskGroup | Reservation]:
    """Returns the waiters of *room* without most of those whom *claim* does not let through."""
    holder = claim.ask
    if room.line is None:
        line_up(room)  # It was restored.
    if holder.place is AskPlace.HELD or room.line is None:
        return list(room)
    own = [holder.group] if holder.group is not None and holder.group in room.groups else []
    may_pass = _groups_that_may_pass(room, [claim], state.dues)
    return dict.fromkeys([*room.at_once, *own, *list_older(room.line, holder), *may_pass])


def _stands_for(waiter: AskGroup | Reservation) -> Allocation:
    """Returns the ask by whose importance *waiter* is judged: of a gang, the least important member."""
    if not isinstance(waiter, AskGroup):
        return waiter.ask
    return find_least(minimum_members(waiter)) if isinstance(waiter, GangUnit) else waiter.first_ask()


def wake_for_turn(state: PartitionState) -> None:
    """Wakes the asks that wait until the shim may be asked about them, in the order of scheduling."""
    _wake_room(state, state.waiting_for_turn)
    state.gangs.to_match.update(state.gangs.waiting_for_turn)
    state.gangs.waiting_for_turn.clear()


def wake_gangs(state: PartitionState, node: Node) -> None:
    """Wakes the gangs for which there may be enough room now that *node* has more."""
    counts = node in state.node_order
    for demand, room in list(state.gangs.rooms.items()):
        if not room.waiters:
            del state.gangs.rooms[demand]
        elif not counts and not any(members.required_node == node.node_id for members in demand):
            room.forget_node(node)
        elif room.count_again(node):
            del state.gangs.rooms[demand]
            _wake_room(state, room.waiters)


def wake_for_domains(state: PartitionState) -> None:
    """Wakes all asks that wait for a domain, because nodes have changed their domains."""
    _wake_room(state, state.waiting_for_domain)
    for demand, room in list(state.gangs.rooms.items()):
        if any(members.together is not None for members in demand):
            del state.gangs.rooms[demand]
            _wake_room(state, room.waiters)
    state.gangs.doubt_domains()


def _wake_in_turn(
    state: PartitionState, limit: Queue | Account | None, rooms: dict[Shape, WaitingRoom], shape: Shape
) -> None:
    """Wakes those of *rooms* who wait for *shape*, below *limit* or without a node: the first of them is tried, and the
    next one as long as there is enough."""
    room = rooms[shape]
    _wake_room(state, room.at_once)
    if not room.groups:
        rooms.pop(shape, None)
        return
    if not room.awake:
        for leaf in list(room.set_back):  # Who waits here may come first in its leaf by now.
            room.come_forward(leaf)
    room.awake = True
    state.awake[room] = limit
    if state.root.claims:
        _wake_more_important(room)


def offer_claim(state: PartitionState, holder: Allocation) -> None:
    """Wakes those to whom the claim of *holder*, which has preempted, may pass: who come before it in its leaf."""
    for room in list(holder.queue.rooms):
        _wake_more_important(room)
    for claim in [c for c in state.reserving.saved if c.ask.queue is holder.queue and comes_before(c.ask, holder)]:
        look_again(state, claim)


def _wake_more_important(room: WaitingRoom) -> None:
    """Wakes those in *room* who come before one who has preempted in their leaf: they may take over the claim, and find
    room where others find none."""
    for leaf in [queue for queue in room.branches if queue.claimants]:
        branch = room.branches[leaf]
        holders = (holder.turn_priority for holder in leaf.claimants if not holder.spec.required_node)
        least = min(holders, default=math.inf)
        if max(branch.orders) <= least:
            continue
        for application in [application for application, rank in branch.ranks.items() if rank > least]:
            for group in branch.groups_of(application):
                activate_group(group)


def _try_again(state: PartitionState, waiter: AskGroup | Reservation) -> None:
    if isinstance(waiter, AskGroup):
        activate_group(waiter)
    else:
        look_again(state, waiter)


def _wake_room(state: PartitionState, room: Room) -> None:
    for waiter in list(room):
        _try_again(state, waiter)
