"""Saves places for all members of a gang that has waited long, as room is saved for a single ask (preemption.md B.7).

Places are saved for all members or for none, on as many nodes as they need, and for one gang of a partition at a time.
They lapse, are lost and are given back together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from functools import partial

from kornel.core.domain.devices import DeviceRequest
from kornel.core.engine.gangs.gang_places import add_up, demand_of, exceeded_limit
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.claim_clocks import sum_missing
from kornel.core.model.domains import Domain, DomainPath
from kornel.core.model.gang_units import UnitId
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs, Shape, Vector, book_amounts
from kornel.core.policies.bound_groups import bind_groups, find_misplaced
from kornel.core.policies.claim_order import comes_before, owing_queues
from kornel.core.policies.device_choice import count_left
from kornel.core.state.asks import savings
from kornel.core.state.asks.group_domains import may_move
from kornel.core.state.asks.reservations import end_reservation, reserve_node
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import BY_AGE, GangHold
from kornel.core.state.waiting.gathering import came_ns, covers_minimum, describe_missing, find_least, forms_unit
from kornel.core.state.waiting.rooms import UNSERVED, look_again

SavedPlaces = Sequence[tuple[Allocation, Node]]
"""Members of a gang, each with the node on which a place is to be saved for it."""


def may_save_gang(state: PartitionState, application: Application, members: Sequence[Allocation]) -> bool:
    """Tells whether all limits would let all *members* be placed now, beside everything that is saved for others of the
    same queues, users and groups."""
    if not may_have_places(members):
        return False
    if exceeded_limit(state, application, members, find_least(members).spec.priority) is not None:
        return False
    return ledger.saving_is_sound(members[0], add_up(members)) and savings.has_slot(state, members[0])


def may_have_places(members: Sequence[Allocation]) -> bool:
    """Tells whether places may be saved for *members*: not if one must run on a node."""
    return not any(ask.spec.required_node for ask in members)


def take_places(
    state: PartitionState,
    members: Sequence[Allocation],
    gang: Collection[Allocation],
    lost: Sequence[Reservation] = (),
) -> SavedPlaces | None:
    """Returns the result of :func:`find_saved_places` for *members* of *gang* once the claims *lost* have ended, which
    it ends then. If they find places only without what others save who stand behind the gang in the line, these lose it
    where it is in the way, the last one first."""
    least = find_least(gang)
    find = partial(find_saved_places, state, members, least)
    places, behind = find(lost), list[Reservation]()
    if places is None:
        behind = [claim for claim in savings.list_behind(state, least, came_ns(gang)) if claim not in lost]
        number = bisect_left(range(len(behind)), True, key=lambda last: find([*lost, *behind[: last + 1]]) is not None)
        behind = behind[: number + 1]
        places = find([*lost, *behind]) if behind else None
    if places is None:
        return None
    for claim in lost:
        end_reservation(state, claim, requeue=True)
    on_nodes: dict[Node, list[Allocation]] = {}
    for ask, node in places:
        on_nodes.setdefault(node, []).append(ask)
    for claim in behind:
        site = _Site(state, claim.node, least)
        if not all(site.take_member(ask.shape, now=False) for ask in on_nodes.get(claim.node, ())):
            end_reservation(state, claim, requeue=True)
    return places


def find_saved_places(
    state: PartitionState, members: Sequence[Allocation], least: Allocation, without: Collection[Reservation] = ()
) -> list[tuple[Allocation, Node]] | None:
    """Returns a node for each of *members* on which it could have room once others have ended; ``None``: not all have
    one. *least*: the least important member of their gang. *without*: saved claims that are to end.

    Those that require a domain of the topology come first: each slice is in the domain where it lacks least.
    """
    topology = state.topology
    groups = bind_groups(topology, members)
    if isinstance(groups, str):
        return None
    sites = _Sites(state, least, without)
    if topology is not None:
        slices = [one for group in groups for one in group.divide_asks(topology)]
        if not all(sites.take_best(asks, domains) for asks, domains in slices):
            return None
    bound = {ask for group in groups for ask in group.asks}
    return sites.found if sites.take_all([ask for ask in members if ask not in bound]) else None


class _Sites:
    """Takes places for members of a gang on the nodes of a partition, beside those that were taken before."""

    def __init__(self, state: PartitionState, least: Allocation, without: Collection[Reservation]) -> None:
        self._state = state
        self._least = least
        self._without = without
        self._sites: dict[Node, _Site] = {}
        self.found: list[tuple[Allocation, Node]] = []

    def take_best(self, members: Sequence[Allocation], domains: Sequence[Domain]) -> bool:
        """Takes places for all *members* in that of *domains* where they lack least, of equals the first by name.
        Returns whether there is one."""
        ways: list[tuple[float, DomainPath, _Sites]] = []
        for domain in domains:
            way = _Sites(self._state, self._least, self._without)
            way._sites = {node: self._sites[node].copy() for node in domain.nodes if node in self._sites}
            if way.take_all(members, domain):
                ways.append((way._sum_missing(), domain.path, way))
        if not ways:
            return False
        best = min(ways, key=lambda way: way[:2])[2]
        self._sites.update(best._sites)
        self.found += best.found
        return True

    def take_all(self, members: Sequence[Allocation], domain: Domain | None = None) -> bool:
        """Takes places for all *members* on open nodes, or on those of *domain*. Returns whether each has one.

        The largest come first. Equal members fill the nodes in the order in which a single ask would save room on one,
        those with enough room now before the others.
        """
        state, order = self._state, self._state.node_order
        among: Iterable[Node] = order
        if domain is not None:
            among = sorted(
                [node for node in domain.nodes if node in order], key=lambda node: (node.score, node.node_id)
            )
        demand, alike = demand_of(members)
        by_size = sorted(
            zip(demand, alike, strict=True), key=lambda entry: [amount for _, amount in entry[0].pairs], reverse=True
        )
        for equal, asks in by_size:
            shape = asks[0].shape
            in_order = state.reserving.shares.order_nodes(state.nodes, among, shape.pairs)
            nodes = [node for node in in_order if node.node_id not in equal.refused and node.could_hold_shape(shape)]
            left = list(asks)
            for now in (True, False):
                for node in nodes if left else ():
                    site = self._sites.get(node)
                    if site is None:
                        site = self._sites[node] = _Site(state, node, self._least, self._without)
                    while left and site.take_member(shape, now=now):
                        self.found.append((left.pop(0), node))
            if left:
                return False
        return True

    def _sum_missing(self) -> float:
        """Returns the sum, over the types, of the part of what is taken that is not free now."""
        by_type = zip(*[site.count_missing() for site in self._sites.values()], strict=True)
        sums = [[sum(amounts) for amounts in zip(*counted, strict=True)] for counted in by_type]
        return sum([missing / wanted for missing, wanted in sums if wanted], 0.0)


class _Site:
    """Counts what one node has for the members of a gang."""

    def __init__(
        self, state: PartitionState, node: Node, least: Allocation, without: Collection[Reservation] = ()
    ) -> None:
        stay = [claim for claim in savings.saved_on(node) if claim not in without]
        self._before = [claim for claim in stay if not comes_before(least, claim.waiter)]
        self._node = node
        self._most = savings.room_to_save(node, self._before)
        self._now = node.beside
        self._reserving = state.reserving
        self._taken: Vector = [0] * len(self._most)
        self._wanted: list[DeviceRequest] = []

    def copy(self) -> _Site:
        """Returns the same site, on which more can be taken without changing this one."""
        other = copy(self)
        other._taken, other._wanted = self._taken.copy(), self._wanted.copy()
        return other

    def count_missing(self) -> list[tuple[int, int]]:
        """Returns, by type, how much of what is taken is not free now, and how much is taken."""
        taken = zip(self._taken, self._now, strict=True)
        return [(max(0, wanted - max(0, room)), wanted) for wanted, room in taken]

    def take_member(self, shape: Shape, *, now: bool) -> bool:
        """Takes a place for another member of *shape* if there may be one, or, if *now*, if there is room for it now.
        Returns whether it did."""
        pairs = shape.pairs
        if any(self._taken[t] + amount > self._most[t] for t, amount in pairs) or not self._has_devices(shape):
            return False
        if now and any(self._taken[t] + amount > self._now[t] for t, amount in pairs):
            return False
        if self._has_lapsed(pairs):
            return False
        book_amounts(self._taken, pairs)
        if shape.devices is not None:
            self._wanted.append(shape.devices)
        return True

    def _has_devices(self, shape: Shape) -> bool:
        """Tells whether the node could have the devices of another member; members that want different ones do not
        share a node."""
        if shape.devices is None:
            return True
        if self._wanted and self._wanted[0] != shape.devices:
            return False
        return count_left(self._node, self._before, shape.devices) > len(self._wanted)

    def _has_lapsed(self, pairs: Pairs) -> bool:
        """Tells whether a claim has lapsed here that lacked no more than the members here would."""
        if self._node not in self._reserving.lapsed:
            return False
        total = self._taken.copy()
        book_amounts(total, pairs)
        lacks = {t: wanted - room for t, (wanted, room) in enumerate(zip(total, self._now, strict=True))}
        return self._reserving.has_lapsed(self._node, lacks)


def save_places(state: PartitionState, unit_id: UnitId, places: SavedPlaces, now_ns: int) -> GangHold:
    """Saves *places* for members of the gang *unit_id*, with those that are saved for it already. Less important
    claims that no longer fit beside them end."""
    hold = state.gangs.holds.get(unit_id)
    if hold is None:
        hold = state.gangs.holds[unit_id] = GangHold(BY_AGE, now_ns)
        unit = unit_id.find_unit()
        hold.refusal = None if unit is None else unit.refusal
    hold.members.update(dict.fromkeys(ask for ask, _ in places))
    least = find_least(hold.members)
    for ask, node in places:
        reserve_node(state, ask, node, now_ns, by_age=True, least=least)
    for node in dict.fromkeys(node for _, node in places):
        savings.review_savings(state, node)
    return hold


def move_place(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> bool:
    """Saves another place for the member of the gang *unit_id* that lacks most if others have used what was saved for
    the gang, and a node has more open room for the member than its own. Returns whether it did.

    Otherwise the gang would wait on, while others take what comes free elsewhere. Less is missing after each move, so
    moves come to an end.
    """
    claims = hold.claims()
    if hold.clock is None or not hold.clock.has_lost(sum_missing(claims)):
        return False
    claim = max(claims, key=lambda claim: sum_missing([claim]))
    ask, least, wanted = claim.ask, find_least(hold.members), claim.node.more_than_has(claim)
    if ask.shape.devices is not None:
        return False
    for node in state.node_order.fitting_nodes(wanted):
        refused = ask.refused is not None and node.node_id in ask.refused
        if node is claim.node or refused or not node.could_hold_shape(ask.shape):
            continue
        if not may_move(state, ask.spec.topology, claim.node, node):
            continue
        if _Site(state, node, least).take_member(ask.shape, now=False):
            reserve_node(state, ask, node, now_ns, by_age=True, least=least)
            state.gangs.broken.pop(unit_id, None)
            hold.lost = ()
            savings.review_savings(state, node)
            return True
    return False


def mend_broken(state: PartitionState, now_ns: int) -> bool:
    """Mends the places that are saved by age if some were lost. Returns whether there were any."""
    saver = state.gangs.find_saver()
    if saver is None or saver.id not in state.gangs.broken:
        return False
    _mend_places(state, saver.id, saver, now_ns)
    return True


def _mend_places(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> None:
    """Saves other places for members that lost theirs, or gives all places back if that is not possible, a limit keeps
    the gang back, or it is another one now."""
    for ask in find_misplaced(state.topology, hold.members):
        if ask.reservation is not None:
            end_reservation(state, ask.reservation, requeue=True)
    state.gangs.broken.pop(unit_id, None)
    application, lost = unit_id.application, [ask for ask in hold.members if ask.reservation is None]
    gone = any(state.requests.get(ask.key) is not ask or not ask.pending for ask in hold.members)
    gone = gone or any(ask.held_on is not None for ask in lost)  # While the shim is asked, it can save nothing else.
    served = application.state not in UNSERVED and forms_unit(state, unit_id)
    whole = served and not describe_missing(unit_id, now_ns) and covers_minimum(unit_id, hold.members)
    places: SavedPlaces | None = None
    if not gone and whole and _may_mend(state, application, hold, lost):
        places = take_places(state, lost, hold.members)
    if places is not None:
        save_places(state, unit_id, places, now_ns)
    # Places that are lost as soon as they are saved would be lost again.
    if places is None or unit_id in state.gangs.broken:
        savings.give_back(state, unit_id)
        return
    hold.lost = ()
    for ask in hold.members:
        if ask.reservation is not None:
            look_again(state, ask.reservation)


def _may_mend(state: PartitionState, application: Application, hold: GangHold, lost: Sequence[Allocation]) -> bool:
    """Tells whether all limits would let all members of *hold* be placed now, and places be saved for those *lost*."""
    if exceeded_limit(state, application, list(hold.members)) is not None:
        return False
    return not lost or may_save_gang(state, application, lost)


def should_preempt(state: PartitionState, hold: GangHold) -> bool:
    """Tells whether an attempt to preempt is due for the gang of *hold* and may help, because every member is owed its
    guarantee."""
    return hold.due and all(owing_queues(ask, state.guarantee_mode) for ask in hold.members)
