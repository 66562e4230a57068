"""Orders and chooses the victims when a max is enforced (preemption.md D.7).

The order is kept as sorted runs of limited length, which are merged only as far as they are read, so that no step takes
long, however many tasks a queue has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import dropwhile, groupby, takewhile
from math import lcm
from types import MappingProxyType
from typing import Final

from kornel.core.domain.commands import Waivable
from kornel.core.model.allocations import LEAVING, Allocation, sum_amounts
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.preemption.gang_losses import SpareMembers
from kornel.core.preemption.quota.shares import Amounts, net_usage
from kornel.core.preemption.run_times import guard_of, last_end
from kornel.core.state.records.victim_index import age_of

SizeOrder = tuple[float, tuple[float, ...]]
Rank = tuple[bool, int, bool]
"""The rank (originator, priority, opted out) of a task; the smallest goes first."""
Key = tuple[bool, int, bool, int, SizeOrder, str]
"""The sort key (originator, priority, opted out, age, order by size, key) of a task; the smallest one leaves first."""

RUN_LENGTH: Final = 512
"""The number of allocations that are ranked and sorted in one step."""
LOOKS_PER_VICTIM: Final = 4
"""The number of allocations that can be looked at in the time of taking one."""
LEAVES_PER_YIELD: Final = 64
"""The number of leaves whose next candidates are searched in one step."""
UNWANTED: Final[SizeOrder] = (0.0, ())
NONE_WAIVED: Final[frozenset[Waivable]] = frozenset()
NO_SHARES: Final[Mapping[Queue, Amounts]] = MappingProxyType({})


class VictimOrder:
    """The order of victims of preemption.md D.7 for one target.

    Keys are made for each comparison and not kept: with a hundred thousand of them, the garbage collector would stop
    all work to look at them.
    """

    def __init__(
        self,
        queue: Queue,
        wanted: Amounts,
        ceilings: Mapping[int, int],
        now_ns: int,
        waived: frozenset[Waivable] = NONE_WAIVED,
    ) -> None:
        """Begins without tasks. *waived*: the laws that keep nobody back, because a person says so."""
        self._queue = queue
        self._now_ns = now_ns
        self._wanted = wanted
        self._ceilings = ceilings
        self._size_orders: dict[Shape, SizeOrder] = {}
        self._waived = waived
        self.bound: Final = Waivable.REQUIRED_NODE not in waived
        """Tells whether tasks with a required node stay."""
        self.spare_members: Final = SpareMembers(torn=Waivable.GANG in waived)

    def run(self, allocations: Iterable[Allocation], *, protected: bool = False) -> list[Allocation]:
        """Returns those of *allocations*, of one leaf, that may be victims, in order; with *protected*, those whom only
        their minimum run time keeps back."""
        order_of, bound = self._size_order_of, self.bound
        able = [
            a
            for a in allocations
            if not ((bound and a.spec.required_node) or is_out_of_reach(a))
            and order_of(a.shape) is not UNWANTED
            and (not a.application.leaves_whole or self.spare_members.may_leave(a))
        ]
        if able and (protected or guard_of(able[0].queue, self._queue).properties.min_runtime_most_ns):
            able = [a for a in able if self.is_protected((a,)) is protected]
        able.sort(key=self.key_of)
        return able

    def protected_until(self, tasks: Sequence[Allocation]) -> int:
        """Returns the time until which one of *tasks* of one leaf, which leave together, has not run for its minimum
        run time; 0: all have."""
        if Waivable.RUN_TIME in self._waived:
            return 0
        until_ns = last_end(tasks, guard_of(tasks[0].queue, self._queue))
        return until_ns if until_ns > self._now_ns else 0

    def is_protected(self, tasks: Sequence[Allocation]) -> bool:
        """Tells whether one of *tasks* of one leaf, which leave together, has not run for its minimum run time."""
        return self.protected_until(tasks) > 0

    def key_of(self, allocation: Allocation) -> Key:
        """Returns the sort key of *allocation*: the allocation with the smaller key is taken first."""
        spec = allocation.spec
        size_order = self._size_orders.get(allocation.shape) or self._size_order_of(allocation.shape)
        return (
            spec.originator, spec.priority, not spec.allow_preempt_self, age_of(allocation), size_order, spec.key
        )  # fmt: skip

    def merge_runs(self, runs: Sequence[Sequence[Allocation]]) -> Iterable[Allocation]:
        """Yields all allocations of *runs* in order, merged only as far as the caller reads."""
        return runs[0] if len(runs) == 1 else merge(*runs, key=self.key_of)

    def merge_class(self, runs: Sequence[Sequence[Allocation]], *, originators: bool) -> Iterable[Allocation]:
        """Yields the *originators* of *runs*, or the others, in order, merged only as far as the caller reads."""
        if originators:
            return dropwhile(lambda task: not task.spec.originator, self.merge_runs(runs))
        return takewhile(lambda task: not task.spec.originator, self.merge_runs(runs))

    def _size_order_of(self, shape: Shape) -> SizeOrder:
        size_order = self._size_orders.get(shape)
        if size_order is None:
            size_order = self._size_orders[shape] = self._compute_size_order(shape)
        return size_order

    def _compute_size_order(self, shape: Shape) -> SizeOrder:
        """Returns the part of the key that depends on the size: first comes the size with the largest fraction of its
        types wanted, then the one with the smallest fractions of the max."""
        shares: list[float] = []
        for t, amount in shape.pairs:
            if t in self._wanted:
                most = self._ceilings[t]
                shares.append(amount / most if most else amount)
        if not shares:
            return UNWANTED
        return (-len(shares) / len(shape.pairs), tuple(sorted(shares, reverse=True)))


def rank_of(allocation: Allocation) -> Rank:
    """Returns the rank of *allocation*: a task is never spared in favour of one with a higher rank."""
    spec = allocation.spec
    return (spec.originator, spec.priority, not spec.allow_preempt_self)


def is_out_of_reach(allocation: Allocation) -> bool:
    """Tells whether *allocation* cannot be taken, because it is leaving already or gone."""
    return allocation.place in LEAVING or allocation.node is None


class Choice:
    """The victims chosen so far, what they free of the target, and what guarantees still allow to be taken on every
    path."""

    def __init__(
        self, wanted: Amounts, miss: int = 0, shares: Mapping[Queue, Amounts] = NO_SHARES, *, guarded: bool = True
    ) -> None:
        """Begins without victims. *miss*: the percentage of the target that may be left. *shares*: the part of the
        target that each leaf bears. *guarded* tells whether law 2 keeps anybody back."""
        self.wanted = wanted
        self.freed: dict[int, int] = dict.fromkeys(wanted, 0)
        self.victims: dict[Allocation, None] = {}
        """The victims in the order in which they were taken."""
        self.kept: list[Allocation] = []
        """The tasks that a guarantee kept although they would have freed something lacking."""
        self.gangs: list[tuple[Allocation, ...]] = []
        """The gangs taken as a whole, in order."""
        self.miss = miss
        self._guarded = guarded
        self._shares = shares
        self._turns = Turns(wanted, shares)
        self._spare: dict[Queue, dict[int, int]] = {}
        self._guards: dict[Queue, tuple[dict[int, int], ...]] = {}

    def unmet_amounts(self) -> Amounts:
        """Returns the part of the target that the victims do not free yet."""
        return {t: amount - self.freed[t] for t, amount in self.wanted.items() if amount > self.freed[t]}

    def lacking_amounts(self) -> Amounts:
        """Returns the unmet amounts without those types of which little enough is left to be tolerated."""
        return {t: amount for t, amount in self.unmet_amounts().items() if self._is_lacking(t)}

    def _is_lacking(self, t: int) -> bool:
        missing = self.wanted[t] - self.freed[t]
        return missing > 0 and missing * 100 > self.wanted[t] * self.miss

    def fill_share(self, victims: Iterable[Allocation], share: Amounts, left: Amounts) -> Iterator[int]:
        """Takes, in phase 1, *victims* of one leaf in order as long as they stay within what is *left* of *share*.

        No task is skipped in favour of one with a higher rank, unless all of the target may be missed. Yields the cost
        in allocations looked at.
        """
        passed: Rank | None = None
        taken_before = len(self.victims)
        looked = 0
        for victim in victims:
            if not left or (passed is not None and rank_of(victim) != passed):
                break
            looked += 1
            if looked % RUN_LENGTH == 0:
                yield RUN_LENGTH
            pairs = victim.shape.pairs
            if victim in self.victims or is_out_of_reach(victim) or not any(t in share for t, _ in pairs):
                continue
            if all(amount <= left.get(t, 0) for t, amount in pairs if t in share) and self._is_lawful(victim):
                self._take_victim(victim)
                for t, amount in pairs:
                    if t in left:
                        left[t] -= amount
                        if not left[t]:
                            del left[t]
            elif self.miss < 100:
                passed = rank_of(victim)
        yield looked % RUN_LENGTH + (len(self.victims) - taken_before) * LOOKS_PER_VICTIM

    def complete_target(self, victims: Iterable[Allocation]) -> Iterator[int]:
        """Takes *victims*, in order, that free something lacking, until nothing is lacking. Yields the cost of every
        piece of work."""
        lacking = self.lacking_amounts()
        looked = 0
        for victim in victims:
            if not lacking:
                break
            looked += 1
            if looked % RUN_LENGTH == 0:
                yield RUN_LENGTH
            self._take_if_it_helps(victim, lacking)
        yield looked % RUN_LENGTH

    def complete_in_turns(
        self, ranked: Mapping[Queue, Sequence[Sequence[Allocation]]], order: VictimOrder, *, originators: bool
    ) -> Iterator[int]:
        """Takes, in phase 2, the least important *originators* or others that free something lacking, until
        nothing is lacking.

        Of tasks with equal rank, that of the leaf which has given least beyond its share is taken first: in a common
        order by age and key, one of several equal leaves could lose everything. Yields the cost of every piece of work.
        """
        lacking = self.lacking_amounts()
        turns = self._turns
        heads: list[tuple[Rank, int, Key, int, Allocation]] = []
        rest = [iter(order.merge_class(runs, originators=originators)) for runs in ranked.values()]

        def line_up(at: int) -> None:
            victim = next(rest[at], None)
            if victim is not None:
                heappush(heads, (rank_of(victim), turns.part_exceeded(victim.queue), order.key_of(victim), at, victim))

        for at in range(len(rest)):
            line_up(at)
            if at % LEAVES_PER_YIELD == 0:
                yield LEAVES_PER_YIELD * LOOKS_PER_VICTIM
        looked = 0
        while heads and lacking:
            looked += 1
            if looked % LEAVES_PER_YIELD == 0:
                yield LEAVES_PER_YIELD * LOOKS_PER_VICTIM
            _, _, _, at, victim = heappop(heads)
            self._take_if_it_helps(victim, lacking)
            line_up(at)

    def _take_if_it_helps(self, victim: Allocation, lacking: Amounts) -> None:
        """Takes *victim* if that is lawful and frees something *lacking*, and removes from *lacking* what is no longer
        lacking."""
        if victim in self.victims or is_out_of_reach(victim):
            return
        if not any(t in lacking for t, _ in victim.shape.pairs):
            return
        if not self._is_lawful(victim):
            self.kept.append(victim)
        else:
            self._take_victim(victim)
            for t, _ in victim.shape.pairs:
                if t in lacking and not self._is_lacking(t):
                    del lacking[t]

    def take_gang(self, members: Sequence[Allocation], lacking: Amounts) -> bool:
        """Takes all *members* of a gang that are not chosen yet, if this is lawful and they contribute to the *lacking*
        amounts. Returns whether they were taken."""
        rest = [member for member in members if member not in self.victims]
        if not any(t in lacking for member in rest for t, _ in member.shape.pairs):
            return False
        total = sum_amounts(rest)
        for guard in self._guards_of(members[0].queue):
            if any(amount > guard[t] for t, amount in total.items() if t in guard):
                return False
        for member in rest:
            self._take_victim(member)
        self.gangs.append(tuple(members))
        return True

    def hand_back_gang(self, members: Sequence[Allocation]) -> bool:
        """Hands back all *members* of a gang if none of them is needed. Returns whether they were handed back."""
        spare = self.spare_amounts()
        if any(amount > spare[t] for t, amount in sum_amounts(members).items() if t in spare):
            return False
        for member in members:
            self._hand_back(member, spare)
        return True

    def take_first(self, victims: Iterable[Allocation]) -> None:
        """Takes *victims* before all others, each of whom may be taken."""
        for victim in victims:
            self._take_if_it_helps(victim, self.lacking_amounts())

    def part_left(self) -> int:
        """Returns what is left above the max beyond the tolerated amounts, with all types on one scale."""
        least = lcm(*self.wanted.values())
        return sum(amount * (least // self.wanted[t]) for t, amount in self.lacking_amounts().items())

    def could_give_at_first(self, victim: Allocation) -> bool:
        """Tells whether guarantees would let *victim* go if nobody had been taken before."""
        amounts = victim.shape.pairs
        return all(
            amount <= spare.get(t, amount)
            for level in victim.queue.lineage()
            if level.guaranteed
            for spare in [spare_of(level)]
            for t, amount in amounts
        )

    def spare_amounts(self) -> Amounts:
        """Returns what is freed of each type beyond the target; 0 if too little of a type is freed."""
        return {t: max(0, self.freed[t] - amount) for t, amount in self.wanted.items()}

    def prune_victims(self, victims: Iterable[Allocation]) -> Iterator[int]:
        """Spares those of *victims* that are not needed, the most important first. Yields the cost of every piece of
        work.

        Of victims with equal rank, that of the leaf which has given most beyond its share is spared first.
        """
        spare = self.spare_amounts()
        turns = self._turns
        looked = 0
        for _, equals in groupby(victims, key=rank_of):
            if not any(spare.values()):
                break
            waiting: dict[Queue, deque[tuple[int, Allocation]]] = {}
            for at, victim in enumerate(equals):
                looked += 1
                if looked >= RUN_LENGTH:
                    looked = 0
                    yield RUN_LENGTH
                if is_within(victim, spare):
                    waiting.setdefault(victim.queue, deque()).append((at, victim))
            heads = [(-turns.part_exceeded(leaf), first[0][0], leaf) for leaf, first in waiting.items()]
            heapify(heads)
            while heads:
                looked += 1
                if looked >= RUN_LENGTH:
                    looked = 0
                    yield RUN_LENGTH
                _, _, leaf = heappop(heads)
                _, victim = waiting[leaf].popleft()
                if is_within(victim, spare):
                    self._hand_back(victim, spare)
                if waiting[leaf]:
                    heappush(heads, (-turns.part_exceeded(leaf), waiting[leaf][0][0], leaf))
        yield looked

    def _hand_back(self, victim: Allocation, spare: Amounts) -> None:
        del self.victims[victim]
        self._turns.note_given(victim, -1)
        for t, amount in victim.shape.pairs:
            if t in spare:
                spare[t] -= amount
                self.freed[t] -= amount
        for guard in self._guards_of(victim.queue):
            for t, amount in victim.shape.pairs:
                if t in guard:
                    guard[t] += amount

    def _is_lawful(self, victim: Allocation) -> bool:
        """Tells whether taking *victim* leaves every queue on its path at or above its guarantee of every type that it
        loses (law 2)."""
        for guard in self._guards_of(victim.queue):
            for t, amount in victim.shape.pairs:
                spare = guard.get(t)
                if spare is not None and amount > spare:
                    return False
        return True

    def _take_victim(self, victim: Allocation) -> None:
        self.victims[victim] = None
        self._turns.note_given(victim, 1)
        for t, amount in victim.shape.pairs:
            if t in self.freed:
                self.freed[t] += amount
        for guard in self._guards_of(victim.queue):
            for t, amount in victim.shape.pairs:
                if t in guard:
                    guard[t] -= amount

    def _guards_of(self, leaf: Queue) -> tuple[dict[int, int], ...]:
        guards = self._guards.get(leaf)
        if guards is None:
            guards = self._guards[leaf] = tuple(
                self._spare_of(q) for q in leaf.lineage() if self._guarded and q.guaranteed
            )
        return guards

    def _spare_of(self, queue: Queue) -> dict[int, int]:
        """Returns what *queue* may still lose of each type that it has a guarantee for; all leaves below it share
        that."""
        spare = self._spare.get(queue)
        if spare is None:
            spare = self._spare[queue] = spare_of(queue)
        return spare

    def find_hindrance(self, leaf: Queue, shape: Shape) -> tuple[Queue, int] | None:
        """Returns the lowest queue from *leaf* up whose guarantee protects a task of *shape* now, and the type."""
        for queue in leaf.lineage():
            if queue.guaranteed:
                spare = self._spare_of(queue)
                for t, amount in shape.pairs:
                    if t in spare and amount > spare[t]:
                        return queue, t
        return None


class Turns:
    """Counts what each leaf has given up beyond its part of a target, with all types on one scale."""

    def __init__(self, wanted: Amounts, shares: Mapping[Queue, Amounts]) -> None:
        least = lcm(*wanted.values())
        self._weights = {t: least // amount for t, amount in wanted.items()}
        self._worth: dict[Shape, int] = {}
        self._beyond: dict[Queue, int] = {
            leaf: -sum(self._weights[t] * amount for t, amount in share.items()) for leaf, share in shares.items()
        }

    def part_exceeded(self, leaf: Queue) -> int:
        """Returns how much *leaf* has given up beyond its part."""
        return self._beyond.get(leaf, 0)

    def note_given(self, victim: Allocation, times: int) -> None:
        """Counts *victim* as given up; with *times* -1, takes that back."""
        shape = victim.shape
        worth = self._worth.get(shape)
        if worth is None:
            weights = self._weights
            worth = self._worth[shape] = sum(weights[t] * amount for t, amount in shape.pairs if t in weights)
        self._beyond[victim.queue] = self._beyond.get(victim.queue, 0) + times * worth


def spare_of(queue: Queue) -> dict[int, int]:
    """Returns what *queue* may lose of each type that it has a guarantee for; below 0 if it holds less."""
    return {t: net_usage(queue, t) - amount for t, amount in queue.guaranteed.items()}


def is_within(victim: Allocation, spare: Mapping[int, int]) -> bool:
    """Tells whether everything that *victim* frees of the target is freed beyond it, according to *spare*."""
    for t, amount in victim.shape.pairs:
        if t in spare and amount > spare[t]:
            return False
    return True
