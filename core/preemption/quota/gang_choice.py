"""Chooses whole gangs as victims when a max is enforced. They are considered only if no other tasks can bring the queue
below its max (preemption.md D.7, no. 5).

A gang leaves with all of its members, and the work of all of them is lost. Therefore the smallest gangs of the least
important class come first, and a gang that turns out not to be needed stays as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.preemption.gang_losses import can_leave_whole, find_whole_gangs, is_bound, list_whole
from kornel.core.preemption.quota.victims import LOOKS_PER_VICTIM, RUN_LENGTH, Choice, Rank, VictimOrder, rank_of
from kornel.core.state.records.victim_index import age_of


class Gang(NamedTuple):
    """A gang all of whose members may leave. The smallest one in the order of the fields leaves first."""

    rank: Rank
    """The worst value of any member, for each part of the rank."""
    size: int
    age: int
    name: str
    members: tuple[Allocation, ...]


def take_gangs(choice: Choice, leaves: Iterable[Queue], order: VictimOrder, *, originators: bool) -> Iterator[int]:
    """Takes whole gangs in *leaves* that contribute to the missing amounts: those with *originators*, or the others.
    Yields after every piece of work."""
    found: list[Gang] = []
    looked = 0
    for leaf in leaves:
        for application in list(leaf.applications.values()):
            looked += 1 + len(application.allocations) * application.leaves_whole
            if looked >= RUN_LENGTH:
                yield looked
                looked = 0
            gang = _make_gang(application, order) if application.leaves_whole else None
            if gang is not None and gang.rank[0] is originators and not order.is_protected(gang.members):
                found.append(gang)
    yield looked
    for gang in sorted(found, key=lambda gang: gang[:4]):
        lacking = choice.lacking_amounts()
        if not lacking:
            break
        if choice.take_gang(gang.members, lacking):
            yield len(gang.members) * LOOKS_PER_VICTIM


def take_protected(choice: Choice, leaves: Iterable[Queue], order: VictimOrder) -> Iterator[int]:
    """Takes those in *leaves* whom only minimum run times keep back and who contribute to the missing amounts, gangs as
    a whole, whoever has least time left first. Gives back who is then not needed, the last one taken first. Yields
    after every piece of work."""
    found: list[tuple[int, int, str, tuple[Allocation, ...]]] = []
    for leaf in leaves:
        tasks = [task for application in list(leaf.applications.values()) for task in application.allocations.values()]
        units: list[tuple[Allocation, ...]] = [(task,) for task in order.run(tasks, protected=True)]
        units += [tuple(list_whole(application)) for application in leaf.applications.values()]
        for unit in units:
            until_ns = order.protected_until(unit) if unit else 0
            if until_ns:
                found.append((until_ns, len(unit), unit[0].key, unit))
        yield len(tasks)
    taken: list[tuple[Allocation, ...]] = []
    for _, _, _, unit in sorted(found, key=lambda entry: entry[:3]):
        lacking = choice.lacking_amounts()
        if not lacking:
            break
        if choice.take_gang(unit, lacking):
            taken.append(unit)
            yield len(unit) * LOOKS_PER_VICTIM
    for unit in reversed(taken):
        if choice.hand_back_gang(unit):
            choice.gangs.remove(unit)
    yield from give_back(choice, order)


def join_gangs(victims: Sequence[Allocation]) -> list[tuple[Allocation, ...]]:
    """Returns *victims* as groups: each victim alone, and at the end each gang that leaves as a whole as one group."""
    whole = {gang: members for gang, members in find_whole_gangs(victims).items() if can_leave_whole(members)}
    alone = [(victim,) for victim in victims if not is_bound(victim) or victim.application not in whole]
    return [*alone, *whole.values()]


def _make_gang(application: Application, order: VictimOrder) -> Gang | None:
    members = list_whole(application, bound=order.bound)
    if not members:
        return None
    ranks = [rank_of(member) for member in members]
    worst = (any(r[0] for r in ranks), max(r[1] for r in ranks), any(r[2] for r in ranks))
    return Gang(worst, len(members), max(map(age_of, members)), application.application_id, tuple(members))


def give_back(choice: Choice, order: VictimOrder) -> Iterator[int]:
    """Gives back who is not needed, the last class taken first: single originators, whole gangs, other tasks."""
    whole = {member for members in choice.gangs for member in members}
    single = [victim for victim in choice.victims if victim not in whole]
    single.sort(key=order.key_of, reverse=True)
    yield len(single)
    yield from choice.prune_victims(victim for victim in single if victim.spec.originator)
    for members in reversed(choice.gangs):
        choice.hand_back_gang(members)
        yield len(members)
    yield from choice.prune_victims(victim for victim in single if not victim.spec.originator)
