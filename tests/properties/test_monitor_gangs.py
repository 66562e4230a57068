"""The monitor in small clusters where gangs run, judged by brute force: every set of tasks, surplus and whole gangs.

One ask waits in a queue that is guaranteed all it wants. The judge knows tasks, gangs and guarantees as plain numbers,
and asks neither the planner nor the laws (preemption.md B.10, E.5).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import UpdateConfiguration
from tests.examples import scale_examples
from tests.oracles.rules.arithmetic import Victims, breaks_guarantee, is_disabled, is_outranked, total
from tests.oracles.rules.gang_units import RunningGang, Unit, goes_below_minimum, mates, torn_gang
from tests.oracles.rules.world import Books, Node, Task, World
from tests.properties.gang_worlds import SECOND, GangWorld, Play, random_gang_world
from tests.properties.rules_worlds import START_S, configuration

RUN_S = 40
"""How long a round, the notice and the kill take, with time to spare."""
PAIR = 2


def owed_world(seed: int) -> tuple[GangWorld, Task]:
    """Returns a cluster at rest, and an ask in it whose own queue is guaranteed all that it uses and the ask wants."""
    rng = random.Random(seed)
    return owe_room(rng, random_gang_world(rng.randrange(2**32)))


def owe_room(rng: random.Random, world: GangWorld) -> tuple[GangWorld, Task]:
    """Returns *world* at rest, without the gang that waits there, and an ask in that gang's queue, which is guaranteed
    all that it uses and the ask wants."""
    books, path = world.books(), world.unit.queue
    types = sorted({t for node in world.nodes for t in node.capacity})
    ask = Task("ask", "asker", path, {t: rng.randint(1, 5) for t in types}, priority=rng.choice([0, 0, 1]), created=600)
    least = {t: books.used(path, t) + amount for t, amount in ask.amounts.items()}
    queues = tuple(
        replace(
            queue,
            guaranteed=least if queue.path == path else {} if path.startswith(f"{queue.path}.") else queue.guaranteed,
            preemption="disabled" if queue.preemption == "disabled" and queue.path != path else "",
        )
        for queue in world.queues
    )
    return replace(world, queues=queues, unit=Unit("nobody", path, ())), ask


def run_monitor(world: GangWorld, *asks: Task, seconds: int = RUN_S) -> list[str]:
    """Returns the keys of the tasks that the monitor takes for *asks*, at the pace of one turn for all that it owes.
    Everybody for whom somebody has to leave must be placed."""
    play = Play(world)
    play.run_load()
    described = json.loads(configuration(World(world.queues, world.nodes, world.running, (), monitor=True, off=True)))
    play.engine.apply(UpdateConfiguration("rm", json.dumps(described)), START_S * SECOND)
    play._add_application(asks[0].application, asks[0].queue, asks)
    for ask in asks:
        play._send(ask)
    for _ in range(seconds):
        play._run_slices()
        play.now_s += 1
    state = play.engine.partition("[rm]default")
    assert state is not None
    assert state.law_violations == 0, world
    waiting = [ask.key for ask in asks if state.requests[ask.key].triggered]
    assert not waiting, f"{play.settled.victims} left, and {waiting} still wait: {world}"
    if play.settled.victims:
        served = [ask.key for ask in asks if state.requests[ask.key].node is not None]
        assert served, f"{play.settled.victims} left, and nobody was placed: {world}"
    return play.settled.victims


def lawful_sets(
    books: Books, gangs: Sequence[RunningGang], ask: Task, node: Node, most: int | None = None
) -> Iterator[Victims]:
    """Yields every lawful set of victims that lets *ask* run on *node*, small ones first. *most*: of so many single
    tasks and gangs at most."""
    lack = {t: amount - books.free(node.name, t) for t, amount in ask.amounts.items()}
    kept = {key for gang in gangs for key in gang.members} - surplus_of(books, gangs)
    parcels: list[Victims] = [
        [one] for one in books.running.values() if one[0].key not in kept and not one[0].originator
    ]
    for application in dict.fromkeys(gang.application for gang in gangs):
        together = [books.running[key] for key in sorted(mates(books, gangs, application))]
        parcels.append(together)
    useful = [
        parcel
        for parcel in parcels
        if parcel and all(may_go(books, task, ask) for task, _ in parcel) and is_of_use(books, parcel, node.name, lack)
    ]
    for count in range(1, (len(useful) if most is None else min(most, len(useful))) + 1):
        for chosen in combinations(useful, count):
            victims = [one for parcel in chosen for one in parcel]
            if len({task.key for task, _ in victims}) < len(victims):
                continue
            there = [one for one in victims if one[1] == node.name]
            if any(total(there, t) < amount for t, amount in lack.items()):
                continue
            if not torn_gang(books, gangs, victims) and not breaks_guarantee(books, victims, ask):
                yield victims


def may_go(books: Books, task: Task, ask: Task) -> bool:
    """Tells whether *task* may be a victim of *ask* as far as its queue and its priority go (laws 3 and 6)."""
    return task.queue != ask.queue and not is_disabled(books, task.queue) and is_outranked(books, task, ask)


def is_of_use(books: Books, parcel: Victims, node: str, lack: dict[str, int]) -> bool:
    """Tells whether *parcel* frees on *node* a type that is lacking there and of which its queue has too much."""
    leaf = books.queues[parcel[0][0].queue]
    return any(
        amount > 0
        and total([one for one in parcel if one[1] == node], t)
        and books.net(leaf.path, t) > leaf.guaranteed.get(t, 0)
        for t, amount in lack.items()
    )


def surplus_of(books: Books, gangs: Sequence[RunningGang]) -> set[str]:
    """Returns the members that may go one by one: beyond the minimum, the least important and newest (B.10)."""
    found: set[str] = set()
    for gang in gangs:
        members = [books.running[key][0] for key in gang.members]
        members.sort(key=lambda task: (task.originator, task.priority, task.opted_out, -task.created, task.key))
        found |= {task.key for task in members[: len(members) - gang.minimum]}
    return found


def order_of(books: Books, gangs: Sequence[RunningGang], victims: Victims) -> tuple[int, int, int] | None:
    """Returns how late the one whole gang among *victims* goes by the rule; ``None``: there are several."""
    gone = [gang for gang in gangs if goes_below_minimum(books, [gang], victims)]
    if len({gang.application for gang in gone}) != 1:
        return None
    tasks = [books.running[key][0] for key in mates(books, gangs, gone[0].application)]
    return max(task.reluctance() for task in tasks), max(task.priority for task in tasks), len(tasks)


def worst_of(victims: Victims) -> int:
    """Returns the class of the least mild of *victims*."""
    return max(task.reluctance() for task, _ in victims)


def judge_taken(seed: int) -> bool:
    """Fails where the monitor takes otherwise than the rules say. Returns whether it took a whole gang."""
    world, ask = owed_world(seed)
    books, gangs = world.books(), world.gangs
    open_nodes = [node for node in world.nodes if not node.drained]
    taken = run_monitor(world, ask)
    if any(all(books.free(node.name, t) >= a for t, a in ask.amounts.items()) for node in open_nodes):
        assert not taken, f"{taken} left although there was room: {world}"
        return False
    usable = [node for node in open_nodes if all(node.capacity.get(t, 0) >= a for t, a in ask.amounts.items())]
    lawful = [victims for node in usable for victims in lawful_sets(books, gangs, ask, node)]
    # Walks with two in front may miss larger sets, where guarantees keep somebody back, but none of one or two.
    few = [victims for node in usable for victims in lawful_sets(books, gangs, ask, node, PAIR)]
    if not taken:
        assert not few, f"{[task.key for task, _ in few[0]]} could go for {ask}: {world}"
        return False
    victims = [books.running[key] for key in taken]
    assert len(set(taken)) == len(taken), f"told twice: {taken}"
    assert all(may_go(books, task, ask) for task, _ in victims), f"{taken} for {ask}: {world}"
    assert not torn_gang(books, gangs, victims), f"{torn_gang(books, gangs, victims)} is torn by {taken}: {world}"
    assert not breaks_guarantee(books, victims, ask), f"law 2: {taken} in {world}"
    whole = [gang for gang in gangs if goes_below_minimum(books, [gang], victims)]
    names = {gang.application for gang in whole}
    parcels = [[one] for one in victims if one[0].application not in names]
    parcels += [[one for one in victims if one[0].application == name] for name in names]
    assert any(is_minimal(books, parcels, ask, node) for node in usable), f"{taken} for {ask}: {world}"
    # Of which queues it takes is said by their shares, and the node by the first walk that ends.
    queues = {task.queue for task, _ in victims}
    there = {(task.queue, node) for task, node in victims}
    milder = [o for o in few if worst_of(o) < worst_of(victims) and {(task.queue, node) for task, node in o} <= there]
    assert not milder, f"{taken}, though {milder[0]} would do: {world}"
    if whole:
        # A whole gang stands in its class behind single tasks, and before less mild ones (B.10).
        last = worst_of(victims)
        singly = [other for other in lawful if not goes_below_minimum(books, gangs, other) and worst_of(other) <= last]
        assert not singly, f"{taken}, though {singly[0]} would do: {world}"
        mine = order_of(books, gangs, victims)
        # Among the gangs of these queues the order decides.
        inside = [other for other in lawful if {task.queue for task, _ in other} <= queues]
        better = [
            found
            for other in (inside if mine else lawful)
            if worst_of(other) <= last and (found := order_of(books, gangs, other)) and (mine is None or found < mine)
        ]
        assert not better, f"{taken} is a worse choice than {better[0]}: {world}"
    return bool(whole)


def is_minimal(books: Books, parcels: Sequence[Victims], ask: Task, node: Node) -> bool:
    """Tells whether *ask* runs on *node* once all *parcels* have left, and would not with one of them still there."""

    def has_room(left: Sequence[Victims]) -> bool:
        there = [one for parcel in left for one in parcel if one[1] == node.name]
        return all(books.free(node.name, t) + total(there, t) >= amount for t, amount in ask.amounts.items())

    return has_room(parcels) and not any(
        has_room([other for other in parcels if other is not parcel]) for parcel in parcels
    )


@given(st.integers(0, 2**32))
@example(255)
@example(531)
@example(4032)
@example(6274)
@example(6962)
@example(7521)
@settings(max_examples=scale_examples(300), deadline=None)
def test_the_monitor_takes_whole_gangs_or_their_surplus(seed: int) -> None:
    """In the first two examples only walks that begin again find a pair. In the others rounds, a decision in each
    slice, seemed to stand still, because steps without anything to look at took a slice each."""
    judge_taken(seed)


@pytest.mark.long
def test_whole_gangs_are_taken_in_some_worlds() -> None:
    """Otherwise the judge would have nothing to judge."""
    assert sum(judge_taken(seed) for seed in range(150)) >= 3
