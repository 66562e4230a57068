"""Random clusters for the second implementation of the rules of preemption: made, written down, and made smaller."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from kornel.core.domain.priorities import PRIORITY_MIN
from tests.oracles.rules.world import Amounts, Node, Queue, Task, World, ancestors, is_inside

TYPES: Final = ("vcore", "memory", "gpu")
PRIORITIES: Final = (0, 0, 0, 0, 0, 1, 5, -1, PRIORITY_MIN)
MOST_LEAVES: Final = 8
MOST_TASKS: Final = 30
START_S: Final = 1_000
QUOTA_DELAY_S: Final = 5


def random_world(seed: int) -> World:
    """A cluster that is mostly full, mostly of the wrong queues, and somebody who wants something."""
    rng = random.Random(seed)
    types = TYPES[: rng.choice([1, 1, 2, 2, 3])]
    kind = rng.choices(["guarantee", "lowered", "monitor"], [6, 2, 1])[0]
    nodes = tuple(
        Node(
            f"n{at + 1}", {t: rng.randint(4, 14) for t in types if rng.random() < 0.95 or at == 0}, rng.random() < 0.08
        )
        for at in range(rng.randint(1, 6))
    )
    cluster = {t: sum(node.capacity.get(t, 0) for node in nodes) for t in types}
    paths = _random_paths(rng)
    leaves = [path for path in paths if not any(other.startswith(path + ".") for other in paths)]
    running = _random_load(rng, types, nodes, leaves)
    queues = _random_queues(rng, types, cluster, paths, leaves, running, lowered=kind == "lowered")
    asks = _random_asks(rng, types, nodes, leaves, queues, running)
    eventful = kind == "guarantee" and rng.random() < 0.25
    if eventful:
        asks = tuple(replace(ask, created=START_S + rng.randint(1, 12)) if rng.random() < 0.5 else ask for ask in asks)
    known = [task.key for task, _ in running] + [ask.key for ask in asks] * 4
    return World(
        queues,
        nodes,
        running,
        asks,
        strict=rng.random() < 0.2,
        recreate=rng.random() < 0.4,
        leave_after=rng.choice([0, 0, 1, 3]),
        monitor=kind == "monitor",
        gentle=kind == "monitor" and rng.random() < 0.3,
        off=kind == "guarantee" and rng.random() < 0.02,
        limit=rng.choice([0.0, 0.05, 0.1, 0.2, 0.3]) if kind == "guarantee" and rng.random() < 0.15 else 1.0,
        withdrawn=tuple((rng.randint(1, 15), key) for key in dict.fromkeys(rng.choices(known, k=2)))
        if eventful
        else (),
        turned=((rng.randint(1, 15), rng.choice(nodes).name),) if eventful and rng.random() < 0.5 else (),
        churn=rng.randint(5, 25) if kind == "guarantee" and rng.random() < 0.2 else 0,
    )


def _random_paths(rng: random.Random) -> list[str]:
    """A tree of at most three levels below root, parents before children."""
    paths = ["root"]
    leaves = 0
    level = ["root"]
    for depth in range(3):
        following = []
        for parent in level:
            if depth and rng.random() < 0.45:
                continue
            for name in "abc"[: rng.randint(1 if depth else 2, 3)]:
                if leaves < MOST_LEAVES:
                    paths.append(f"{parent}.{name}")
                    following.append(paths[-1])
                    leaves += 1
        level = following
    return paths


def _random_amounts(rng: random.Random, types: tuple[str, ...], most: int) -> Amounts:
    amounts = {t: rng.randint(1, most) for t in types if rng.random() < 0.8}
    return amounts or {rng.choice(types): rng.randint(1, most)}


def _random_task(rng: random.Random, key: str, leaf: str, amounts: Amounts, created: int) -> Task:
    return Task(
        key,
        f"{leaf}-{rng.choice('xy')}",
        leaf,
        amounts,
        priority=rng.choice(PRIORITIES),
        opted_out=rng.random() < 0.15,
        originator=rng.random() < 0.1,
        may_preempt=rng.random() < 0.9,
        created=created,
    )


def _random_load(
    rng: random.Random, types: tuple[str, ...], nodes: tuple[Node, ...], leaves: list[str]
) -> tuple[tuple[Task, str], ...]:
    """Tasks on the nodes until most of them are full. One or two leaves hold most of it."""
    hogs = leaves[-1:] if rng.random() < 0.3 else rng.sample(leaves, min(len(leaves), rng.randint(1, 2)))
    free = {node.name: dict(node.capacity) for node in nodes}
    most = rng.choice([2, 4, 7])
    load: list[tuple[Task, str]] = []
    for node in nodes:
        misses = 0
        while misses < 3 and len(load) < MOST_TASKS:
            amounts = _random_amounts(rng, types, most)
            if any(free[node.name].get(t, 0) < amount for t, amount in amounts.items()):
                misses += 1
                continue
            for t, amount in amounts.items():
                free[node.name][t] -= amount
            leaf = rng.choice(hogs if rng.random() < 0.75 else leaves)
            task = _random_task(rng, f"v{len(load) + 1:02}", leaf, amounts, created=rng.randint(0, 500))
            if rng.random() < 0.04:
                task = replace(task, required_node=node.name)
            load.append((task, node.name))
    return tuple(load)


def _random_queues(
    rng: random.Random,
    types: tuple[str, ...],
    cluster: dict[str, int],
    paths: list[str],
    leaves: list[str],
    running: tuple[tuple[Task, str], ...],
    *,
    lowered: bool,
) -> tuple[Queue, ...]:
    """Guarantees on some levels and of some types, and maxima that leave room for them."""
    guaranteed: dict[str, dict[str, int]] = {}
    least: dict[str, dict[str, int]] = {}
    for path in reversed(paths):
        below = {t: sum(least[child].get(t, 0) for child in least if child.rpartition(".")[0] == path) for t in types}
        own: dict[str, int] = {}
        for t in types:
            if path == "root" or rng.random() > (0.55 if path in leaves else 0.5):
                continue
            if path in leaves:
                own[t] = rng.randint(1, max(1, 2 * cluster[t] // len(leaves)))
            else:
                own[t] = below[t] + rng.randint(0 if below[t] else 1, max(1, cluster[t] // 3))
        guaranteed[path] = own
        least[path] = {t: own.get(t, below[t]) for t in types}
    maxima: dict[str, dict[str, int]] = {}
    lower: dict[str, dict[str, int] | None] = {}
    for path in paths:
        used = {t: sum(task.amounts.get(t, 0) for task, _ in running if is_inside(task.queue, path)) for t in types}
        maxima[path], lower[path] = {}, None
        if path == "root":
            continue
        above = {
            t: min((maxima[p][t] for p in ancestors(path) if p in maxima and t in maxima[p]), default=10**6)
            for t in types
        }
        if not lowered:
            maxima[path] = {
                t: min(above[t], max(least[path][t], used[t] + rng.randint(-8, 3), 1))
                for t in types
                if rng.random() < 0.2
            }
        elif rng.random() < 0.4:
            lower[path] = {t: max(least[path][t], used[t] - rng.randint(-1, 8), 1) for t in types if rng.random() < 0.7}
    if lowered:
        for path in paths:
            down = lower[path]
            if down is not None:
                highest = {t: min((lower[p] or {}).get(t, 10**6) for p in ancestors(path)[1:]) for t in down}
                lower[path] = {t: min(amount, highest[t]) for t, amount in down.items()}
    return tuple(
        Queue(
            path,
            guaranteed[path],
            maxima[path],
            lower[path],
            preemption=rng.choices(["", "fence", "disabled", "default"], [30, 2, 1, 1])[0] if path != "root" else "",
            offset=rng.choice([0, 0, 0, 0, 0, 1, -1, 5]) if path != "root" else 0,
            priority_fence=rng.random() < 0.08 and path != "root",
            enforced=lower[path] is not None and rng.random() < 0.85,
        )
        for path in paths
    )


def _random_asks(
    rng: random.Random,
    types: tuple[str, ...],
    nodes: tuple[Node, ...],
    leaves: list[str],
    queues: tuple[Queue, ...],
    running: tuple[tuple[Task, str], ...],
) -> tuple[Task, ...]:
    """Asks mostly of leaves that are owed something, else of those next to a leaf that holds much, or of any."""
    by_path = {queue.path: queue for queue in queues}

    def owed(leaf: str) -> int:
        """How many guarantees of its path are not used up."""
        return sum(
            sum(task.amounts.get(t, 0) for task, _ in running if is_inside(task.queue, path)) < guaranteed
            for path in ancestors(leaf)
            for t, guaranteed in by_path[path].guaranteed.items()
        )

    asks: list[Task] = []
    by_need = sorted(leaves, key=lambda leaf: (-owed(leaf), leaf))
    luck = rng.random()
    chosen = by_need[: rng.randint(1, 3)]
    if luck < 0.25:
        chosen = leaves[-3:-1] or leaves
    elif luck < 0.4:
        chosen = rng.sample(leaves, min(len(leaves), 3))
    for leaf in chosen:
        amounts = _random_amounts(rng, types, rng.choice([1, 3, 6]))
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.4:
                amounts = _random_amounts(rng, types, rng.choice([1, 3, 6]))
            ask = _random_task(rng, f"a{len(asks) + 1}", leaf, amounts, created=600 + rng.randint(0, 300))
            if rng.random() < 0.08:
                ask = replace(ask, required_node=rng.choice(nodes).name)
            asks.append(ask)
    return tuple(asks)


def quantities(amounts: Amounts) -> dict[str, str]:
    """*amounts* as a configuration writes them: cores in thousandths, the rest as they are."""
    return {t: f"{amount}m" if t == "vcore" else str(amount) for t, amount in amounts.items()}


def configuration(world: World, *, lowered: bool = False) -> str:
    """The configuration of *world*, before or after the maxima are lowered."""
    by_parent: dict[str, list[Queue]] = {}
    for queue in world.queues:
        by_parent.setdefault(queue.path.rpartition(".")[0], []).append(queue)

    def described(queue: Queue) -> dict[str, Any]:
        maximum = queue.lowered if lowered and queue.lowered is not None else queue.maximum
        resources: dict[str, Any] = {}
        if queue.guaranteed:
            resources["guaranteed"] = quantities(queue.guaranteed)
        if maximum:
            resources["max"] = quantities(maximum)
        properties = {"quota.preemption.delay": f"{QUOTA_DELAY_S}s" if queue.enforced else "0s"}
        if queue.path == "root":
            properties["preemption.delay"] = "1s"
        if queue.preemption:
            properties["preemption.policy"] = queue.preemption
        if queue.offset:
            properties["priority.offset"] = str(queue.offset)
        if queue.priority_fence:
            properties["priority.policy"] = "fence"
        below = [described(child) for child in by_parent.get(queue.path, [])]
        found: dict[str, Any] = {"name": queue.path.rpartition(".")[2], "properties": properties}
        if resources:
            found["resources"] = resources
        if queue.path == "root":
            found["submitacl"] = "*"
        return found | ({"queues": below, "parent": True} if below else {})

    preemption: dict[str, Any] = {
        "guaranteemode": "strict" if world.strict else "reach",
        "quotapreemptionenabled": any(queue.lowered is not None for queue in world.queues),
    }
    preemption["cycle"] = {"limit": world.limit}
    if world.off:
        preemption["policies"] = ["required-node", "quota", "monitor"]
    if world.monitor:
        preemption["monitor"] = {"enabled": True}
        if not world.gentle:
            preemption["monitor"] |= {"per_round": 1, "natural_factor": 1, "dead_zone": 0}
    return json.dumps(
        {"partitions": [{"name": "default", "preemption": preemption, "queues": [described(world.queues[0])]}]}
    )


def written(world: World) -> str:
    """*world* as the beginning of a scenario, in the language of ``tests/scenarios/language.py``.

    A monitor is mentioned in a comment only, because that language cannot switch one on.
    """
    remarks = [f"victims leave after {world.leave_after} s"]
    remarks += ["they come back as asks"] * world.recreate
    remarks += [f"for {world.churn} s a task ends in each"] * bool(world.churn)
    remarks += [f"{key} is taken back after {second} s" for second, key in world.withdrawn]
    remarks += [f"{name} is drained, or opened again, after {second} s" for second, name in world.turned]
    remarks += [f"the monitor is on, {'at its own pace' if world.gentle else 'all at once'}"] * world.monitor
    lines = [f"# {'; '.join(remarks)}", *_written_queues(world, lowered=False)]
    lines += ["register at=1000s"]
    lines += [f"node {n.name} {_bare(n.capacity) or 'vcore=0'}{' draining' if n.drained else ''}" for n in world.nodes]
    applications = {task.application: task.queue for task in (*(t for t, _ in world.running), *world.asks)}
    lines += [f"app {application} queue={queue} user=user" for application, queue in applications.items()]
    lines += [
        f"run {t.key} node={where} app={t.application} {_bare(t.amounts)}{_marks(t)}" for t, where in world.running
    ]
    asks = sorted(world.asks, key=lambda ask: max(ask.created, START_S))
    lines += [f"ask {ask.key} app={ask.application} {_bare(ask.amounts)}{_marks(ask)}" for ask in asks]
    if any(queue.lowered is not None for queue in world.queues):
        lines += [*_written_queues(world, lowered=True), "update-config at=1003s"]
    return "\n".join(lines)


def _written_queues(world: World, *, lowered: bool) -> list[str]:
    enforces = any(queue.lowered is not None for queue in world.queues)
    switches = f" guaranteemode={'strict' if world.strict else 'reach'}{' quota=on' * enforces}"
    switches += f" limit={world.limit}" + " policies='[required-node, quota, monitor]'" * world.off
    lines = [f"partition default{switches}"]
    for queue in world.queues:
        maximum = queue.lowered if lowered and queue.lowered is not None else queue.maximum
        words = [f"queue {queue.path}"]
        words += ["parent"] * any(other.path.rpartition(".")[0] == queue.path for other in world.queues)
        words += [f"guaranteed={_braces(queue.guaranteed)}"] * bool(queue.guaranteed)
        words += [f"max={_braces(maximum)}"] * bool(maximum)
        words += ["preemption.delay=1s"] * (queue.path == "root")
        words += [f"quota.preemption.delay={QUOTA_DELAY_S if queue.enforced else 0}s"] * enforces
        words += [f"preemption.policy={queue.preemption}"] * bool(queue.preemption)
        words += [f"priority.offset={queue.offset}"] * bool(queue.offset)
        words += ["priority.policy=fence"] * queue.priority_fence
        lines.append(" ".join(words))
    return lines


def _braces(amounts: Amounts) -> str:
    return "{" + ",".join(f"{t}={amount}" for t, amount in amounts.items()) + "}"


def _bare(amounts: Amounts) -> str:
    return " ".join(f"{t}={amount}" for t, amount in amounts.items())


def _marks(task: Task) -> str:
    said = [f" created={task.created}s"]
    said += [f" p={task.priority}"] * (task.priority != 0)
    said += [f" required={task.required_node}"] * bool(task.required_node)
    said += [" self=no"] * task.opted_out + [" originator"] * task.originator
    said += [f" other={'yes' if task.may_preempt else 'no'}"] + [f" at={task.created}s"] * (task.created > START_S)
    return "".join(said)


def shrunk(world: World, fails: Callable[[World], bool], attempts: int = 400) -> World:
    """A smaller world that still *fails*: whatever can be left out, or made plain, is."""
    again = True
    while again and attempts > 0:
        again = False
        for smaller in _smaller(world):
            attempts -= 1
            if attempts <= 0:
                break
            if fails(smaller):
                world, again = smaller, True
                break
    return world


def _smaller(world: World) -> Iterator[World]:
    """Worlds with one thing less, the large things first."""
    for node in world.nodes:
        if len(world.nodes) > 1:
            yield replace(
                world,
                nodes=tuple(n for n in world.nodes if n is not node),
                running=tuple(one for one in world.running if one[1] != node.name),
                asks=tuple(ask for ask in world.asks if ask.required_node != node.name),
                turned=tuple(one for one in world.turned if one[1] != node.name),
            )
    for queue in world.queues[1:]:
        yield replace(
            world,
            queues=tuple(q for q in world.queues if not is_inside(q.path, queue.path)),
            running=tuple(one for one in world.running if not is_inside(one[0].queue, queue.path)),
            asks=tuple(ask for ask in world.asks if not is_inside(ask.queue, queue.path)),
        )
    for ask in world.asks:
        yield replace(world, asks=tuple(one for one in world.asks if one is not ask))
    for gone in world.running:
        yield replace(world, running=tuple(one for one in world.running if one is not gone))
    if len(world.types()) > 1:
        for t in world.types():
            yield _without_type(world, t)
    if world.recreate:
        yield replace(world, recreate=False)
    if world.churn:
        yield replace(world, churn=0)
        yield replace(world, churn=world.churn - 1)
    if world.leave_after:
        yield replace(world, leave_after=0)
    for event in world.withdrawn:
        yield replace(world, withdrawn=tuple(other for other in world.withdrawn if other is not event))
    if world.turned:
        yield replace(world, turned=())
    if world.limit < 1:
        yield replace(world, limit=1.0)
    if world.gentle:
        yield replace(world, gentle=False)
    if world.strict:
        yield replace(world, strict=False)
    for at, queue in enumerate(world.queues):
        for plainer in _plainer_queues(queue):
            yield replace(world, queues=(*world.queues[:at], plainer, *world.queues[at + 1 :]))
    for at, (task, node_name) in enumerate(world.running):
        for plain in _plainer_tasks(task):
            yield replace(world, running=(*world.running[:at], (plain, node_name), *world.running[at + 1 :]))
    for at, task in enumerate(world.asks):
        for plain in _plainer_tasks(task):
            yield replace(world, asks=(*world.asks[:at], plain, *world.asks[at + 1 :]))


def _plainer_queues(queue: Queue) -> Iterator[Queue]:
    for t in queue.guaranteed:
        yield replace(queue, guaranteed=_less(queue.guaranteed, t))
    for t in queue.maximum:
        yield replace(queue, maximum=_less(queue.maximum, t))
    for t in queue.lowered or ():
        yield replace(queue, lowered=_less(queue.lowered or {}, t))
    if queue.preemption:
        yield replace(queue, preemption="")
    if queue.offset:
        yield replace(queue, offset=0)
    if queue.priority_fence:
        yield replace(queue, priority_fence=False)


def _plainer_tasks(task: Task) -> Iterator[Task]:
    if task.priority:
        yield replace(task, priority=0)
    if task.opted_out:
        yield replace(task, opted_out=False)
    if task.originator:
        yield replace(task, originator=False)
    if task.required_node:
        yield replace(task, required_node="")
    if not task.may_preempt:
        yield replace(task, may_preempt=True)
    for t in task.amounts:
        if len(task.amounts) > 1:
            yield replace(task, amounts=_less(task.amounts, t))


def _less(amounts: Amounts, t: str) -> dict[str, int]:
    return {other: amount for other, amount in amounts.items() if other != t}


def _without_type(world: World, t: str) -> World:
    """*world* without the type *t*, and without tasks that wanted nothing else."""
    return replace(
        world,
        queues=tuple(
            replace(
                queue,
                guaranteed=_less(queue.guaranteed, t),
                maximum=_less(queue.maximum, t),
                lowered=_less(queue.lowered, t) if queue.lowered is not None else None,
            )
            for queue in world.queues
        ),
        nodes=tuple(replace(node, capacity=_less(node.capacity, t)) for node in world.nodes),
        running=tuple(
            (replace(task, amounts=_less(task.amounts, t)), where)
            for task, where in world.running
            if _less(task.amounts, t)
        ),
        asks=tuple(replace(ask, amounts=_less(ask.amounts, t)) for ask in world.asks if _less(ask.amounts, t)),
    )
