"""Bounds what one way to divide a gang over domains can give, without searching it (preemption.md B.11).

Most domains are alike, and a search of one of them takes a member at a time. The bound takes one pass over the nodes of
the domains: it lets every allocation leave that the laws let leave alone, and counts the members that would find room,
as if they were the smallest of the gang. It never promises too little, so a way whose bound is no better than what was
found already need not be searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from operator import floordiv
from typing import Final, NamedTuple

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.settings import GuaranteeMode
from kornel.core.model.allocations import BOUND, Allocation
from kornel.core.model.applications import Application
from kornel.core.model.domains import Domain
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.entitlement import find_entitlement
from kornel.core.preemption.gang_losses import GangLosses
from kornel.core.preemption.guarantee.gangs.domains import Way
from kornel.core.preemption.guarantee.rules.allowances import LeafTerms, Terms
from kornel.core.preemption.guarantee.rules.candidates import leaves_below
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.plan import Refusal

NODES_AT_ONCE: Final = 120
"""The number of nodes that are looked at in one step, which takes about two milliseconds."""
MOST_SHAPES: Final = 4
"""The most sizes of members for which bounds are computed; the laws are asked for each of them."""

_LOWEST: Final = -(2**80)
"""A number below every priority."""
_LEVELS: Final = ((False, False, False), (False, False, True), (False, True, False), (True, False, False))
"""The first part of the key, (any whole gang, any originator, any opted out), of the mildest plan that needs victims
of the level with this index."""
_ORDINARY, _OPTED_OUT, _ORIGINATORS, _GANGS = range(4)
_LEVEL_OF_CLASS: Final = (_ORDINARY, _OPTED_OUT, _ORIGINATORS, _ORIGINATORS)
_STAYING: Final = frozenset({AskPlace.PREEMPTED, AskPlace.RELEASED, AskPlace.REPLACING})
_NOTHING: Final = repeat(0)

PlanKey = tuple[bool, bool, bool, int, int]
"""(any whole gang, any originator, any opted out, number of victims, highest adjusted priority)"""


class WayBound(NamedTuple):
    """An upper bound of the number of members that find places, and a lower bound of the key of a plan for all."""

    most: int
    key: PlanKey


class _Share:
    """One domain of a way, with the number of members that it gets and the amounts that could leave there."""

    def __init__(self, number: int, types: int) -> None:
        self.number: Final = number
        self.fits = [0] * len(_LEVELS)
        """The number of members that single nodes have room for, if everything up to the level leaves."""
        self.room = [0] * types
        """The amounts that nobody has claimed on the nodes."""
        self.given: list[dict[Queue, list[int]]] = [{} for _ in _LEVELS]
        """The amounts that could leave, by leaf, of each level."""


class Reach:
    """Computes the bounds of the ways of one gang, a few nodes at a time. Amounts are those of the types that all
    members want."""

    def __init__(self, view: PartitionView, whole: Allocation, members: Sequence[Allocation], fence: Queue) -> None:
        """Prepares the bounds. *whole* stands for all *members*, and *fence* is that of all of them."""
        self.bound: WayBound | None = None
        """The bound of the way that was looked at last; ``None``: not all of its nodes have been looked at."""
        self._whole: Final = whole
        self._total: Final = len(members)
        self._smallest: Final = _smallest_demand(members)
        self._judges: Final = _make_judges(view, whole, members, fence)
        self._most_given: Final = self._sum_most()
        self._losses: Final = GangLosses()
        self._levels: dict[tuple[Application, Shape, int, str], tuple[int, LeafTerms] | None] = {}
        self._amounts: dict[Shape, tuple[int, ...]] = {}
        self._way: Way | None = None
        self._nodes: Iterator[tuple[Node, _Share]] = iter(())
        self._shares: list[_Share] = []
        self._prices: list[dict[int, int]] = []
        """The number of possible victims by adjusted priority, of each level."""

    def look_at(self, way: Way, most: int) -> int:
        """Looks at *most* nodes of *way*, and returns how many it has looked at. :attr:`bound` is set after the last
        one, or as soon as it is plain that the way has too few places."""
        if way is not self._way:
            self._begin(way)
            if self.bound is not None:
                return 1
        for looked in range(most):
            found = next(self._nodes, None)
            if found is None:
                self.bound = self._conclude(way)
                return looked + 1
            node, share = found
            if node.schedulable:
                self._add_node(node, share)
        return most

    def _begin(self, way: Way) -> None:
        self._way, self.bound = way, None
        if self._judges is None:
            self.bound = WayBound(self._total, (*_LEVELS[0], 0, _LOWEST))
            return
        rooms = ((way.room.get(t, 0) + self._most_given[t]) // amount for t, amount in self._smallest.items())
        number = len(way.domains)
        most = min(rooms, default=number)
        if most < number:
            self.bound = WayBound(self._total - number + most, (*_LEVELS[-1], way.least, _LOWEST))
            return
        numbers: dict[Domain, int] = {}
        for domain in way.domains.values():
            numbers[domain] = numbers.get(domain, 0) + 1
        shares = {domain: _Share(number, len(self._smallest)) for domain, number in numbers.items()}
        self._shares = list(shares.values())
        self._prices = [{} for _ in _LEVELS]
        self._nodes = iter([(node, share) for domain, share in shares.items() for node in domain.nodes])

    def _sum_most(self) -> dict[int, int]:
        """Returns, by type, the most that all leaves together may give up."""
        if self._judges is None:
            return {}
        return {
            t: max(
                laws.sum_flows((laws.rooms_for(leaf, t), leaf.used[t] - leaf.preempting[t]) for leaf in laws.open)
                for laws in self._judges
            )
            for t in self._smallest
        }

    def _add_node(self, node: Node, share: _Share) -> None:
        freed: dict[int, list[int]] = {}
        alike: dict[tuple[Application, Shape, int, str], int] = {}
        for allocation in node.allocations.values():
            if allocation.place not in _STAYING:
                key = allocation.application, allocation.shape, allocation.standing, allocation.spec.task_group
                alike[key] = alike.get(key, 0) + 1
        for key, count in alike.items():
            found = self._find_level(*key)
            if found is None:
                continue
            level, terms = found
            prices = self._prices[level]
            price = terms.adjusted.of(key[2] >> 3)
            prices[price] = prices.get(price, 0) + count
            given = share.given[level]
            leaf = key[0].queue
            here, there = freed.get(level), given.get(leaf)
            if here is None:
                here = freed[level] = [0] * len(self._smallest)
            if there is None:
                there = given[leaf] = [0] * len(self._smallest)
            for at, amount in enumerate(self._amounts_of(key[1])):
                here[at] += count * amount
                there[at] += count * amount
        beside = node.beside
        room = [beside[t] for t in self._smallest]
        for at, amount in enumerate(room):
            share.room[at] += max(0, amount)
        fits = 0
        for level in range(len(_LEVELS)):
            if level in freed or not level:
                room = [amount + more for amount, more in zip(room, freed.get(level, _NOTHING), strict=False)]
                fits = max(0, min(map(floordiv, room, self._smallest.values()), default=share.number))
            share.fits[level] += fits

    def _amounts_of(self, shape: Shape) -> tuple[int, ...]:
        amounts = self._amounts.get(shape)
        if amounts is None:
            by_type = shape.amounts
            amounts = self._amounts[shape] = tuple(by_type.get(t, 0) for t in self._smallest)
        return amounts

    def _find_level(
        self, application: Application, shape: Shape, standing: int, task_group: str
    ) -> tuple[int, LeafTerms] | None:
        """Returns the level of such an allocation as a victim, with the rules for its leaf; ``None``: it cannot
        leave."""
        key = application, shape, standing, task_group
        try:
            return self._levels[key]
        except KeyError:
            found = self._levels[key] = self._judge(*key)
            return found

    def _judge(
        self, application: Application, shape: Shape, standing: int, task_group: str
    ) -> tuple[int, LeafTerms] | None:
        if application is self._whole.application or standing & BOUND:
            return None
        member = application.leaves_whole and bool(task_group)
        best: tuple[int, LeafTerms] | None = None
        for laws in self._judges or ():
            terms = laws.open.get(application.queue)
            if terms is None or (terms.highest is not None and standing >> 3 > terms.highest):
                continue
            effects = laws.effects_of(application.queue, shape)
            if isinstance(effects, str) and (effects == "law 2" or not member):
                # A member of a gang that would not serve a need by itself may leave with the others.
                continue
            gang = member and (isinstance(effects, str) or self._losses.surplus_in(application, task_group) <= 0)
            level = _GANGS if gang else _LEVEL_OF_CLASS[standing & 3]
            if best is None or level < best[0]:
                best = level, terms
        return best

    def _conclude(self, way: Way) -> WayBound:
        levels = range(len(_LEVELS))
        places = [[self._count_places(share, level) for level in levels] for share in self._shares]
        counted = list(zip(self._shares, places, strict=True))
        most = self._total - len(way.domains) + sum(min(share.number, counts[-1]) for share, counts in counted)
        level = next((at for at in levels if all(counts[at] >= share.number for share, counts in counted)), _GANGS)
        return WayBound(most, (*_LEVELS[level], way.least, self._highest_of(way.least, level)))

    def _count_places(self, share: _Share, level: int) -> int:
        """Returns how many members find places in the domain of *share* if everything up to *level* may leave, within
        what the guarantees of queues allow together."""
        found = share.fits[level]
        for at, (t, amount) in enumerate(self._smallest.items()):
            given: dict[Queue, int] = {}
            for part in share.given[: level + 1]:
                for leaf, amounts in part.items():
                    given[leaf] = given.get(leaf, 0) + amounts[at]
            flow = max(
                laws.sum_flows((laws.rooms_for(leaf, t), freed) for leaf, freed in given.items() if leaf in laws.open)
                for laws in self._judges or ()
            )
            found = min(found, (share.room[at] + flow) // amount)
        return found

    def _highest_of(self, least: int, level: int) -> int:
        """Returns a lower bound of the highest priority among *least* victims up to *level*, if there are no more."""
        if not least:
            return 0
        if level == _GANGS:
            return _LOWEST
        left = least
        for price, count in sorted(chain.from_iterable(part.items() for part in self._prices[: level + 1])):
            left -= count
            if left <= 0:
                return price
        return _LOWEST


def _smallest_demand(members: Sequence[Allocation]) -> dict[int, int]:
    """Returns, by type, the least that any of *members* asks for; types that one of them does not want are left out."""
    demands = [ask.shape.amounts for ask in members]
    types = demands[0].keys()
    least = {t: min(demand.get(t, 0) for demand in demands) for t in types}
    return {t: amount for t, amount in least.items() if amount > 0}


def _make_judges(
    view: PartitionView, whole: Allocation, members: Sequence[Allocation], fence: Queue
) -> list[Terms] | None:
    """Returns what the laws allow a member of each size to take, counted as if all members took it at once; ``None``:
    that is not known."""
    sizes = list({ask.shape.pairs: ask for ask in members}.values())
    if len(sizes) > MOST_SHAPES or any(ask.reservation is not None for ask in members):
        return None
    found: list[Terms] = []
    for ask in sizes:
        spec = ask.spec._replace(priority=whole.priority)
        alone = Allocation(spec, ask.application, ask.shape, ask.created_ns, ask.arrival)
        entitled = find_entitlement(alone, GuaranteeMode.STRICT, view.types.names)
        if isinstance(entitled, Refusal):
            return None
        laws = Terms(whole, fence, entitled, Needs(alone, fence, entitled))
        for leaf in leaves_below(fence):
            if leaf is not whole.queue:
                laws.terms_of(leaf)
        found.append(laws)
    return found
