"""Makes room for a gang that preempts as a unit where places found one after the other do not do: by one walk over all
candidates, with all ways to place the members on the nodes (preemption.md B.11).

It is for small problems, and ends after a limited amount of work; its answer then says that not all ways were tried.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from kornel.core.domain.devices import DeviceRequest
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import NodeDevices
from kornel.core.model.domains import DomainPath
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.policies.bound_groups import Bound
from kornel.core.policies.device_sharing import search_sharing
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.entitlement import Entitlement
from kornel.core.preemption.guarantee.gangs.devices import SHARING_WORK, assign_devices, devices_after, want_devices
from kornel.core.preemption.guarantee.rules.allowances import Terms
from kornel.core.preemption.guarantee.rules.candidates import Candidates
from kornel.core.preemption.guarantee.rules.needs import Needs, can_take_claim
from kornel.core.preemption.guarantee.search.gang_victims import find_gangs
from kornel.core.preemption.guarantee.search.planner import KIND
from kornel.core.preemption.plan import FreedAmounts, GangPlan, Need, PreemptionPlan
from kornel.core.preemption.walk import Candidate, Effects, list_firsts, take_everybody
from kornel.core.state.records.victim_index import CLASSES, VictimIndex, reluctance_of

STEPS_AT_ONCE: Final = 200
"""The work that is done at once, which takes about two milliseconds."""
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
    """Tells whether the partition and *members* are few enough to try all ways to place them."""
    if len(members) > MOST_MEMBERS or len(view.nodes) > MOST_NODES:
        return False
    return sum(len(node.allocations) for node in view.nodes.values()) <= MOST_VICTIMS


class Packing:
    """The walk for one gang.

    It takes everybody whom the laws let go, which is only of use if all members find places then. Who is not needed for
    that is given back, the last one first.
    """

    def __init__(
        self,
        view: PartitionView,
        whole: Allocation,
        members: Sequence[Allocation],
        fence: Queue,
        entitled: Entitlement,
        refused: Mapping[Allocation, frozenset[str]],
        index: VictimIndex,
        bound: Sequence[Bound],
    ) -> None:
        """Prepares the walk. *bound* are the groups that require a domain."""
        self._whole = whole
        self._fence = fence
        self._names = view.types.names
        self._needs = Needs(whole, fence, entitled)
        terms = Terms(whole, fence, entitled, self._needs)
        candidates = Candidates(whole, fence, terms, index, now_ns=view.now_ns)
        self._rooms: dict[Node, dict[int, int]] = {}
        self._types = [t for t, _ in whole.shape.pairs]
        self._groups = _group_members(members, refused, bound)
        self._given_up = view.given_up
        self._devices = _DevicesLeft(view.given_up) if want_devices(members) else None
        for node in sorted(view.nodes.values(), key=lambda node: node.node_id):
            if any(can_take_claim(node, ask) and node.could_hold_shape(ask.shape) for ask in members):
                room = node.beside
                self._rooms[node] = {t: room[t] for t in self._types}
        self._members: dict[str, dict[Allocation, int]] = {}
        """The members of each gang that may leave as a whole, each with its order, by the key of its candidate."""
        self._pool: list[list[Candidate]] = [[] for _ in CLASSES]
        for node in view.nodes.values():
            for level, part in enumerate(candidates.on_node(node)):
                self._pool[level] += filter(self._can_help, part)
        self._gangs: list[list[Candidate]] = [[] for _ in CLASSES]
        for whole_gang in find_gangs(candidates):
            gang = whole_gang.as_candidate(candidates, terms)
            if gang is not None:
                self._members[gang[3]] = whole_gang.members
                if self._can_help(gang):
                    self._gangs[whole_gang.reluctance].append(gang)
        self._room: Final = terms.room
        self._bound = bound
        self._best: tuple[list[Candidate], dict[Allocation, Node]] | None = None
        self._work = 0
        self._rested_at = 0
        self.exhaustive = True

    def walk(self) -> Iterator[None]:
        """Walks over growing sets of classes, first without whole gangs, until all members have places. Pauses after
        some work."""
        for gangs in (False, True) if self._members else (False,):
            for level in CLASSES:
                if not self._pool[level] and not (gangs and self._gangs[level]) and level:
                    continue
                pool = [
                    candidate
                    for at in CLASSES[: level + 1]
                    for part in (self._pool[at], self._gangs[at] if gangs else [])
                    for candidate in sorted(part)
                ]
                kept: list[Candidate] = []
                for first in list_firsts(kept, _alike):
                    ahead = {candidate[3] for candidate in first}
                    others = [candidate for candidate in pool if candidate[3] not in ahead]
                    everybody, all_owed = chain(first, others), all(self._needs.owed)
                    walk = take_everybody(self._needs.base, self._room, everybody, all_served=all_owed)
                    self._work += len(others)
                    kept += walk.kept
                    kept += yield from self._try_walk(walk.taken)
                    if self._best is not None:
                        return

    def give_back_from(self, victims: Collection[Allocation]) -> Iterator[None]:
        """Returns the steps that give back whoever of *victims*, single tasks of a plan that was found otherwise, is
        not needed if members run elsewhere."""
        return self._try_walk([c for part in self._pool for c in sorted(part) if c[4] in victims])

    def take_steps(self, steps: Iterator[None]) -> bool:
        """Takes some of *steps*, which the caller keeps: a walk that kept them itself would refer to itself. Returns
        whether the search has ended."""
        until = self._work + STEPS_AT_ONCE
        while self._work < until:
            if self._work >= MOST_WORK:
                self.exhaustive = False
                return True
            if next(steps, self) is self:
                return True
        return False

    def make_plan(self, *, mends: bool) -> GangPlan | None:
        """Returns the plan that was found; ``None``: there is none."""
        if self._best is None:
            return None
        victims, nodes = self._best
        return self._describe_plan(victims, nodes, mends=mends)

    def _can_help(self, victim: Candidate) -> bool:
        """Tells whether *victim* frees room on a node where a member may run, or something that has to be freed
        wherever members run."""
        if any(member.node in self._rooms for member in self._leaves_of(victim)):
            return True
        return any(self._needs.base[i] > 0 for i, _ in victim[5].gains)

    def _try_walk(self, taken: Sequence[Candidate]) -> Generator[None, None, Sequence[Candidate]]:
        """Gives back who of *taken* is not needed, from the last one on, and notes the others with the places of the
        members if there are any. Pauses after some work.

        Returns those given back if one of the others would leave only for a type that no guarantee covers: it may be
        justified where one of these leaves instead of another.
        """
        kept = list(taken)
        nodes = yield from self._find_places(kept)
        for at in range(len(kept) - 1, -1, -1) if nodes is not None else ():
            rest = kept[:at] + kept[at + 1 :]
            without = yield from self._find_places(rest)
            if without is not None:
                kept, nodes = rest, without
        if nodes is None:
            return ()
        if not all(self._needs.owed) and not self._are_justified(kept, nodes):
            return [victim for victim in taken if victim not in kept]
        self._best = kept, nodes
        return ()

    def _find_places(self, victims: Sequence[Candidate]) -> Generator[None, None, dict[Allocation, Node] | None]:
        """Returns a node for each member once *victims* have left; ``None``: they do not make enough room. Pauses after
        some work."""
        base = self._needs.base.copy()
        rooms = {node: room.copy() for node, room in self._rooms.items()}
        for victim in victims:
            for i, amount in victim[5].gains:
                base[i] -= amount
            for member in self._leaves_of(victim):
                there = rooms.get(member.node) if member.node is not None else None
                for t, amount in member.shape.pairs if there is not None else ():
                    if there is not None and t in there:
                        there[t] += amount
        self._work += 1 + len(rooms) // NODES_PER_WORK
        if self._work - self._rested_at >= STEPS_AT_ONCE:
            self._rested_at = self._work
            yield
        if max(base, default=0) > 0 or not self._could_fit(rooms):
            return None
        spread = _Spread(self._groups, rooms, self._bound, self._devices, self._all_leaving(victims))
        counted = 0
        for _ in spread.place_members():
            self._work += spread.work - counted
            counted = spread.work
            yield
        self._work += spread.work - counted
        if spread.cut_short or (self._devices is not None and self._devices.cut_short):
            self.exhaustive = False
        return spread.places

    def _could_fit(self, rooms: Mapping[Node, dict[int, int]]) -> bool:
        """Tells whether *rooms* together hold what all members ask for."""
        return all(sum(max(0, room[t]) for room in rooms.values()) >= amount for t, amount in self._whole.shape.pairs)

    def _leaves_of(self, victim: Candidate) -> Sequence[Allocation]:
        return tuple(self._members.get(victim[3], (victim[4],)))

    def _all_leaving(self, victims: Sequence[Candidate]) -> list[Allocation]:
        return [member for victim in victims for member in self._leaves_of(victim)]

    def _are_justified(self, victims: Sequence[Candidate], nodes: Mapping[Allocation, Node]) -> bool:
        """Tells whether each of *victims* is justified if the members run on *nodes*: without it, a need that it may be
        taken for would not be met, or the members would not find their devices."""
        lacks: dict[tuple[Node | None, int], int] = {(None, i): amount for i, amount in enumerate(self._needs.base)}
        indexes = {t: i for i, t in enumerate(self._types)}
        for ask, node in nodes.items():
            for t, amount in ask.shape.pairs:
                place = node, indexes[t]
                lacks[place] = lacks.get(place, -self._rooms[node][t]) + amount
        lacks = {place: amount for place, amount in lacks.items() if amount > 0}
        gains = [self._gains_at(victim, indexes) for victim in victims]
        left = {place: amount - sum(gain.get(place, 0) for gain in gains) for place, amount in lacks.items()}
        return all(
            any(place[1] in victim[5].serves and left[place] + gain.get(place, 0) > 0 for place in lacks)
            or not self._leave_devices([other for other in victims if other is not victim], nodes)
            for victim, gain in zip(victims, gains, strict=True)
        )

    def _gains_at(self, victim: Candidate, indexes: Mapping[int, int]) -> dict[tuple[Node | None, int], int]:
        """Returns what *victim* contributes to each need, by place and index; ``None`` stands for queues and
        guarantees."""
        gains: dict[tuple[Node | None, int], int] = {(None, i): amount for i, amount in victim[5].gains}
        for member in self._leaves_of(victim):
            for t, amount in member.shape.pairs:
                if t in indexes:
                    gains[member.node, indexes[t]] = gains.get((member.node, indexes[t]), 0) + amount
        return gains

    def _leave_devices(self, victims: Sequence[Candidate], nodes: Mapping[Allocation, Node]) -> bool:
        """Tells whether the members on *nodes* find their devices once *victims* have left."""
        if self._devices is None:
            return True
        return assign_devices(nodes.items(), self._all_leaving(victims), self._given_up) is not None

    def _describe_plan(
        self, victims: Sequence[Candidate], nodes: Mapping[Allocation, Node], *, mends: bool
    ) -> GangPlan:
        left = sorted(self._all_leaving(victims), key=lambda victim: (reluctance_of(victim), victim.key))
        adjusted = {
            member: order
            for victim in victims
            for member, order in self._members.get(victim[3], {victim[4]: victim[0]}).items()
        }
        devices = assign_devices(nodes.items(), left, self._given_up)
        assert devices is not None, "looked at when the nodes were chosen"
        short_of: dict[Node, Allocation] = {}
        room = {node: amounts.copy() for node, amounts in self._rooms.items()}
        for ask, node in nodes.items():
            for t, amount in ask.shape.pairs:
                room[node][t] -= amount
            if min(room[node].values()) < 0:
                short_of.setdefault(node, ask)
        of_member = {ask: [victim for victim in left if victim.node is node] for node, ask in short_of.items()}
        # The others leave for a queue or a guarantee, so for all members alike.
        named = {victim for gone in of_member.values() for victim in gone}
        of_member.setdefault(next(iter(nodes)), []).extend(victim for victim in left if victim not in named)
        places = []
        for ask, node in nodes.items():
            gone = tuple(of_member.get(ask, ()))
            short = {self._names[t]: a - self._rooms[node][t] for t, a in ask.shape.pairs if a > self._rooms[node][t]}
            needs = FreedAmounts({Need.NODE.value: short} if short and gone else {})
            order = tuple(adjusted[victim] for victim in gone)
            place = PreemptionPlan(KIND, ask, node, gone, self._fence, needs, order, devices=devices.get(ask, ()))
            places.append(place)
        return GangPlan(KIND, self._whole.application, tuple(places), self._fence, mends, not self.exhaustive)


def _alike(victim: Candidate) -> tuple[Effects, Node | None]:
    return victim[5], victim[4].node


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
        leaving: Sequence[Allocation] = (),
    ) -> None:
        """*rooms*: the room that there is once *leaving* have left, which the search changes. *devices*: ``None`` if no
        member wants any."""
        self.places: dict[Allocation, Node] | None = None
        """A node for each member; ``None``: none found so far."""
        self._devices = devices
        self._gone: dict[Node, frozenset[Allocation]] = {}
        if devices is not None:
            for node in dict.fromkeys(victim.node for victim in leaving if victim.node is not None):
                self._gone[node] = frozenset(victim for victim in leaving if victim.node is node)
        self._wanting: dict[Node, list[tuple[int, Allocation]]] = {}
        """The members on each node that want devices, each with the number of its group."""
        self._bound = bound
        self._counts: list[dict[DomainPath, int]] = [{} for _ in bound]
        self._rooms = rooms
        self._nodes = list(rooms)
        self._turns = [(at, group, ask) for at, group in enumerate(groups) for ask in group.asks]
        self._all_alike = len(groups) == 1 and not bound
        self._chosen: list[Node] = []
        self._steps = 0
        """The number of places tried for members."""
        self.work = 0
        """The work done so far."""
        self._rested_at = 0
        self.cut_short = False

    def place_members(self) -> Iterator[None]:
        """Looks for the places. Pauses after some work."""
        if (yield from self._place_next(0, 0)):
            self.places = {ask: node for (_, _, ask), node in zip(self._turns, self._chosen, strict=True)}

    def _place_next(self, turn: int, start: int) -> Generator[None, None, bool]:
        """Tries all nodes for the member whose *turn* has come, and then for the next ones. Pauses after some work, and
        returns whether all found a node."""
        if turn == len(self._turns):
            return True
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


def key_of_plan(plan: GangPlan) -> tuple[bool, bool, int, int]:
    """Returns the sort key of *plan* in the order of B.11: its worst victim, their number, their highest priority."""
    highest = max((adjusted for place in plan.places for adjusted in place.adjusted), default=0)
    return (
        any(victim.spec.originator for victim in plan.victims),
        any(not victim.spec.allow_preempt_self for victim in plan.victims),
        len(plan.victims),
        highest,
    )
