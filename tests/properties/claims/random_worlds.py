"""Makes small random worlds in which limits, priorities, guarantees, gangs, drains and losses meet."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.oracles.claims.scene import Application, Node, Queue, Task
from tests.oracles.plain_limits import WrittenLimit
from tests.oracles.rules.world import Amounts, ancestors

START_S: Final = 1_000
PRIORITIES: Final = (0, 0, 0, 1, 5, -1, 1000)
OWNERS: Final = (("amy", ("dev",)), ("bob", ("dev", "ops")), ("eve", ("ops",)), ("eve", ("ops",)))
TREES: Final = (
    ("root", "root.a", "root.b"),
    ("root", "root.a", "root.b", "root.c"),
    ("root", "root.p", "root.p.a", "root.p.b", "root.c"),
    ("root", "root.p", "root.p.a", "root.p.b", "root.q", "root.q.a", "root.q.b"),
)


@dataclass(frozen=True)
class Event:
    """Something that the shim does or reports in one second of the run.

    ``ask``: *tasks* come together. ``end``: the task at *number* of those that run, in order, ends. ``follow``: so does
    it, and its owner asks for another. ``withdraw``: the waiting one. ``again``: the real tasks of the gang *name* end
    and come again; ``break``: one of them does. ``drain``, ``open``, ``lose``, ``foreign``: node *name*, the last with the *amounts* of foreign load.
    """

    second: int
    what: str
    name: str = ""
    number: int = 0
    tasks: tuple[Task, ...] = ()
    amounts: Amounts | None = None


@dataclass(frozen=True)
class World:
    """A cluster, what runs there at first, and what happens."""

    number: int
    queues: tuple[Queue, ...]
    applications: tuple[Application, ...]
    nodes: tuple[Node, ...]
    running: tuple[tuple[Task, str], ...]
    events: tuple[Event, ...]
    strict: bool = False
    asked: bool = False
    """Tells whether the shim answers predicates; else it refuses nothing."""
    recreate: bool = False
    """Tells whether owners ask again for what was preempted or lost."""
    leave_after: int = 0
    percent: int = 5
    """The percentage of nodes on which room is saved by age."""

    @property
    def steps(self) -> int:
        """Returns the size of the world: what runs at first, and each ask and event."""
        return len(self.running) + len(self.events) + sum(len(event.tasks) for event in self.events)


def random_world(number: int) -> World:
    """Returns the world of this number: one to six nodes, up to 25 asks, mostly full, rich in limits."""
    rng = random.Random(f"claims/{number}")
    types = ("vcore", "memory")[: rng.choice((1, 1, 2))]
    largest = rng.choice((2, 4, 8))
    nodes = tuple(
        Node(f"n{at}", {t: rng.randint(max(1, largest - 2), largest) for t in types}) for at in range(rng.randint(1, 6))
    )
    total = {t: sum(node.capacity[t] for node in nodes) for t in types}
    paths = rng.choice(TREES)
    leaves = [path for path in paths if not any(other.startswith(path + ".") for other in paths)]
    # A world that is narrow everywhere is one in which nothing happens.
    narrow = rng.choice((0.1, 0.3, 0.6))
    owed = leaves[0] if rng.random() < 0.55 else ""
    queues = _random_queues(rng, types, total, paths, leaves, narrow, owed)
    applications = []
    for at in range(rng.randint(3, 6)):
        user, groups = rng.choice(OWNERS)
        leaf = leaves[0] if at in (0, 1) and owed else rng.choice(leaves[1:] if owed and at == 2 else leaves)
        applications.append(Application(f"app{at}", leaf, user, groups, created=START_S - 100 + at))
    asked = rng.random() < 0.35
    most = rng.choice((1, 2, 4, largest))
    last = rng.randint(5, 25)
    gangs, gang_events, members = _random_gangs(rng, types, leaves, nodes, largest, last)
    full = rng.random() < (0.4 if narrow > 0.5 else 0.9)
    running = (*members, *_random_load(rng, types, nodes, applications, members, most, owed, full=full))
    events = _random_events(rng, types, nodes, applications, most, largest, asked=asked, last=last) + gang_events
    applications += gangs
    return World(
        number,
        queues,
        tuple(applications),
        nodes,
        running,
        tuple(sorted(events, key=lambda event: event.second)),
        strict=rng.random() < 0.15,
        asked=asked,
        recreate=rng.random() < 0.5,
        leave_after=rng.choice((0, 3, 6, 10, 10)),
        percent=rng.choice((5, 5, 50, 100)),
    )


def _random_queues(
    rng: random.Random,
    types: tuple[str, ...],
    total: Amounts,
    paths: tuple[str, ...],
    leaves: list[str],
    narrow: float,
    owed: str,
) -> tuple[Queue, ...]:
    """Guarantees and maxes on several levels, and limits of users, groups and applications, as many as is *narrow*.

    The leaf *owed*, if any, is guaranteed half of the cluster, with limits more often than not, and others less.
    """
    found: dict[str, Queue] = {}
    guaranteed: dict[str, dict[str, int]] = {}
    for path in reversed(paths):
        children = [other for other in paths if other.rpartition(".")[0] == path]
        own: dict[str, int] = {}
        for t in types if path != "root" else ():
            least = sum(guaranteed[child].get(t, 0) for child in children)
            if path == owed:
                own[t] = (total[t] + 1) // 2
            elif rng.random() < (0.2 if owed else 0.55):
                own[t] = least + rng.randint(0 if least else 1, max(1, total[t] // len(leaves)))
        guaranteed[path] = own
    for path in paths:
        maximum: dict[str, int] = {}
        least = _promised(path, guaranteed, paths)
        parent = found.get(path.rpartition(".")[0])
        for t in types if path != "root" and rng.random() < narrow and path != owed else ():
            most = parent.maximum.get(t, 1000) if parent is not None else 1000
            maximum[t] = min(most, max(least.get(t, 0), rng.randint(1, max(1, total[t] * 2 // 3))))
        applications = rng.choice((0, 0, 1, 2) if path == owed else (0, 0, 0, 0, 1, 2)) if path != "root" else 0
        above = [found[other] for other in ancestors(path)[1:]]
        if applications:
            applications = min([applications, *(queue.applications or applications for queue in above)])
        limits = _random_limits(rng, types, total, maximum)
        limits = limits if rng.random() < (0.7 if path == owed else narrow) else []
        limits = [_lower_limit(entry, above, applications) for entry in limits]
        found[path] = Queue(
            path,
            guaranteed[path],
            maximum,
            tuple(limits),
            applications,
            offset=rng.choice((0, 0, 0, 1, -1, 5)) if path != "root" else 0,
            fence=path != "root" and rng.random() < 0.12,
            by_priority=rng.random() < 0.8,
            stateaware=path in leaves and rng.random() < 0.2,
            preemption=rng.choice((*[""] * 10, "fence", "disabled")) if path != "root" else "",
        )
    return tuple(found.values())


def _promised(path: str, guaranteed: Mapping[str, Amounts], paths: tuple[str, ...]) -> dict[str, int]:
    """Returns what *path* guarantees, or its children together, by type."""
    total = dict(guaranteed[path])
    for child in (other for other in paths if other.rpartition(".")[0] == path):
        for t, amount in _promised(child, guaranteed, paths).items():
            if t not in guaranteed[path]:
                total[t] = total.get(t, 0) + amount
    return total


def _random_limits(rng: random.Random, types: tuple[str, ...], total: Amounts, maximum: Amounts) -> list[WrittenLimit]:
    """One to three limits of users, of everybody, or of groups."""
    found = []
    names = [((name,), ()) for name in ("amy", "bob", "eve") if rng.random() < 0.35]
    names += [(("*",), ())] * (rng.random() < 0.35) + [((), (name,)) for name in ("ops", "dev") if rng.random() < 0.3]
    for users, groups in names[:3]:
        most = {
            t: rng.randint(1, max(1, min(maximum.get(t, total[t]), total[t] // 2)))
            for t in types
            if rng.random() < 0.7 and maximum.get(t, 1)
        }
        found.append(WrittenLimit(users, groups, most, rng.choice((0, 1, 2)) if most else rng.choice((1, 2))))
    return found


def _lower_limit(limit: WrittenLimit, above: list[Queue], applications: int) -> WrittenLimit:
    """Returns *limit* as low as every limit of the queues *above*, as configurations must have it."""
    upper = [other for queue in above for other in queue.limits]
    most = {t: min([amount, *(o.most[t] for o in upper if t in o.most)]) for t, amount in limit.most.items()}
    bounds = [o.applications for o in upper if o.applications] + [applications] * bool(applications)
    return replace(limit, most=most, applications=min([limit.applications, *bounds]) if limit.applications else 0)


def _random_load(
    rng: random.Random,
    types: tuple[str, ...],
    nodes: tuple[Node, ...],
    applications: list[Application],
    members: list[tuple[Task, str]],
    most: int,
    owed: str,
    *,
    full: bool,
) -> tuple[tuple[Task, str], ...]:
    """Recovered tasks of two applications beside *members* of gangs, until nodes are nearly full, or only a few."""
    load: list[tuple[Task, str]] = []
    hogs = rng.sample([a for a in applications if a.queue != owed], 2 if not owed else 1)
    for node in nodes:
        left = _left_on(node, members)
        while len(load) < 30 and rng.random() < (0.93 if full else 0.3):
            amounts = {t: rng.randint(1, most) for t in types}
            if any(left[t] < amount for t, amount in amounts.items()):
                continue
            for t, amount in amounts.items():
                left[t] -= amount
            task = _random_task(rng, f"r{len(load)}", rng.choice(hogs).name, amounts, START_S - rng.randint(10, 90))
            task = replace(task, priority=min(task.priority, 0)) if owed else task
            load.append((task, node.name))
    return tuple(load)


def _left_on(node: Node, running: list[tuple[Task, str]]) -> dict[str, int]:
    tasks = [task for task, name in running if name == node.name]
    return {t: capacity - sum(task.amounts[t] for task in tasks) for t, capacity in node.capacity.items()}


def _random_task(rng: random.Random, key: str, application: str, amounts: Amounts, created: int) -> Task:
    return Task(
        key,
        application,
        amounts,
        rng.choice(PRIORITIES),
        created,
        may_preempt=rng.random() < 0.9,
        opted_out=rng.random() < 0.1,
        originator=rng.random() < 0.07,
    )


def _random_events(
    rng: random.Random,
    types: tuple[str, ...],
    nodes: tuple[Node, ...],
    applications: list[Application],
    most: int,
    largest: int,
    *,
    asked: bool,
    last: int,
) -> list[Event]:
    """Asks, in bursts of equal ones, and ends; now and then a withdrawal, a drain, a loss or foreign load."""
    events: list[Event] = []
    count = 0
    while count < 14:
        second = rng.choice((0, 0, rng.randint(1, last)))
        application = rng.choice(applications if rng.random() < 0.5 else applications[:2]).name
        size = rng.choice((most, most, 1, largest, largest) if application != applications[0].name else (1, 2, most))
        size = min(size, largest)
        amounts = {t: rng.randint(1, size) for t in types}
        base = _random_task(rng, "", application, amounts, START_S + second)
        if rng.random() < 0.12:
            base = replace(base, required_node=rng.choice(nodes).name)
        refused = frozenset(node.name for node in nodes if asked and rng.random() < 0.3)
        burst = range(count, count + rng.choice((1, 2, 3, 4, 8)))
        tasks = tuple(replace(base, key=f"k{at}", refused=refused) for at in burst)
        events.append(Event(second, "ask", tasks=tasks))
        count += len(tasks)
    events += [Event(rng.randint(3, last), "end", number=rng.randrange(50)) for _ in range(rng.randint(0, 10))]
    for _ in range(rng.randint(0, 4)):
        # Somebody's task ends, and another one of the same size follows.
        events.append(Event(rng.randint(3, last), "follow", number=rng.randrange(50)))
    for what, chance in (("withdraw", 0.25), ("drain", 0.35), ("lose", 0.35), ("foreign", 0.35)):
        if rng.random() < chance:
            second, node = rng.randint(2, last), rng.choice(nodes)
            load = {t: rng.randint(1, node.capacity[t]) for t in types}
            events.append(Event(second, what, node.name, rng.randrange(50), amounts=load))
            if what == "drain" and rng.random() < 0.5:
                events.append(Event(second + rng.randint(3, 9), "open", node.name))
    return events


def _random_gangs(
    rng: random.Random, types: tuple[str, ...], leaves: list[str], nodes: tuple[Node, ...], largest: int, last: int
) -> tuple[list[Application], list[Event], list[tuple[Task, str]]]:
    """Returns up to two gangs that ask with placeholders, or run already, and what happens to them.

    Three in four are Hard: their minimum is all members. Tasks of a gang end and come again, one or all of them.
    """
    gangs: list[Application] = []
    events: list[Event] = []
    running: list[tuple[Task, str]] = []
    for at in range(rng.choice((0, 1, 1, 2))):
        (user, groups), second, count = rng.choice(OWNERS), rng.randint(0, last), rng.randint(2, 4)
        amounts = {t: rng.randint(1, max(1, largest // 2)) for t in types}
        hard = rng.random() < 0.75
        task = Task("", f"gang{at}", amounts, rng.choice(PRIORITIES), START_S - 5, group="g")
        members = [replace(task, key=f"g{at}-{m}") for m in range(count)]
        if rng.random() < 0.6:
            second = 0
            for member in members:
                fits = [n.name for n in nodes if all(_left_on(n, running)[t] >= a for t, a in amounts.items())]
                running += [(member, rng.choice(fits))] if fits else []
            count = sum(task.application == f"gang{at}" for task, _ in running)
        else:
            tasks = tuple(replace(task, placeholder=True, created=START_S + second) for task in members)
            events.append(Event(second, "ask", tasks=tasks))
        if not count:
            continue
        minimums = {"g": count if hard else 1}
        leaf = rng.choice(leaves)
        gangs.append(Application(f"gang{at}", leaf, user, groups, START_S - 5 + second, minimums, count, amounts))
        for turn in range(second + 3, last + 10, 5):
            if rng.random() < 0.35:
                events.append(Event(turn, rng.choice(("again", "again", "break")), f"gang{at}"))
    return gangs, events, running


def configuration(world: World) -> str:
    """Returns the configuration of *world*, as JSON, which is YAML."""
    described: dict[str, dict[str, Any]] = {}
    for queue in world.queues:
        parent, _, name = queue.path.rpartition(".")
        properties = {"application.sort.priority": "enabled" if queue.by_priority else "disabled"}
        properties |= {"preemption.delay": "1s"} if not parent else {}
        properties |= {"priority.offset": str(queue.offset)} if queue.offset else {}
        properties |= {"priority.policy": "fence"} if queue.fence else {}
        properties |= {"preemption.policy": queue.preemption} if queue.preemption else {}
        properties["application.sort.policy"] = "stateaware" if queue.stateaware else "fifo"
        entry: dict[str, Any] = {"name": name or queue.path, "properties": properties}
        resources = {"guaranteed": _written(queue.guaranteed), "max": _written(queue.maximum)}
        entry["resources"] = {what: amounts for what, amounts in resources.items() if amounts}
        entry["limits"] = [_limit(limit) for limit in queue.limits]
        if queue.applications:
            entry["maxapplications"] = queue.applications
        described[queue.path] = entry
        if parent:
            described[parent].setdefault("queues", []).append(entry)
    described["root"]["submitacl"] = "*"
    preemption = {"guaranteemode": "strict" if world.strict else "reach"}
    return json.dumps({"partitions": [{"name": "default", "preemption": preemption, "queues": [described["root"]]}]})


def _limit(limit: WrittenLimit) -> dict[str, Any]:
    entry: dict[str, Any] = {"limit": "", "users": list(limit.users), "groups": list(limit.groups)}
    entry |= {"maxresources": _written(limit.most)} if limit.most else {}
    return entry | ({"maxapplications": limit.applications} if limit.applications else {})


def _written(amounts: Amounts) -> dict[str, str]:
    return {t: f"{amount}m" if t == "vcore" else str(amount) for t, amount in amounts.items()}
