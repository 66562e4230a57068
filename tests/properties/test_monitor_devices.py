"""The monitor in small clusters where an ask wants devices, judged by brute force over every set of tasks.

The judge knows tasks, guarantees and devices as plain numbers, and asks neither the planner nor the laws
(docs/devices.md, preemption.md B.12, E.5).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scale_examples
from tests.oracles.rules.arithmetic import Victims, breaks_guarantee, total
from tests.oracles.rules.unit_devices import UnitDevices, Wish
from tests.oracles.rules.world import Node, Task
from tests.properties.gang_worlds import GangWorld, random_device_world
from tests.properties.test_monitor_gangs import may_go, owe_room, run_monitor

WISHES = (Wish(1), Wish(1), Wish(2), Wish(2, linked=True), Wish(1, type="A"), Wish(share=500), Wish(share=700))


def owed_world(seed: int) -> tuple[GangWorld, Task]:
    """Returns a cluster at rest without gangs, and an ask in it that wants devices. Its own queue is guaranteed all
    that it uses and the ask wants."""
    rng = random.Random(seed)
    world = random_device_world(rng.randrange(2**32))
    devices = world.unit.devices
    assert devices is not None
    alone = tuple((replace(task, application=f"{task.queue}-app"), node) for task, node in world.running)
    world, ask = owe_room(rng, replace(world, running=alone, gangs=()))
    wanted = UnitDevices(devices.devices, devices.held, {"ask": rng.choice(WISHES)})
    return replace(world, unit=replace(world.unit, devices=wanted)), ask


def runs_without(world: GangWorld, ask: Task, node: Node, victims: Victims) -> bool:
    """Tells whether *ask* finds its amounts and its devices on *node* once *victims* have left."""
    books, devices = world.books(), world.unit.devices
    assert devices is not None
    there = [one for one in victims if one[1] == node.name]
    return all(books.free(node.name, t) + total(there, t) >= amount for t, amount in ask.amounts.items()) and (
        devices.suffice({"ask": node.name}, {task.key for task, _ in there})
    )


def is_of_use(world: GangWorld, ask: Task, task: Task, node: Node) -> bool:
    """Tells whether *task* frees on *node* something that *ask* lacks there, and its queue has too much of a type that
    it frees: of the lacking one, or of any that it holds if it frees devices."""
    books, devices = world.books(), world.unit.devices
    assert devices is not None
    leaf = books.queues[task.queue]
    over = {t for t in task.amounts if books.net(leaf.path, t) > leaf.guaranteed.get(t, 0)}
    lacking = {t for t, amount in ask.amounts.items() if books.free(node.name, t) < amount}
    if over & lacking:
        return True
    wish = devices.wishes["ask"]
    usable = {device.name for device in devices.devices.get(node.name, ()) if wish.type in ("", device.type)}
    frees = bool(usable.intersection(devices.held.get(task.key, ("", {}))[1]))
    # Leaves give up what is wanted, so a queue that has too much of other types only need not give up anything.
    return frees and not devices.suffice({"ask": node.name}, ()) and bool(over & ask.amounts.keys())


def lawful_sets(world: GangWorld, ask: Task, node: Node) -> Iterator[Victims]:
    """Yields every lawful set of victims without which *ask* runs on *node*, small ones first."""
    books = world.books()
    useful = [
        (task, where)
        for task, where in books.running.values()
        if where == node.name and not task.originator and may_go(books, task, ask) and is_of_use(world, ask, task, node)
    ]
    for count in range(1, len(useful) + 1):
        for chosen in combinations(useful, count):
            victims = list(chosen)
            if runs_without(world, ask, node, victims) and not breaks_guarantee(books, victims, ask):
                yield victims


def judge_taken(seed: int) -> bool:
    """Fails where the monitor takes otherwise than the rules say. Returns whether it took somebody for devices."""
    world, ask = owed_world(seed)
    books = world.books()
    open_nodes = [node for node in world.nodes if not node.drained]
    taken = run_monitor(world, ask)
    if any(runs_without(world, ask, node, []) for node in open_nodes):
        assert not taken, f"{taken} left although there was room: {world}"
        return False
    usable = [node for node in open_nodes if all(node.capacity.get(t, 0) >= a for t, a in ask.amounts.items())]
    if not taken:
        for node in usable:
            lawful = next(lawful_sets(world, ask, node), None)
            assert lawful is None, f"{[task.key for task, _ in lawful or ()]} could go for {ask}: {world}"
        return False
    victims = [books.running[key] for key in taken]
    assert len(set(taken)) == len(taken), f"told twice: {taken}"
    assert all(may_go(books, task, ask) for task, _ in victims), f"{taken} for {ask}: {world}"
    assert not breaks_guarantee(books, victims, ask), f"law 2: {taken} in {world}"
    assert any(is_minimal(world, ask, node, victims) for node in usable), f"{taken} for {ask}: {world}"
    return any(all(books.free(node.name, t) >= a for t, a in ask.amounts.items()) for node in usable)


def is_minimal(world: GangWorld, ask: Task, node: Node, victims: Victims) -> bool:
    """Tells whether *ask* runs on *node* once all *victims* have left, and would not with one of them still there."""
    return runs_without(world, ask, node, victims) and not any(
        runs_without(world, ask, node, [other for other in victims if other is not one]) for one in victims
    )


@given(st.integers(0, 2**32))
@settings(max_examples=scale_examples(300), deadline=None)
def test_the_monitor_takes_what_an_ask_needs_for_amounts_and_devices(seed: int) -> None:
    judge_taken(seed)


@given(st.integers(0, 2**32))
@settings(max_examples=scale_examples(200), deadline=None)
def test_several_asks_get_what_they_preempted_for(seed: int) -> None:
    """The laws judge every place, and each ask for which somebody had to leave must run in the end."""
    rng = random.Random(seed)
    world, first = owed_world(rng.randrange(2**32))
    asks = [replace(first, key=f"ask{at}", priority=rng.choice([0, 0, 1])) for at in range(rng.randint(2, 3))]
    queues = tuple(
        replace(queue, guaranteed={t: amount * len(asks) for t, amount in queue.guaranteed.items()})
        if queue.path == first.queue
        else queue
        for queue in world.queues
    )
    devices = world.unit.devices
    assert devices is not None
    wishes = {ask.key: rng.choice(WISHES) for ask in asks if rng.random() < 0.8}
    unit = replace(world.unit, devices=replace(devices, wishes=wishes))
    run_monitor(replace(world, queues=queues, unit=unit), *asks, seconds=150)


def test_tasks_leave_for_devices_alone_in_some_worlds() -> None:
    """Otherwise the judge would have nothing to judge."""
    assert sum(judge_taken(seed) for seed in range(60)) >= 3
