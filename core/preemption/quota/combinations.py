"""A bounded exact search for victims, for cases in which choosing one after the other left more above a max than
necessary.

If a guarantee allows little to be taken, the combination of sizes matters: of tasks of 6, 5 and 5 with a guarantee that
allows 10, the first one excludes the others, whereas the other two make up 10. Tasks of the same leaf, rank and size
are alike, so a choice is one number for each such group. The search begins with the present choice and tries the
smallest changes first, so its result is spread over the leaves much like that choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import lcm
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.preemption.quota.shares import Amounts, above_guarantees, net_usage
from kornel.core.preemption.quota.victims import RUN_LENGTH, Choice, Rank, is_out_of_reach, rank_of, spare_of

MOST_STEPS: Final = 10_000
"""The most numbers tried for groups in one search."""
MOST_GROUPS: Final = 4_000
"""The number of groups above which there is no search, because with that many sizes, choosing one after the other
leaves hardly any gap."""
STEPS_PER_YIELD: Final = 16

Score = tuple[int, int]
"""(what is left above the max beyond the tolerated amount, the place of the worst rank that is taken): the smaller the
better."""


class Group:
    """Tasks of one rank and size below the same guarantees. ``going``: those chosen so far; ``others``: the rest, in
    order."""

    __slots__ = ("going", "guards", "others", "pairs", "rank")

    def __init__(self, rank: int, pairs: Pairs, guards: tuple[dict[int, int], ...]) -> None:
        self.rank: Final = rank
        """The place of their rank among all ranks; 0 is taken first."""
        self.pairs: Final = pairs
        self.guards: Final = tuple(
            (guard, tuple((t, amount) for t, amount in pairs if t in guard))
            for guard in guards
            if any(t in guard for t, _ in pairs)
        )
        """The amounts that each queue on the path may lose, with what one task takes from it."""
        self.going: list[Allocation] = []
        self.others: list[Allocation] = []

    def __len__(self) -> int:
        return len(self.going) + len(self.others)

    def first_tasks(self, count: int) -> list[Allocation]:
        """Returns *count* of its tasks: those chosen before, then others."""
        return [*self.going[:count], *self.others[: max(0, count - len(self.going))]]

    def most_lawful(self) -> int:
        """Returns how many tasks guarantees allow to take now."""
        count = len(self)
        for guard, takes in self.guards:
            for t, amount in takes:
                count = min(count, max(0, guard[t]) // amount)
        return count

    def take_tasks(self, count: int, freed: dict[int, int]) -> None:
        """Count *count* of its tasks as taken; if negative, as spared after all."""
        for guard, takes in self.guards:
            for t, amount in takes:
                guard[t] -= count * amount
        for t, amount in self.pairs:
            if t in freed:
                freed[t] += count * amount


def improve_choice(
    choice: Choice, queue: Queue, ranked: Mapping[Queue, Sequence[Sequence[Allocation]]]
) -> Iterator[int]:
    """Replace the victims of *choice* if others leave less above the max. *ranked*: the tasks that may be taken, by
    leaf, in order.

    Yields the cost of each part of the work, in allocations examined.
    """
    reachable: Amounts = {}
    yield from _fill_reachable(choice, queue, ranked, reachable)
    if all(choice.freed[t] >= reachable[t] for t in choice.lacking_amounts()):
        return
    groups: list[Group] = []
    yield from _fill_groups(choice, ranked, groups)
    if len(groups) > MOST_GROUPS:
        return
    search = _Search(choice, groups, reachable)
    yield len(groups)
    yield from search.run()
    if search.best < search.first:
        chosen = [task for group, count in zip(groups, search.counts, strict=True) for task in group.first_tasks(count)]
        yield len(chosen)
        yield from choice.replace_victims(chosen)


def _fill_reachable(
    choice: Choice, queue: Queue, ranked: Mapping[Queue, Sequence[Sequence[Allocation]]], found: Amounts
) -> Iterator[int]:
    """Fill in *found* with the most that could be freed of each type, by what each level may lose, without regard to
    sizes."""
    held: dict[Queue, dict[int, int]] = {}
    for leaf, runs in ranked.items():
        amounts = held[leaf] = dict.fromkeys(choice.wanted, 0)
        for run in runs:
            for task in run:
                for t, amount in task.shape.pairs:
                    if t in amounts:
                        amounts[t] += amount
            yield len(run)
    for level in sorted(_queues_between(held, queue), key=lambda level: -level.depth):
        amounts = held[level]
        for t, amount in amounts.items():
            if t in level.guaranteed:
                amounts[t] = min(amount, max(0, net_usage(level, t) - level.guaranteed[t]))
        if level is not queue and level.parent is not None:
            above = held.setdefault(level.parent, dict.fromkeys(choice.wanted, 0))
            for t, amount in amounts.items():
                above[t] += amount
    for t, amount in held.get(queue, dict.fromkeys(choice.wanted, 0)).items():
        found[t] = max(0, min([amount, *above_guarantees(queue, t)]))


def _queues_between(leaves: Mapping[Queue, object], queue: Queue) -> dict[Queue, None]:
    """Returns all queues from *leaves* up to *queue*."""
    found: dict[Queue, None] = {}
    for leaf in leaves:
        for level in leaf.lineage():
            found[level] = None
            if level is queue:
                break
    return found


def _fill_groups(
    choice: Choice, ranked: Mapping[Queue, Sequence[Sequence[Allocation]]], groups: list[Group]
) -> Iterator[int]:
    """Fill *groups* with all tasks that may be taken, the least important first, and with guards as before any
    choice."""
    spare: dict[Queue, dict[int, int]] = {}
    chains: dict[tuple[Queue, ...], tuple[dict[int, int], ...]] = {}
    ranks: set[Rank] = set()
    for runs in ranked.values():
        for run in runs:
            ranks.update(map(rank_of, run))
            yield len(run)
    places = {found: at for at, found in enumerate(sorted(ranks))}
    known: dict[tuple[tuple[Queue, ...], int, Pairs], Group] = {}
    for leaf, runs in ranked.items():
        chain = tuple(level for level in leaf.lineage() if level.guaranteed)
        if chain not in chains:
            chains[chain] = tuple(spare.setdefault(level, spare_of(level)) for level in chain)
        for run in runs:
            for task in run:
                if is_out_of_reach(task):
                    continue
                name = chain, places[rank_of(task)], task.shape.pairs
                group = known.get(name)
                if group is None:
                    if len(known) > MOST_GROUPS:
                        return
                    group = known[name] = Group(name[1], name[2], chains[chain])
                    groups.append(group)
                (group.going if task in choice.victims else group.others).append(task)
            yield 2 * len(run)
    groups.sort(key=lambda group: group.rank)


class _Search:
    """A depth-first search over the groups, which leaves out branches that cannot become better than the best choice so
    far."""

    def __init__(self, choice: Choice, groups: list[Group], reachable: Amounts) -> None:
        self._groups = groups
        self._wanted = choice.wanted
        self._miss = choice.miss
        least = lcm(*choice.wanted.values())
        self._weights = {t: least // amount for t, amount in choice.wanted.items()}
        self._reachable = reachable
        self._rest = self._sum_suffixes()
        self.first: Final[Score] = (
            self._count_left(choice.freed),
            max((group.rank for group in groups if group.going), default=-1),
        )
        self.best = self.first
        self.counts: list[int] = []
        """The number of tasks of each group in the best choice."""

    def _sum_suffixes(self) -> list[Amounts]:
        """Returns, for each group, the most that this and all later groups can free, by type."""
        rest = dict.fromkeys(self._wanted, 0)
        found = [rest]
        for group in reversed(self._groups):
            rest = dict(rest)
            for t, amount in group.pairs:
                if t in rest:
                    rest[t] = min(self._reachable[t], rest[t] + amount * len(group))
            found.append(rest)
        found.reverse()
        return found

    def _count_left(self, freed: Mapping[int, int]) -> int:
        """Returns what *freed* leaves beyond the tolerated amount, with all types on one scale."""
        left = 0
        for t, amount in self._wanted.items():
            missing = (amount - freed[t]) * 100 - amount * self._miss
            if missing > 0 and amount > freed[t]:
                left += missing * self._weights[t]
        return left

    def run(self) -> Iterator[int]:
        groups, rest = self._groups, self._rest
        freed = dict.fromkeys(self._wanted, 0)
        counts: list[int] = []
        waiting = [_possible_counts(groups[0])] if groups else []
        worst = [-1]
        steps = 0
        while waiting and steps < MOST_STEPS:
            at = len(waiting) - 1
            group = groups[at]
            if len(counts) > at:
                group.take_tasks(-counts.pop(), freed)
                worst.pop()
            count = next(waiting[-1], None)
            if count is None:
                waiting.pop()
                continue
            steps += 1
            if steps % STEPS_PER_YIELD == 0:
                yield RUN_LENGTH
            group.take_tasks(count, freed)
            counts.append(count)
            worst.append(max(worst[-1], group.rank) if count else worst[-1])
            hoped = {t: min(amount + rest[at + 1][t], self._reachable[t]) for t, amount in freed.items()}
            if (self._count_left(hoped), worst[-1]) >= self.best:
                continue
            done: Score = (self._count_left(freed), worst[-1])
            if done < self.best:
                self.best = done
                self.counts = [*counts, *([0] * (len(groups) - len(counts)))]
            if at + 1 < len(groups):
                waiting.append(_possible_counts(groups[at + 1]))


def _possible_counts(group: Group) -> Iterator[int]:
    """Yields the numbers of tasks of *group* that may be taken, beginning with those nearest to the present choice."""
    most = group.most_lawful()
    start = min(len(group.going), most)
    yield start
    for distance in range(1, most + 1):
        if start + distance <= most:
            yield start + distance
        if start - distance >= 0:
            yield start - distance
