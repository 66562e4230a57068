"""Tries all ways to make room for a gang that preempts as a unit: sets of victims, milder and smaller sets first, and
for each set all ways to place the members on the nodes (preemption.md B.11).

It is for small problems, and ends after a limited number of steps; its answer then says that not all ways were tried.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from kornel.core.domain.devices import DeviceRequest
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import NodeDevices
from kornel.core.model.domains import DomainPath
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.policies.device_sharing import search_sharing
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.entitlement import Entitlement
from kornel.core.preemption.gang_losses import can_leave_whole, is_bound, members_of
from kornel.core.preemption.guarantee.allowances import Terms
from kornel.core.preemption.guarantee.candidates import Candidates
from kornel.core.preemption.guarantee.needs import Needs, can_take_claim
from kornel.core.preemption.guarantee.planner import KIND
from kornel.core.preemption.guarantee.unit_devices import SHARING_WORK, assign_devices, devices_after, want_devices
from kornel.core.preemption.guarantee.unit_domains import Bound
from kornel.core.preemption.plan import FreedAmounts, Need, PreemptionPlan, UnitPlan
from kornel.core.preemption.victim_index import CLASSES, VictimIndex, age_of, reluctance_of

MOST_STEPS: Final = 20_000
"""The most victims that a search tries before it ends."""
STEPS_AT_ONCE: Final = 200
"""The number of steps that are taken at once, which takes about two milliseconds."""
MOST_SPREADS: Final = 2_000
"""The most times that a member is tried on a node for one set of victims."""
MOST_WORK: Final = 400_000
"""The work after which a search ends: a member tried on a node is 1, which takes about two microseconds."""
NODES_PER_WORK: Final = 4
"""The number of nodes whose room is copied at the cost of one unit of work."""
MOST_KNOWN: Final = 4_096
"""The most answers about devices that are kept."""
MOST_NODES: Final = 32
MOST_VICTIMS: Final = 96
MOST_MEMBERS: Final = 32
"""The bounds of a small problem."""


def is_small(view: PartitionView, members: Sequence[Allocation]) -> bool:
    """Tells whether the partition and *members* are few enough to try all ways."""
    if len(members) > MOST_MEMBERS or len(view.nodes) > MOST_NODES:
        return False
    return sum(len(node.allocations) for node in view.nodes.values()) <= MOST_VICTIMS


SUBSETS: Final = ((0,), (0, 1), (0, 2), CLASSES)
"""The sets of classes of victims that are tried, in the order in which their solutions compare."""


class _Item(NamedTuple):
    """A victim, or a gang that leaves as a whole."""

    reluctance: int
    adjusted: int
    rest: tuple[int, int, str]
    victims: tuple[Allocation, ...]
    frees: tuple[tuple[Node, Pairs], ...]
    """The amounts that it frees on each node."""
    gains: Pairs
    """The contributions to the needs of queues and guarantees, as (need, amount)."""
    uses: Pairs
    """The amounts that it takes from the rooms of law 2 and of the surplus of gangs, as (room, amount)."""
    holds: frozenset[tuple[str, str, int]] = frozenset()
    """The parts of devices that it holds, as (node, device, thousandths), if the gang wants any."""
    serves: tuple[int, ...] = ()
    """The needs that justify its leaving."""

    @property
    def weight(self) -> int:
        return len(self.victims)

    def is_like(self, other: _Item) -> bool:
        """Tells whether *other*, which precedes it, has the same effects and is at least as good."""
        return (
            self.weight == other.weight == 1
            and self.adjusted == other.adjusted
            and self.frees == other.frees
            and self.gains == other.gains
            and self.uses == other.uses
            and self.holds == other.holds
            and self.serves == other.serves
        )


class _Frame:
    """One more chosen victim: the position at which the next one is searched, and the items that were tried there."""

    __slots__ = ("at", "left", "passed", "room")

    def __init__(self, at: int, left: int, room: list[int]) -> None:
        self.at = at
        self.left: Final = left
        """The number of victims that are still to be chosen."""
        self.room: Final = room
        self.passed: list[_Item] = []


class Packing:
    """The search of all ways for one gang."""

    def __init__(
        self,
        view: PartitionView,
        whole: Allocation,
        members: Sequence[Allocation],
        fence: Queue,
        entitled: Entitlement,
        refused: Mapping[Allocation, frozenset[str]],
        index: VictimIndex,
        known: UnitPlan | None,
        bound: Sequence[Bound],
    ) -> None:
        """Prepares the search. *known* is a plan without whole gangs that was found before; only better ones count.
        *bound* are the groups that require a domain."""
        self._whole = whole
        self._fence = fence
        self._names = view.types.names
        self._needs = Needs(whole, fence, entitled)
        terms = Terms(whole, fence, entitled, self._needs)
        candidates = Candidates(whole, fence, terms, index)
        self._rooms: dict[Node, dict[int, int]] = {}
        self._types = [t for t, _ in whole.shape.pairs]
        self._groups = _group_members(members, refused, bound)
        self._given_up = view.given_up
        self._wants_devices = want_devices(members)
        self._devices = _DevicesLeft(view.given_up) if self._wants_devices else None
        for node in sorted(view.nodes.values(), key=lambda node: node.node_id):
            if any(can_take_claim(node, ask) for ask in members):
                room = node.beside
                self._rooms[node] = {t: room[t] for t in self._types}
        self._items = sorted(self._list_items(view, candidates))
        gangs = sorted(self._list_gangs(candidates, terms))
        self._room: Final = terms.room
        self._pools: list[list[_Item]] = []
        # With a plan that takes no whole gang, none is taken.
        for entire in ((), tuple(gangs)) if known is None else ((),):
            for classes in SUBSETS:
                pool = sorted(item for item in (*self._items, *entire) if item.reluctance in classes)
                if (pool or not self._pools) and pool not in self._pools:
                    self._pools.append(pool)
        self._known = known
        self._bound = bound
        self._pool_at = 0
        self._weight = 0
        self._stack: list[_Frame] = []
        self._chosen: list[_Item] = []
        self._best: tuple[tuple[_Item, ...], dict[Allocation, Node]] | None = None
        self._steps = 0
        self._work = 0
        """The work of spreading members, which does not count as steps."""
        self._spread: _Spread | None = None
        """The attempt to spread the members with the victims chosen last, while it is under way."""
        self.exhaustive = True
        self._over = False

    def take_steps(self) -> bool:
        """Takes some steps. Returns whether the search has ended."""
        until = self._steps + self._work + STEPS_AT_ONCE
        while not self._over:
            if self._steps >= MOST_STEPS or self._work >= MOST_WORK:
                self.exhaustive, self._over = False, True
            elif self._steps + self._work >= until:
                return False
            elif self._spread is not None:
                self._go_on_spreading(self._spread)
            elif self._stack:
                self._take_step()
            else:
                self._begin_weight()
        return True

    def best_plan(self, mends: bool) -> UnitPlan | None:
        """Returns the best plan that was found, or ``None`` if none is better than the known one."""
        if self._best is None:
            return None
        items, nodes = self._best
        return self._make_plan(items, nodes, mends=mends)

    def _begin_weight(self) -> None:
        """Continues with the next number of victims or the next pool, or ends the search if there is a solution."""
        if self._best is not None or self._pool_at >= len(self._pools):
            self._over = True
            return
        pool = self._pools[self._pool_at]
        if self._weight > sum(item.weight for item in pool) or self._is_no_better():
            self._pool_at += 1
            self._weight = 0 if self._weight == 0 else 1
            return
        if self._weight == 0:
            self._weight = 1
            self._steps += 1
            self._try_chosen()
            return
        self._stack.append(_Frame(0, self._weight, self._room))
        self._weight += 1

    def _is_no_better(self) -> bool:
        """Tells whether the known plan is better than every plan of the present pool with the next number of
        victims."""
        if self._known is None:
            return False
        known = key_of_plan(self._known)
        mildest = min((_find_class(item.victims) for item in self._pools[self._pool_at]), default=(False, False))
        return (*mildest, self._weight) > known[:3]

    def _take_step(self) -> None:
        frame = self._stack[-1]
        pool = self._pools[self._pool_at]
        if frame.at >= len(pool) or not self._within_reach(frame, pool):
            self._stack.pop()
            if self._stack:
                self._chosen.pop()
            return
        item = pool[frame.at]
        frame.at += 1
        if item.weight > frame.left or any(item.is_like(other) for other in frame.passed):
            return
        frame.passed.append(item)
        self._steps += 1
        room = frame.room.copy()
        for r, amount in item.uses:
            room[r] -= amount
            if room[r] < 0:
                return
        self._chosen.append(item)
        if item.weight == frame.left:
            self._try_chosen()
            self._chosen.pop()
        else:
            self._stack.append(_Frame(frame.at, frame.left - item.weight, room))

    def _within_reach(self, frame: _Frame, pool: Sequence[_Item]) -> bool:
        """Tells whether the remaining candidates of *pool* could supply the missing amount of each type, on whichever
        nodes they are."""
        rest = pool[frame.at :]
        freed = [pairs for item in (*self._chosen, *rest) for node, pairs in item.frees if node in self._rooms]
        for t, amount in self._whole.shape.pairs:
            there = sum(max(0, room[t]) for room in self._rooms.values())
            if amount > there + sum(dict(pairs).get(t, 0) for pairs in freed):
                return False
        return True

    def _try_chosen(self) -> None:
        """Begins to spread the members, if the chosen victims make enough room and are better than the best so far."""
        if self._best is not None and _highest_of(self._chosen) >= _highest_of(self._best[0]):
            return
        base = self._needs.base.copy()
        rooms = {node: room.copy() for node, room in self._rooms.items()}
        for item in self._chosen:
            for i, amount in item.gains:
                base[i] -= amount
            for node, pairs in item.frees:
                if node in rooms:
                    for t, amount in pairs:
                        if t in rooms[node]:
                            rooms[node][t] += amount
        if max(base, default=0) > 0:
            return
        self._work += len(rooms) // NODES_PER_WORK
        chosen = tuple(self._chosen)
        # Nobody leaves only for a type that no guarantee covers, so it depends on the places who may leave.
        accepts = None if all(self._needs.owed) else partial(self._is_justified, chosen)
        self._spread = _Spread(self._groups, rooms, self._bound, self._devices, chosen, accepts)

    def _go_on_spreading(self, spread: _Spread) -> None:
        """Goes on spreading members. At the end, notes the victims if all members have found places."""
        before = spread.work
        ended = spread.take_steps()
        self._work += spread.work - before
        if not ended:
            return
        self._spread = None
        if spread.cut_short or (self._devices is not None and self._devices.cut_short):
            self.exhaustive = False
        if spread.places is None:
            return
        if self._known is not None and _key_of_items(spread.victims) >= key_of_plan(self._known):
            return
        self._best = spread.victims, spread.places

    def _is_justified(self, items: Sequence[_Item], nodes: Mapping[Allocation, Node]) -> bool:
        """Tells whether each of the victims *items* is justified if the members run on *nodes*: without it, a need that
        it may be taken for would not be met, or the members would not find their devices."""
        lacks: dict[tuple[Node | None, int], int] = {}
        for i, amount in enumerate(self._needs.base):
            lacks[None, i] = amount
        indexes = {t: i for i, t in enumerate(self._types)}
        for ask, node in nodes.items():
            for t, amount in ask.shape.pairs:
                place = node, indexes[t]
                lacks[place] = lacks.get(place, -self._rooms[node][t]) + amount
        lacks = {place: amount for place, amount in lacks.items() if amount > 0}
        gains = [_gains_at(item, indexes) for item in items]
        left = {place: amount - sum(gain.get(place, 0) for gain in gains) for place, amount in lacks.items()}
        return all(
            any(place[1] in item.serves and left[place] + gain.get(place, 0) > 0 for place in lacks)
            or self._leaves_devices(item, items, nodes)
            for item, gain in zip(items, gains, strict=True)
        )

    def _leaves_devices(self, item: _Item, items: Sequence[_Item], nodes: Mapping[Allocation, Node]) -> bool:
        """Tells whether the members on *nodes* would not find their devices without *item*, one of *items*."""
        if not item.holds:
            return False
        others = [victim for other in items if other is not item for victim in other.victims]
        return assign_devices(nodes.items(), others, self._given_up) is None

    def _list_items(self, view: PartitionView, candidates: Candidates) -> Iterator[_Item]:
        for node in view.nodes.values():
            for part in candidates.on_node(node):
                for adjusted, age, earlier, key, victim, kind in part:
                    frees = ((node, victim.shape.pairs),)
                    rest = age, earlier, key
                    holds = self._list_held((victim,))
                    yield _Item(
                        reluctance_of(victim),
                        adjusted,
                        rest,
                        (victim,),
                        frees,
                        kind.gains,
                        kind.uses,
                        holds,
                        kind.serves,
                    )

    def _list_held(self, victims: Sequence[Allocation]) -> frozenset[tuple[str, str, int]]:
        """Returns the parts of devices that *victims* hold, if they matter."""
        if not self._wants_devices:
            return frozenset()
        return frozenset(
            (victim.node.node_id, *taken)
            for victim in victims
            if victim.node is not None and victim.node.devices is not None
            for taken in victim.node.devices.held_by(victim)
        )

    def _list_gangs(self, candidates: Candidates, terms: Terms) -> Iterator[_Item]:
        for leaf in candidates.open_leaves():
            for application in leaf.leaf.applications.values():
                if not application.leaves_whole or not candidates.may_lose(application):
                    continue
                members = [member for member in members_of(application) if is_bound(member)]
                if not members or not can_leave_whole(members):
                    continue
                if leaf.highest is not None and any(member.priority > leaf.highest for member in members):
                    continue
                shapes = [member.shape for member in members]
                kind = terms.kind_of_gang(leaf, shapes, shapes, candidates.surplus_rooms(application))
                if kind is None:
                    continue
                by_node: dict[Node, dict[int, int]] = {}
                for member in members:
                    assert member.node is not None, "what runs has a node"
                    amounts = by_node.setdefault(member.node, {})
                    for t, amount in member.shape.pairs:
                        amounts[t] = amounts.get(t, 0) + amount
                yield _Item(
                    max(map(reluctance_of, members)),
                    max(candidates.order_of(leaf, member) for member in members),
                    (max(age_of(m) for m in members), application.preempted_count, members[0].key),
                    tuple(members),
                    tuple((node, tuple(amounts.items())) for node, amounts in by_node.items()),
                    kind.gains,
                    kind.uses,
                    self._list_held(members),
                    kind.serves,
                )

    def _make_plan(self, items: Sequence[_Item], nodes: Mapping[Allocation, Node], *, mends: bool) -> UnitPlan:
        left = list(items)
        room = {node: amounts.copy() for node, amounts in self._rooms.items()}
        of_member: dict[Allocation, list[_Item]] = {ask: [] for ask in nodes}
        for ask, node in nodes.items():
            for t, amount in ask.shape.pairs:
                room[node][t] -= amount
            for item in sorted(left):
                if min(room[node].values()) >= 0:
                    break
                if any(freed is node for freed, _ in item.frees):
                    of_member[ask].append(item)
                    left.remove(item)
                    for freed, pairs in item.frees:
                        for t, amount in pairs:
                            if freed in room and t in room[freed]:
                                room[freed][t] += amount
        # A victim that frees nothing missing on a node leaves for a queue or a guarantee, so for all members alike.
        of_member[next(iter(nodes))].extend(left)
        adjusted = {victim: item.adjusted for item in items for victim in item.victims}
        devices = assign_devices(nodes.items(), list(adjusted), self._given_up)
        assert devices is not None, "looked at when the nodes were chosen"
        places = []
        for ask, node in nodes.items():
            victims = tuple(victim for item in sorted(of_member[ask]) for victim in item.victims)
            short = {self._names[t]: a - self._rooms[node][t] for t, a in ask.shape.pairs if a > self._rooms[node][t]}
            needs = FreedAmounts({Need.NODE.value: short} if short and victims else {})
            order = tuple(adjusted[victim] for victim in victims)
            place = PreemptionPlan(KIND, ask, node, victims, self._fence, needs, order, devices=devices.get(ask, ()))
            places.append(place)
        return UnitPlan(KIND, self._whole.application, tuple(places), self._fence, mends, not self.exhaustive)


class _DevicesLeft:
    """The devices that are left on nodes once some of the allocations there have gone. The answers are kept, because
    most nodes lose the same allocations in many sets of victims."""

    def __init__(self, given_up: Container[Allocation]) -> None:
        self._given_up: Final = given_up
        self._left: dict[tuple[Node, frozenset[Allocation]], NodeDevices | None] = {}
        self._shared: dict[tuple[Node, frozenset[Allocation], tuple[int, ...]], bool] = {}
        """The answers of :meth:`can_hold`."""
        self.work = 0
        """The work done so far."""
        self.cut_short = False
        """Tells whether one of the searches ended before all ways were tried."""

    def can_hold(self, node: Node, gone: frozenset[Allocation], members: Sequence[tuple[int, Allocation]]) -> bool:
        """Tells whether *members*, each with the number of its group, find devices on *node* at once when *gone* have
        left."""
        key = node, gone, tuple([group for group, _ in members])
        known = self._shared.get(key)
        if known is not None:
            return known
        left = self._find_left(node, gone)
        if left is None:
            return False
        search = search_sharing(left.copy(), [ask for _, ask in members])
        enough = search.serve_all()
        self.work += SHARING_WORK + search.steps * SHARING_WORK // 4
        if not enough and search.cut_short:
            self.cut_short = True
        # Devices may be kept for one member and not for others of its group.
        if not any(device.kept for device in left):
            self._shared[key] = enough
        return enough

    def _find_left(self, node: Node, gone: frozenset[Allocation]) -> NodeDevices | None:
        if len(self._left) >= MOST_KNOWN or len(self._shared) >= MOST_KNOWN:
            self._left.clear()
            self._shared.clear()
        try:
            return self._left[node, gone]
        except KeyError:
            self.work += SHARING_WORK
            found = self._left[node, gone] = devices_after(node, gone, self._given_up)
            return found


class _Group(NamedTuple):
    """Members that are equal for this search."""

    pairs: Pairs
    devices: DeviceRequest | None
    refused: frozenset[str]
    asks: tuple[Allocation, ...]
    bound: int | None
    """The index of the rule of domains that applies to them; ``None``: none does."""


class _Spread:
    """All ways to place members on nodes; equal members are placed in the order of the nodes."""

    def __init__(
        self,
        groups: Sequence[_Group],
        rooms: Mapping[Node, dict[int, int]],
        bound: Sequence[Bound] = (),
        devices: _DevicesLeft | None = None,
        victims: tuple[_Item, ...] = (),
        accepts: Callable[[Mapping[Allocation, Node]], bool] | None = None,
    ) -> None:
        """*rooms*: the room that there is without *victims*, which the search changes. *devices*: ``None`` if no member
        wants any. *accepts* tells whether a way to place all members will do; ``None``: each one will."""
        self.victims: Final = victims
        self.places: dict[Allocation, Node] | None = None
        """A node for each member; ``None``: none found so far."""
        self._devices = devices
        self._accepts = accepts
        self._gone: dict[Node, frozenset[Allocation]] = {}
        if devices is not None:
            leaving = [victim for item in victims for victim in item.victims]
            for node in dict.fromkeys(victim.node for victim in leaving if victim.node is not None):
                self._gone[node] = frozenset(victim for victim in leaving if victim.node is node)
        self._wanting: dict[Node, list[tuple[int, Allocation]]] = {}
        """The members on each node that want devices, each with the number of its group."""
        self._bound = bound
        self._counts: list[dict[DomainPath, int]] = [{} for _ in bound]
        self._rooms = rooms
        self._nodes = list(rooms)
        self._turns = [(at, group, ask) for at, group in enumerate(groups) for ask in group.asks]
        self._all_alike = len(groups) == 1 and not bound and accepts is None
        self._chosen: list[Node] = []
        self._steps = 0
        """The number of places tried for members."""
        self.work = 0
        """The work done so far."""
        self._rested_at = 0
        self.cut_short = False
        self._search = self._place_next(0, 0)

    def take_steps(self) -> bool:
        """Takes some steps. Returns whether the search has ended."""
        try:
            next(self._search)
        except StopIteration as end:
            if end.value:
                self.places = self._list_places()
            return True
        return False

    def _list_places(self) -> dict[Allocation, Node]:
        return {ask: node for (_, _, ask), node in zip(self._turns, self._chosen, strict=True)}

    def _will_do(self) -> bool:
        """Tells whether the nodes chosen for all members are accepted."""
        if self._accepts is None:
            return True
        self.work += SHARING_WORK * (1 if self._devices is None else 1 + len(self.victims))
        return self._accepts(self._list_places())

    def _place_next(self, turn: int, start: int) -> Generator[None, None, bool]:
        """Tries all nodes for the member whose *turn* has come, and then for the next ones. Pauses after some work, and
        returns whether all found a node."""
        if turn == len(self._turns):
            return self._will_do()
        at_group, group, ask = self._turns[turn]
        alike = turn + 1 < len(self._turns) and self._turns[turn + 1][1] is group
        for at in range(start, len(self._nodes)):
            node = self._nodes[at]
            room = self._rooms[node]
            if node.node_id in group.refused or any(room[t] < amount for t, amount in group.pairs):
                continue
            if not can_take_claim(node, ask):
                continue
            if self._steps >= MOST_SPREADS:
                self.cut_short = True
                return False
            if not self._enter_domain(group, node):
                continue
            self._steps += 1
            self.work += 1
            if self.work - self._rested_at >= STEPS_AT_ONCE:
                self._rested_at = self.work
                yield
            if group.devices is not None and not self._take_devices(at_group, ask, node):
                self._leave_domain(group, node)
                continue
            for t, amount in group.pairs:
                room[t] -= amount
            self._chosen.append(node)
            if (yield from self._place_next(turn + 1, at if alike else 0)):
                return True
            self._chosen.pop()
            if group.devices is not None:
                self._wanting[node].pop()
            self._leave_domain(group, node)
            for t, amount in group.pairs:
                room[t] += amount
            if self._all_alike:
                return False  # Other places for these members would not help: all members are alike.
        return False

    def _take_devices(self, at_group: int, ask: Allocation, node: Node) -> bool:
        """Tells whether *ask* finds devices on *node* beside the members that are there already, and if so counts it
        among them."""
        devices = self._devices
        assert devices is not None, "a member wants some"
        members = self._wanting.setdefault(node, [])
        before = devices.work
        enough = devices.can_hold(node, self._gone.get(node, frozenset()), [*members, (at_group, ask)])
        self.work += devices.work - before
        if enough:
            members.append((at_group, ask))
        return enough

    def _enter_domain(self, group: _Group, node: Node) -> bool:
        """Counts a member of *group* in the domain of *node*. Returns whether it may run there together with the
        others."""
        if group.bound is None:
            return True
        rule, counts = self._bound[group.bound], self._counts[group.bound]
        domain = rule.domain_of(node)
        if domain is None:
            return False
        counts[domain.path] = counts.get(domain.path, 0) + 1
        if rule.admits(counts):
            return True
        self._leave_domain(group, node)
        return False

    def _leave_domain(self, group: _Group, node: Node) -> None:
        if group.bound is None:
            return
        domain = self._bound[group.bound].domain_of(node)
        assert domain is not None, "a member was counted there"
        self._counts[group.bound][domain.path] -= 1


def _gains_at(item: _Item, indexes: Mapping[int, int]) -> dict[tuple[Node | None, int], int]:
    """Returns what *item* contributes to each need, by place and index; ``None`` stands for queues and guarantees."""
    gains: dict[tuple[Node | None, int], int] = {(None, i): amount for i, amount in item.gains}
    for node, pairs in item.frees:
        for t, amount in pairs:
            if t in indexes:
                gains[node, indexes[t]] = gains.get((node, indexes[t]), 0) + amount
    return gains


def _group_members(
    members: Sequence[Allocation], refused: Mapping[Allocation, frozenset[str]], bound: Sequence[Bound]
) -> list[_Group]:
    """Returns *members* in groups of equal members, large members first."""
    alike: dict[tuple[Pairs, DeviceRequest | None, frozenset[str], int | None], list[Allocation]] = {}
    rules = {ask: at for at, rule in enumerate(bound) for ask in rule.asks}
    for ask in members:
        key = ask.shape.pairs, ask.shape.devices, refused.get(ask, frozenset()), rules.get(ask)
        alike.setdefault(key, []).append(ask)
    groups = [_Group(pairs, devices, nodes, tuple(asks), at) for (pairs, devices, nodes, at), asks in alike.items()]
    return sorted(groups, key=lambda group: tuple((t, -amount) for t, amount in group.pairs))


def key_of_plan(plan: UnitPlan) -> tuple[bool, bool, int, int]:
    """Returns the sort key of *plan* in the order of B.11: its worst victim, their number, their highest priority."""
    highest = max((adjusted for place in plan.places for adjusted in place.adjusted), default=0)
    return (*_key_of(plan.victims), highest)


def _key_of_items(items: Sequence[_Item]) -> tuple[bool, bool, int, int]:
    return (*_key_of([victim for item in items for victim in item.victims]), _highest_of(items))


def _highest_of(items: Sequence[_Item]) -> int:
    return max((item.adjusted for item in items), default=0)


def _key_of(victims: Sequence[Allocation]) -> tuple[bool, bool, int]:
    """Returns the sort key of a set of *victims*, without its last part, the highest priority."""
    return (*_find_class(victims), len(victims))


def _find_class(victims: Sequence[Allocation]) -> tuple[bool, bool]:
    """Tells whether any of *victims* is an originator, and whether any has opted out."""
    return (
        any(victim.spec.originator for victim in victims),
        any(not victim.spec.allow_preempt_self for victim in victims),
    )
