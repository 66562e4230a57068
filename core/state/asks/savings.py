"""Decides where room may be saved for an ask that has waited long, and ends saved claims whose conditions fail
(preemption.md B.7, "Made only for what can come true").

A claim that cannot come true keeps room idle and helps nobody, so the conditions are examined when it is made and again
whenever one of them may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.topology import Wish
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.claims import by_node
from kornel.core.model.gang_units import UnitId
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Vector, holds_pairs, unbook_amounts
from kornel.core.model.users import Account
from kornel.core.policies.claim_order import line_key, line_since, stands_before
from kornel.core.policies.device_choice import count_left
from kornel.core.state.asks import finding, group_domains, questions
from kornel.core.state.asks.reservations import end_reservation
from kornel.core.state.books import device_books, ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.gathering import came_ns
from kornel.core.state.waiting.rooms import UNSERVED, activate_group


def may_save(state: PartitionState, ask: Allocation) -> bool:
    """Tells whether all limits would let *ask* be placed now, beside everything that is saved for others of the same
    queues, users and groups."""
    admitted = finding.exceeded_limit(state, ask) is None and ledger.saving_is_sound(ask, ask.shape.pairs)
    return admitted and has_slot(state, ask)


def may_look_around(ask: Allocation) -> bool:
    """Tells whether *ask*, refused by the shim on every node with room, waits for another one, and saves none yet."""
    application = ask.application
    served = not application.backoff_until_ns and application.state not in UNSERVED
    return ask.place is AskPlace.REFUSED and ask.reservation is None and served and not ask.spec.required_node


def can_save(node: Node, ask: Allocation, before: Iterable[Reservation]) -> bool:
    """Tells whether *node* would have room for *ask* if everybody there ended who may end, beside the saved claims
    *before*.

    Load of other schedulers and pods that must run on the node stay. On a node where only members of its own gang run,
    or of its group that requires a domain, the ask would wait for these.
    """
    before, request = list(before), ask.shape.devices
    left = room_to_save(node, before)
    if not holds_pairs(left, ask.shape.pairs):
        return False
    if request is not None and not count_left(node, before, request):
        return False
    return not _is_of_own_group(node, ask)


def find_homes(state: PartitionState, ask: Allocation) -> Callable[[Node], bool]:
    """Returns what tells whether a node is in a domain in which *ask* may save room: on any, unless its group requires
    a domain; otherwise where others of it run or hold room, or else where all that wait, or a slice of them, could have
    room once everybody had ended who may end, beside what those before it in the line save there."""
    found = group_domains.open_domains(state, ask, group_domains.count_missing(state, ask))
    if found is None:
        return lambda _: True
    domains, wanted = set(found[0]), found[1]
    known = dict.fromkeys(domains, True) if wanted <= 1 else {}

    def is_home(node: Node) -> bool:
        domain = next((each for each in node.domains if each in domains), None)
        if domain is not None and domain not in known:
            nodes = [
                each for each in domain.nodes if each in state.node_order and each.node_id not in (ask.refused or ())
            ]
            known[domain] = sum(_count_places(each, ask) for each in nodes) >= wanted
        return domain is not None and known[domain]

    return is_home


def _count_places(node: Node, ask: Allocation) -> int:
    """Returns how many asks such as *ask* could have room on *node* once everybody had ended who may end, beside the
    saved claims of those before it in the line."""
    before = [claim for claim in saved_on(node) if stands_before(claim.waiter, ask)]
    left, request = room_to_save(node, before), ask.shape.devices
    places = min(max(0, left[t]) // amount for t, amount in ask.shape.pairs if amount)
    return places if request is None else min(places, count_left(node, before, request))


def could_ever_hold(node: Node, ask: Allocation) -> bool:
    """Tells whether *ask* would have room on *node* beside the load of other schedulers.

    Others that must run there count as ending: an ask of a new version waits for the task of the old one.
    """
    left = {t: node.capacity[t] - node.occupied[t] for t, _ in ask.shape.pairs}
    return node.could_hold_shape(ask.shape) and all(amount <= left[t] for t, amount in ask.shape.pairs)


def room_to_save(node: Node, before: Iterable[Reservation]) -> Vector:
    """Returns, by type, what *node* would have if everybody there ended who may end, beside the saved claims *before*:
    load of other schedulers and pods that must run there stay."""
    left = [capacity - occupied for capacity, occupied in zip(node.capacity, node.occupied, strict=True)]
    for reservation in before:
        unbook_amounts(left, reservation.pairs)
    for reservation in node.reservations.values():
        if reservation.ask.spec.required_node:
            unbook_amounts(left, reservation.pairs)
    for allocation in node.allocations.values():
        if allocation.spec.required_node:
            unbook_amounts(left, allocation.shape.pairs)
    return left


def review_savings(state: PartitionState, node: Node) -> None:
    """Ends the saved claims on *node* for which it could not have room any more, or whose holders a limit keeps back
    now; the asks wait with their equals."""
    kept: list[Reservation] = []
    unchanged = state.reserving.looked_at.get(node) == node.version  # Then there could be room as before.
    for reservation in node.claims.list_saved() if node.claims is not None else ():
        ask, by_age = reservation.ask, reservation.by_age
        sound = unchanged or (can_save(node, ask, kept) if by_age else could_ever_hold(node, ask))
        sound = sound and (not by_age or find_homes(state, ask)(node))
        # While the shim is asked about the holder, it counts in its limits already.
        if not sound or (ask.place is not AskPlace.HELD and finding.exceeded_limit(state, ask) is not None):
            end_reservation(state, reservation, requeue=True)
        elif by_age:
            kept.append(reservation)


def saved_on(node: Node) -> list[Reservation]:
    """Returns the claims that are saved on *node* by age, the first to be served first."""
    claims = node.claims
    return [] if claims is None else [reservation for reservation in claims.in_order() if reservation.by_age]


def list_behind(state: PartitionState, ask: Allocation, since_ns: int, *, lesser: bool = False) -> list[Reservation]:
    """Returns what those save by age who are as important as *ask* and have waited for less long than since *since_ns*,
    the last in the line first: they lose it where *ask*, or its gang, finds no place because of it. *lesser*: those too
    whom *ask* comes before."""
    saver, key = state.gangs.find_saver(), line_key(ask)
    claims = [(c, line_since(c.ask)) for c in state.reserving.saved if c.by_age and c.least is None]
    if saver is not None and ask not in saver.members:
        came = came_ns(saver.members)
        claims += [(claim, came) for claim in saver.claims()]

    find_lead = state.dues.find_lead

    def is_behind(waiter: Allocation, came: int) -> bool:
        lead = find_lead(ask, waiter)
        return lesser and line_key(waiter) > key if lead > 0 else lead == 0 and came > since_ns

    # While the shim is asked about a holder, nobody takes its room.
    found = [c for c, came in claims if c.ask.place is not AskPlace.HELD and is_behind(c.waiter, came)]
    return sorted(found, key=lambda claim: line_key(claim.waiter), reverse=True)


def find_in_way(
    state: PartitionState, ask: Allocation, pairs: Pairs, since_ns: int, *, alone: bool = True
) -> list[Reservation] | None:
    """Returns the claims by age of those behind *ask* in the line that have to end, the last one first, so that the
    bound on claims, queues, users and groups let *pairs* be saved for it, or its gang; ``None``: they do not even then.
    *alone*: the bound counts."""
    lost: list[Reservation] = []

    def fits() -> bool:
        free = sum(claim.least is None for claim in lost)
        within = not alone or state.reserving.more_may_be_saved(len(state.nodes), free)
        return within and ledger.saving_is_sound(ask, pairs) and has_slot(state, ask, lost)

    if fits():
        return lost
    try:
        for claim in list_behind(state, ask, since_ns, lesser=True):
            ledger.unbook_saving(claim.ask)
            lost.append(claim)
            if fits():
                break
        else:
            return None
        for claim in reversed(lost.copy()):  # Whoever is not in the way keeps it.
            at = lost.index(claim)
            lost.remove(claim)
            ledger.book_saving(claim.ask)
            if not fits():
                ledger.unbook_saving(claim.ask)
                lost.insert(at, claim)
        return lost.copy()
    finally:
        for claim in lost:
            ledger.book_saving(claim.ask)


def _is_of_own_group(node: Node, ask: Allocation) -> bool:
    group, topology = ask.spec.task_group, ask.spec.topology
    running = node.allocations.values()
    if not running or not (group or (topology is not None and topology.wish == Wish.REQUIRED)):
        return False
    specs = [allocation.spec for allocation in running if allocation.application is ask.application]
    ours = [spec for spec in specs if spec.task_group == group and (group or spec.topology == topology)]
    return len(ours) == len(running)


def has_slot(state: PartitionState, ask: Allocation, without: Collection[Reservation] = ()) -> bool:
    """Tells whether the application of *ask* runs, or could still start if all others started for which room is
    saved. *without*: claims that do not count."""
    application = ask.application
    if not _is_new(application):
        return True
    newcomers = _find_newcomers(state, without)
    return all(
        _count_applications(gate) + len(newcomers.get(gate, set()) - {application}) < gate.max_applications
        for gate in _gates_of(application)
    )


def end_excess(state: PartitionState) -> None:
    """Ends claims by age, the last in the line first, until what is saved for each queue, user and group is together
    within its limits again, because others of it were placed meanwhile."""
    aged = [claim for claim in state.reserving.saved if claim.by_age]
    # What is held while the shim is asked counts as used already, so its claim would count twice.
    if any(claim.ask.place is AskPlace.HELD for claim in aged):
        return
    full = _find_full_gates(state)
    if not full and all(ledger.saving_is_sound(claim.ask, _nothing_of(claim)) for claim in aged):
        return
    for claim in sorted(aged, key=lambda claim: line_key(claim.waiter), reverse=True):
        application = claim.ask.application
        starts = full and _is_new(application) and not full.isdisjoint(_gates_of(application))
        if starts or not ledger.saving_is_sound(claim.ask, _nothing_of(claim)):
            end_reservation(state, claim, requeue=True)
            full = full and _find_full_gates(state)


def _nothing_of(claim: Reservation) -> Pairs:
    """Returns no further amount of each type that *claim*, which is booked already, holds."""
    return tuple([(t, 0) for t, _ in claim.pairs])


def _find_newcomers(
    state: PartitionState, without: Collection[Reservation] = ()
) -> dict[Queue | Account, set[Application]]:
    """Returns the applications for which room is saved by age and which have yet to start, by queue, user and group
    that limits their number. *without*: claims that do not count."""
    found: dict[Queue | Account, set[Application]] = {}
    claims = [claim for claim in state.reserving.saved if claim.by_age and claim not in without]
    for application in {claim.ask.application: None for claim in claims}:
        for gate in _gates_of(application) if _is_new(application) else ():
            found.setdefault(gate, set()).add(application)
    return found


def _find_full_gates(state: PartitionState) -> set[Queue | Account]:
    """Returns the queues, users and groups that could not let all start for which room is saved by age."""
    newcomers = _find_newcomers(state)
    return {gate for gate, new in newcomers.items() if _count_applications(gate) + len(new) > gate.max_applications}


def _is_new(application: Application) -> bool:
    return application.state is AppState.ACCEPTED and not application.allocating


def _gates_of(application: Application) -> list[Queue | Account]:
    """Returns the queues, users and groups that limit the number of applications, and do not count *application*
    already."""
    gates: list[Queue | Account] = [*application.queue.lineage()]
    gates += [account for account in application.accounts if not account.is_used_by(application)]
    return [gate for gate in gates if gate.max_applications]


def _count_applications(gate: Queue | Account) -> int:
    """Returns how many applications run or have a claim there."""
    return gate.count_applications() if isinstance(gate, Account) else gate.running + len(gate.allocating)


@contextmanager
def lift_saved(state: PartitionState, lifted: Iterable[Reservation]) -> Iterator[Collection[Node]]:
    """Takes the saved claims *lifted* off the books for a while. Yields the nodes on which that changes something.

    Who stands behind them keeps no more than he did beside them.
    """
    saved = by_node(lifted)
    former = {node: (node.claims, node.version) for node in saved}
    for node, claims in saved.items():
        node.lift_saved(claims)
        for claim in claims:
            device_books.keep_no_more(node, claim.ask)
        state.node_order.room_changed(node)
        for claim in claims:
            claim.ask.reservation = None
    try:
        yield saved.keys()
    finally:
        for node, claims in saved.items():
            node.take_claims_back(*former[node])
            device_books.keep_saved(node)
            state.node_order.room_changed(node)
            for claim in claims:
                claim.ask.reservation = claim


def give_back(state: PartitionState, unit_id: UnitId) -> None:
    """Gives back all places that are saved for the gang *unit_id*, which waits as a unit again."""
    hold = state.gangs.holds.pop(unit_id)
    state.gangs.broken.pop(unit_id, None)
    if unit_id in state.gangs.vetting:
        questions.call_off_vetting(state, unit_id)
    for ask in hold.members:
        if ask.reservation is not None:
            end_reservation(state, ask.reservation, requeue=True)
    unit = unit_id.find_unit()
    if unit is not None:
        # Members that had lost their places were back in line before, and were to wait for the others there.
        activate_group(unit)
