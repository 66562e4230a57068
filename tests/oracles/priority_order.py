"""Who is served next, from seed 004's own words: asks, applications and queues by priority, fences, offsets, filters.

It knows nothing of the engine: no groups, heaps, counters or waiting rooms. Every priority is worked out again from the
asks for every single choice. Quotations are from the seed. What the seed leaves open is as part G of preemption.md
decides: an ask that was tried and found no room lends its rank to nobody, and one that no free room alone would help is
not shown either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOWEST, HIGHEST = -2_147_483_648, 2_147_483_647
"""'All 32-bit signed integers are considered valid priorities.'"""


@dataclass(eq=False)
class Ask:
    key: str
    size: int
    priority: int
    number: int
    """In order of arrival."""
    originator: bool = False
    node: str = ""
    aside: bool = False
    """Tried in vain since something was freed."""
    hopeless: bool = False
    """More than room is missing: a quota is in the way, or no node is large enough."""


@dataclass(eq=False)
class Owner:
    """An application."""

    name: str
    user: str
    number: int
    asks: list[Ask] = field(default_factory=list)
    first_s: int | None = None
    """The time of its first allocation: it runs."""
    started: bool = False
    """'Once something besides the originator runs, when it has no ask left, or five minutes after its first
    allocation.' A driver without an ask has a minute to ask."""
    held: bool = False
    """Its turn came, and it is not the new application that may start."""

    def pending(self) -> list[Ask]:
        return [ask for ask in self.asks if not ask.node]

    def pass_time(self, now_s: int) -> None:
        if self.first_s is not None:
            waited_s = now_s - self.first_s
            self.started = self.started or waited_s >= 300 or (waited_s >= 60 and not self.pending())

    def used(self) -> int:
        return sum(ask.size for ask in self.asks if ask.node)

    def priority(self) -> int | None:
        """'Defined as the maximum priority of all pending asks'; ``None``: there are none that count."""
        return max((ask.priority for ask in self.pending() if not ask.hopeless), default=None)

    def rank(self) -> int | None:
        """'Attempted to be satisfied before a lower-priority ask': of the asks that are left to try."""
        return max((ask.priority for ask in self.pending() if not ask.aside), default=None)


@dataclass(eq=False)
class Place:
    """A queue. ``sort``: of a leaf's applications; ``prioritised``: application.sort.priority in force."""

    name: str
    above: Place | None
    offset: int = 0
    fence: bool = False
    prioritised: bool = True
    sort: str = "fifo"
    guaranteed: int = 0
    most: int | None = None
    user_most: int | None = None
    """What each user may hold below it."""
    below: list[Place] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)

    def path(self) -> list[Place]:
        return [self, *(self.above.path() if self.above else [])]

    def everybody(self) -> list[Owner]:
        return [*self.owners, *(owner for place in self.below for owner in place.everybody())]

    def leaves(self) -> list[Place]:
        return [leaf for place in self.below for leaf in place.leaves()] if self.below else [self]

    def used(self, user: str = "") -> int:
        return sum(owner.used() for owner in self.everybody() if user in ("", owner.user))

    def waiting(self) -> int:
        return sum(ask.size for owner in self.everybody() for ask in owner.pending())

    def priority(self) -> int | None:
        """'Leaf: the maximum priority of the asks in that queue plus the offset', 'parent: of its child queues'."""
        shown = [place.priority() for place in self.below]
        return self._exposed(shown + [owner.priority() for owner in self.owners if not owner.held])

    def rank(self) -> int | None:
        """The same of the asks that are left to try."""
        ranks = [place.rank() for place in self.below]
        return self._exposed(ranks + [owner.rank() for owner in self.owners if not owner.held])

    def _exposed(self, below: list[int | None]) -> int | None:
        known = [priority for priority in below if priority is not None]
        if not known:
            return None
        if self.fence:  # 'Always set to the default priority or to the priority offset, if specified.'
            return self.offset
        return max(LOWEST, min(HIGHEST, max(known) + self.offset))

    def counted(self) -> int:
        """The guarantee that it declares, else what its children count with together."""
        return self.guaranteed or sum(place.counted() for place in self.below)


class PriorityOracle:
    """A cluster of one resource type; nodes are filled evenly, by name where they are as full."""

    def __init__(self, root: Place, nodes: dict[str, int]) -> None:
        self.root = root
        self.nodes = nodes
        self.now_s = 1

    def place_all(self) -> list[str]:
        """Keys in the order in which they are placed, until nothing more fits."""
        placed: list[str] = []
        while (choice := self._next()) is not None:
            owner, ask, leaf = choice
            if self._try(owner, ask, leaf):
                placed.append(ask.key)
        return placed

    def released(self, keys: list[str]) -> None:
        """These have ended: what was tried in vain may be tried again, unless it waits for room and there is none."""
        for owner in self.root.everybody():
            owner.asks = [ask for ask in owner.asks if ask.key not in keys]
            owner.held = False
        room = max(size - held for size, held in zip(self.nodes.values(), self._held().values(), strict=True))
        for owner in self.root.everybody():
            for ask in owner.asks:
                ask.aside = ask.aside and not ask.hopeless and ask.size > room
                ask.hopeless = False

    def withdrawn(self, owner: Owner) -> None:
        """It asks for nothing any more."""
        owner.asks = [ask for ask in owner.asks if ask.node]
        owner.started = owner.started or owner.first_s is not None

    def pass_time(self, seconds: int) -> None:
        self.now_s += seconds
        for owner in self.root.everybody():
            owner.pass_time(self.now_s)

    def _held(self) -> dict[str, int]:
        held = dict.fromkeys(self.nodes, 0)
        for owner in self.root.everybody():
            for ask in owner.asks:
                if ask.node:
                    held[ask.node] += ask.size
        return held

    def _next(self) -> tuple[Owner, Ask, Place] | None:
        for leaf in self.root.leaves():
            newcomer = self._newcomer(leaf)
            if newcomer is not None:
                newcomer.held = False
        place = self.root
        while place.below:
            open_ = [child for child in place.below if any(self._eligible(owner) for owner in child.everybody())]
            if not open_:
                return None
            place = min(open_, key=lambda child: self._queue_rank(place, child))
        while True:
            newcomer = self._newcomer(place)
            owners = [owner for owner in place.owners if self._eligible(owner)]
            if not owners:
                return self._next() if any(self._eligible(o) for o in self.root.everybody()) else None
            owner = min(owners, key=lambda owner: self._owner_rank(place, owner, owner.rank()))
            if place.sort != "stateaware" or owner.first_s is not None or owner is newcomer:
                break
            owner.held = True
            return self._next()
        asks = [ask for ask in owner.pending() if not ask.aside]
        return owner, min(asks, key=lambda ask: (-ask.priority, ask.number)), place

    @staticmethod
    def _eligible(owner: Owner) -> bool:
        return not owner.held and any(not ask.aside for ask in owner.pending())

    def _newcomer(self, leaf: Place) -> Owner | None:
        """'The single "new" application that is considered': by priority, where that counts, then the oldest. One that
        runs and has not started is that application."""
        if any(owner.first_s is not None and not owner.started for owner in leaf.owners):
            return None
        new = [owner for owner in leaf.owners if not owner.started and owner.priority() is not None]
        return min(new, key=lambda owner: self._owner_rank(leaf, owner, owner.priority()), default=None)

    @staticmethod
    def _owner_rank(leaf: Place, owner: Owner, priority: int | None) -> tuple[object, ...]:
        """'The primary sort will be priority and the configured policy will be used as tiebreaker.'"""
        first = 0 if not leaf.prioritised else 1 - LOWEST if priority is None else -priority
        usage = 0.0
        if leaf.sort == "fair":
            usage = owner.used() / leaf.guaranteed if leaf.guaranteed else float(owner.used())
        return (first, usage, owner.number)

    def _queue_rank(self, parent: Place, child: Place) -> tuple[object, ...]:
        """'Priority as the main sorting factor', then 'furthest below its guaranteed first', then 'highest pending'.

        One for which nobody declares a guarantee has the share 1 + used / fair max (scheduling.md 2.5).
        """
        priority = child.rank()
        first = 0 if not parent.prioritised else 1 - LOWEST if priority is None else -priority
        counted, used = child.counted(), child.used()
        whole = counted or next((p.most for p in child.path() if p.most is not None), sum(self.nodes.values()))
        ratio = 0.0 if not used else used / whole if whole else 1.0
        return (first, ratio if counted else 1 + ratio, -child.waiting(), child.name)

    def _try(self, owner: Owner, ask: Ask, leaf: Place) -> bool:
        kept_back = any(
            (place.most is not None and place.used() + ask.size > place.most)
            or (place.user_most is not None and place.used(owner.user) + ask.size > place.user_most)
            for place in leaf.path()
        )
        held = self._held()
        fitting = [name for name, size in self.nodes.items() if held[name] + ask.size <= size]
        if kept_back or not fitting:
            alike = [other for other in owner.pending() if other.size == ask.size]
            for other in alike:
                other.aside = True
                other.hopeless = kept_back or all(ask.size > size for size in self.nodes.values())
            return False
        ask.node = min(fitting, key=lambda name: (held[name] / self.nodes[name], name))
        owner.first_s = self.now_s if owner.first_s is None else owner.first_s
        owner.started = owner.started or not ask.originator
        return True
