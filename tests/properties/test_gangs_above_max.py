"""A lowered max in small clusters where gangs run, judged by brute force: every set of tasks, surplus and whole gangs.

The judge knows tasks, gangs, guarantees and maxima as plain numbers. It asks neither the planner nor the laws
(preemption.md B.10, D.7).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.domain.effects import Effect, Released
from tests.examples import scale_examples
from tests.oracles.rules import lowered_max
from tests.oracles.rules.arithmetic import breaks_guarantee
from tests.oracles.rules.gang_units import RunningGang, mates, torn_gang
from tests.oracles.rules.world import Books, Task, World
from tests.properties.gang_worlds import SECOND, GangWorld, Play, random_gang_world
from tests.properties.rules_worlds import START_S, configuration

Victims = list[tuple[Task, str]]


def lowered_world(seed: int) -> tuple[GangWorld, str]:
    """Returns a cluster at rest, and the queue in it that gets a max below what it holds."""
    rng = random.Random(seed)
    world = random_gang_world(rng.randrange(2**32))
    books = world.books()
    path = rng.choice([queue.path for queue in world.queues if queue.path != "root"])
    held = {t: books.used(path, t) for t in ("vcore", "memory")}
    lowered = {t: rng.randint(0, amount) for t, amount in held.items() if amount and rng.random() < 0.8}
    queues = tuple(
        replace(queue, lowered=lowered, enforced=True, guaranteed=_at_most(queue.guaranteed, lowered))
        if queue.path == path
        else replace(queue, guaranteed={} if path.startswith(f"{queue.path}.") else queue.guaranteed)
        for queue in world.queues
    )
    below = [queue.path for queue in queues if queue.path.startswith(f"{path}.")]
    queues = tuple(replace(queue, guaranteed={}) if queue.path in below[1:] else queue for queue in queues)
    queues = tuple(
        replace(queue, guaranteed=_at_most(queue.guaranteed, lowered)) if queue.path in below[:1] else queue
        for queue in queues
    )
    if any(queue.path in below[:1] and queue.guaranteed for queue in queues):
        queues = tuple(replace(queue, guaranteed={}) if queue.path == path else queue for queue in queues)
    return replace(world, queues=queues), path


def _at_most(guaranteed: object, most: dict[str, int]) -> dict[str, int]:
    assert isinstance(guaranteed, dict)
    return {t: min(amount, most.get(t, amount)) for t, amount in guaranteed.items() if min(amount, most.get(t, amount))}


def lower_max(world: GangWorld, path: str) -> list[str]:
    """Returns the keys of the tasks that are told to leave for the max of *path*."""
    play = Play(world)
    play.run_load()
    told: list[str] = []

    def hear(effects: list[Effect]) -> None:
        told.extend(effect.key for effect in effects if isinstance(effect, Released))

    written = configuration(World(world.queues, world.nodes, world.running, ()), lowered=True)
    hear(play.engine.apply(UpdateConfiguration("rm", written), START_S * SECOND))
    for second in range(1, 15):
        more = True
        while more:
            result = play.engine.cycle((START_S + second) * SECOND, 1)
            hear(result.effects)
            more = result.more
        hear(play.engine.preempt((START_S + second) * SECOND))
    return told


def lawful_sets(books: Books, gangs: Sequence[RunningGang], path: str, *, whole: bool) -> Iterator[Victims]:
    """Yields every lawful set of victims; with *whole* also those that take all of a gang."""
    kept = {key for gang in gangs for key in gang.members} - _surplus_of(books, gangs)
    pool = [one for one in books.inside(path) if not lowered_max.objection(books, path, one[0])]
    parcels: list[Victims] = [[one] for one in pool if one[0].key not in kept]
    if whole:
        for application in dict.fromkeys(gang.application for gang in gangs):
            together = [books.running[key] for key in sorted(mates(books, gangs, application))]
            if together and all(task.queue == path or task.queue.startswith(f"{path}.") for task, _ in together):
                parcels.append(together)
    for count in range(len(parcels) + 1):
        for chosen in combinations(parcels, count):
            victims = [one for parcel in chosen for one in parcel]
            keys = {task.key for task, _ in victims}
            if len(keys) < len(victims) or breaks_guarantee(books, victims, None):
                continue
            if torn_gang(books, gangs, victims) or (not whole and _takes_whole(books, gangs, keys)):
                continue
            yield victims


def _surplus_of(books: Books, gangs: Sequence[RunningGang]) -> set[str]:
    """Returns the members that may go one by one: beyond the minimum, the least important and newest (B.10)."""
    found: set[str] = set()
    for gang in gangs:
        members = [books.running[key][0] for key in gang.members if key in books.running]
        members.sort(key=lambda task: (task.priority, task.opted_out, -task.created, task.key))
        found |= {task.key for task in members[: len(members) - gang.minimum]}
    return found


def _takes_whole(books: Books, gangs: Sequence[RunningGang], keys: set[str]) -> bool:
    for gang in gangs:
        standing = {key for key in gang.members if key in books.running}
        if standing & keys and len(standing - keys) < gang.minimum:
            return True
    return False


@given(st.integers(0, 2**32))
@settings(max_examples=scale_examples(500), deadline=None)
def test_a_lowered_max_takes_whole_gangs_or_their_surplus(seed: int) -> None:
    judge_lowered(seed)


def judge_lowered(seed: int) -> None:
    """Fails where the max of one queue is enforced otherwise than the rules say."""
    world, path = lowered_world(seed)
    books, gangs = world.books(), world.gangs
    books.queues[path] = replace(books.queues[path], maximum=books.queues[path].lowered or {})
    told = lower_max(world, path)
    victims = [books.running[key] for key in told]
    keys = set(told)
    assert len(keys) == len(told), f"told twice: {told}"
    assert not torn_gang(books, gangs, victims), f"{torn_gang(books, gangs, victims)} is torn by {told}: {world}"
    assert not breaks_guarantee(books, victims, None), f"law 2: {told} in {world}"
    over = lowered_max.excess(books, path)
    left = lowered_max.unmet(over, victims)
    gone = {gang.application for gang in gangs if _takes_whole(books, [gang], keys)}
    parcels = [[one] for one in victims if one[0].application not in gone]
    parcels += [[one for one in victims if one[0].application == application] for application in gone]
    for parcel in parcels:
        rest = [one for one in victims if one not in parcel]
        assert lowered_max.unmet(over, rest) != left, f"{parcel} could stay: {world}"
    if any(left.values()) or gone:
        # A gang stands in its class: behind single tasks of it, but before originators.
        milder = not any(task.originator for task, _ in victims)
        singly = [
            lowered_max.unmet(over, other)
            for other in lawful_sets(books, gangs, path, whole=False)
            if not (milder and any(task.originator for task, _ in other))
        ]
        assert all(any(other.values()) for other in singly), f"{told}, though single tasks would do: {world}"
    for other in lawful_sets(books, gangs, path, whole=True):
        more = {task.key for task, _ in other}
        if any(left.values()) and more > keys:
            assert lowered_max.unmet(over, other) == left, f"{more - keys} could go as well: {world}"
