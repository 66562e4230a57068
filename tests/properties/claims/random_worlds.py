"""Makes small random worlds in which limits, priorities, guarantees, gangs, drains and losses meet."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.oracles.claims.scene import Application, Node, Queue, Task
from tests.oracles.plain_limits import WrittenLimit
from tests.oracles.rules.world import Amounts, ancestors

START_S: Final = 1_000
WITH_RACKS: Final = 100_000
"""The first number of those whose worlds have racks."""
PRIORITIES: Final = (0, 0, 0, 1, 5, -1, 1000)
OWNERS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("amy", ("dev",)),
    ("bob", ("dev", "ops")),
    ("eve", ("ops",)),
    ("eve", ("ops",)),
)
TREES: Final = (
    "root root.a root.b",
    "root root.a root.b root.c",
    "root root.p root.p.a root.p.b root.c",
    "root root.p root.p.a root.p.b root.q root.q.a root.q.b",
)


@dataclass(frozen=True)
class Event:
    """Something that the shim does or reports in one second of the run.

    ``ask``: *tasks* come together. ``end``: the task at *number* of those that run, or of those of the application
    *name*, ends; ``follow``: its owner asks for another. ``withdraw``: the one that waits. ``again``: the real tasks of
    the gang *name* end and come again; ``break``: one of them does. ``drain``, ``open``, ``lose``, ``foreign``,
    ``move``: the node *name*, with foreign *amounts*, to another *rack*.
    """

    second: int
    what: str
    name: str = ""
    number: int = 0
    tasks: tuple[Task, ...] = ()
    amounts: Amounts | None = None
    rack: str = ""


@dataclass(frozen=True)
class World:
    """A cluster, what runs there at first, and what happens."""

    number: int
    queues: tuple[Queue, ...]
    applications: tuple[Application, ...]
    nodes: tuple[Node, ...]
    running: tuple[tuple[Task, str], ...]
    events: tuple[Event, ...]
    strict: bool
    asked: bool
    """Tells whether the shim answers predicates; else it refuses nothing."""
    recreate: bool
    """Tells whether owners ask again for what was preempted or lost."""
    leave_after: int
    percent: int
    """The percentage of nodes on which room is saved by age."""

    @property
    def steps(self) -> int:
        """Returns the size of the world: what runs at first, and each ask and event."""
        return len(self.running) + len(self.events) + sum(len(event.tasks) for event in self.events)


def random_world(number: int) -> World:
    """Returns the world of this number: one to nine nodes, up to 35 asks, mostly full, rich in limits. From
    ``WITH_RACKS`` on its nodes are in racks, and groups require one."""
    maker = _Maker(number)
    world, rng = maker.make(), random.Random(f"claims/{number}/filled")
    world = _fill_leaf(world, rng) if not maker.owed and rng.random() < 0.9 else world
    return _add_racks(world, random.Random(f"claims/{number}/racks")) if number >= WITH_RACKS else world


def small_worlds(count: int, numbers: Iterable[int]) -> list[World]:
    """Returns the smallest *count* worlds of *numbers*."""
    return sorted(map(random_world, numbers), key=lambda world: (world.steps, world.number))[:count]


def _fill_leaf(world: World, rng: random.Random) -> World:
    """Adds a node, and a leaf that is full, or whose user is at its limit: tasks of 1 end one by one and others wait
    for their place, and so does a larger ask, which came first or is more important. No other tasks end."""
    types, most, size = tuple(world.nodes[0].capacity), rng.choice((2, 3, 4)), rng.choice((2, 2, 3, 4))
    limit = dict.fromkeys(types, most)
    by_user = rng.random() < 0.4
    limits = (WrittenLimit(("*",), (), limit),) if by_user else ()
    root = replace(world.queues[0], limits=(), applications=0)
    leaf = Queue("root.filled", maximum={} if by_user else limit, limits=limits, offset=rng.choice((0, 0, 1, -1)))
    names = ("small", "large") if rng.random() < 0.7 else ("small", "small")
    added = [Application(name, leaf.path, "zoe", (), START_S - 50 + at) for at, name in enumerate(dict.fromkeys(names))]
    one, node = dict.fromkeys(types, 1), f"n{len(world.nodes)}"
    came, priority = rng.choice(((1, 0), (1, 0), (4, 1000)))
    small = tuple(Task(f"s{at}", "small", one, 0, START_S + 3) for at in range(8))
    large = Task("large", names[1], dict.fromkeys(types, min(size, most)), priority, START_S + came)
    running = [(Task(f"f{at}", "small", one, 0, START_S - 20), node) for at in range(most)]
    seconds = range(8, 8 + 4 * rng.randint(3, 6), rng.choice((2, 3)))
    events = [event for event in world.events if event.what not in ("end", "follow", "withdraw")]
    events += [Event(came, "ask", tasks=(large,)), Event(3, "ask", tasks=small)]
    events += [Event(second, "end", "small") for second in seconds]
    return replace(
        world,
        queues=(root, *world.queues[1:], leaf),
        applications=(*world.applications, *added),
        nodes=(*world.nodes, Node(node, dict.fromkeys(types, 2 * most))),
        running=(*world.running, *running),
        events=tuple(sorted(events, key=lambda event: event.second)),
    )


def _add_racks(world: World, rng: random.Random) -> World:
    """Puts the nodes into one to three racks, and has some gangs and groups of single asks require one, but no large
    bursts. A node may change its rack."""
    racks = ("r0", "r1", "r2")[: rng.choice((1, 2, 2, 3))]
    same = [
        replace(rng.choice(world.nodes), name=f"n{len(world.nodes) + at}") for at in range(rng.choice((0, 0, 1, 2)))
    ]
    nodes = [replace(node, rack=rng.choice((*racks, *racks, *racks, ""))) for node in (*world.nodes, *same)]
    bound = {application.name for application in world.applications if rng.random() < 0.6}
    ran = {application.name for application in world.applications if rng.random() < 0.15}

    def in_rack(task: Task, names: set[str], *, others: int = 0) -> Task:
        gang = bool(task.group) or others < 4
        return replace(task, in_rack=task.application in names and gang and not task.required_node)

    events = [
        replace(event, tasks=tuple(in_rack(task, bound, others=len(event.tasks)) for task in event.tasks))
        for event in world.events
    ]
    if rng.random() < 0.3:
        second, rack = rng.randint(5, 25), rng.choice((*racks, "r1", ""))
        events.append(Event(second, "move", rng.choice(nodes).name, rack=rack))
    running = [(in_rack(task, bound if task.group else bound & ran), name) for task, name in world.running]
    events.sort(key=lambda event: event.second)
    return replace(world, nodes=tuple(nodes), running=tuple(running), events=tuple(events))


class _Maker:
    """Draws one world. ``owed``: a leaf with a large guarantee, whose tasks are to preempt; empty: there is none."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.rng = rng = random.Random(f"claims/{number}")
        self.types = ("vcore", "memory")[: rng.choice((1, 1, 2))]
        self.largest = rng.choice((2, 4, 8))
        self.most = rng.choice((1, 2, 4, self.largest))
        least = max(1, self.largest - 2)
        capacities = [{t: rng.randint(least, self.largest) for t in self.types} for _ in range(rng.randint(1, 6))]
        self.nodes = tuple(Node(f"n{at}", capacity) for at, capacity in enumerate(capacities))
        self.total = {t: sum(node.capacity[t] for node in self.nodes) for t in self.types}
        self.paths = rng.choice(TREES).split()
        self.leaves = [path for path in self.paths if not any(other.startswith(path + ".") for other in self.paths)]
        self.owed = self.leaves[0] if rng.random() < 0.75 else ""
        self.starters = bool(self.owed) and rng.random() < 0.6
        """Tells whether that leaf has many new applications with few asks, of which only one may start.

        The first one asks for what no single end frees, so that it preempts while the others find room.
        """
        if self.starters:
            self.most, self.last = 1, 12
        self.narrow = rng.choice((0.1, 0.3, 0.6))
        """How many limits there are. Where all is narrow, nothing happens."""
        self.asked = rng.random() < 0.35
        self.last = rng.randint(5, 25)
        self.applications: list[Application] = []
        self.events: list[Event] = []
        self.running: list[tuple[Task, str]] = []

    def make(self) -> World:
        """Returns the world."""
        rng = self.rng
        queues = self._draw_queues()
        for at in range(rng.randint(3, 6)):
            there = self.owed and (at < 2 or (self.starters and at > 2))
            leaf = self.owed if there else rng.choice(self.leaves[at == 2 :])
            self.applications.append(Application(f"app{at}", leaf, *rng.choice(OWNERS), START_S - 100 + at))
        plain = list(self.applications)
        for at in range(rng.choice((0, 1, 1, 2))):
            self._add_gang(at)
        self._add_load(plain)
        self._add_asks(plain)
        self._add_mishaps()
        return World(
            self.number,
            queues,
            tuple(self.applications),
            self.nodes,
            tuple(self.running),
            tuple(sorted(self.events, key=lambda event: event.second)),
            strict=rng.random() < 0.15,
            asked=self.asked,
            recreate=rng.random() < 0.5,
            leave_after=rng.choice((6, 10) if self.starters else (0, 3, 6, 10)),
            percent=rng.choice((5, 5, 50, 100)),
        )

    def _draw_queues(self) -> tuple[Queue, ...]:
        """Guarantees and maxes on several levels, and limits of users, groups and applications."""
        rng, guaranteed = self.rng, dict[str, dict[str, int]]()
        promised: dict[str, dict[str, int]] = {}
        for path in reversed(self.paths):
            below = {
                t: sum(promised[o].get(t, 0) for o in promised if o.rpartition(".")[0] == path) for t in self.types
            }
            own = guaranteed[path] = {}
            for t in self.types:
                if path == self.owed:
                    own[t] = (self.total[t] + 1) // 2
                elif path != "root" and rng.random() < (0.2 if self.owed else 0.55):
                    own[t] = below[t] + rng.randint(not below[t], max(1, self.total[t] // len(self.leaves)))
            promised[path] = below | own
        found: dict[str, Queue] = {}
        for path in self.paths:
            above = [found[other] for other in ancestors(path)[1:]]
            maximum = {
                t: min(
                    [max(promised[path][t], rng.randint(1, max(1, self.total[t] * 2 // 3)))]
                    + [queue.maximum[t] for queue in above if t in queue.maximum]
                )
                for t in self.types
                if above and rng.random() < self.narrow and path != self.owed
            }
            most = rng.choice((0, 0, 1, 2) if path == self.owed else (0, 0, 0, 0, 1, 2)) if above else 0
            most = 1 if self.starters and path == self.owed and rng.random() < 0.7 else most
            most = min([most, *(queue.applications or most for queue in above)])
            limited = rng.random() < (0.7 if path == self.owed and not self.starters else self.narrow)
            found[path] = Queue(
                path,
                guaranteed[path],
                maximum,
                tuple(self._draw_limits(maximum, above, most)) if limited else (),
                most,
                offset=rng.choice((0, 0, 0, 1, -1, 5)) if above else 0,
                fence=bool(above) and rng.random() < 0.12,
                by_priority=rng.random() < 0.8,
                stateaware=path in self.leaves and rng.random() < 0.2,
                preemption=rng.choice((*[""] * 10, "fence", "disabled")) if above else "",
            )
        return tuple(found.values())

    def _draw_limits(self, maximum: Amounts, above: list[Queue], applications: int) -> list[WrittenLimit]:
        """Up to three limits, each as low as every limit of the queues *above*, as configurations must have it."""
        rng, upper, found = self.rng, [limit for queue in above for limit in queue.limits], []
        names = [((name,), ()) for name in ("amy", "bob", "eve") if rng.random() < 0.35]
        names += [(("*",), ())] * (rng.random() < 0.35) + [
            ((), (name,)) for name in ("ops", "dev") if rng.random() < 0.3
        ]
        counts = [limit.applications for limit in upper if limit.applications] + [applications] * bool(applications)
        for users, groups in names[:3]:
            most = {
                t: min(
                    [rng.randint(1, max(1, min(maximum.get(t, self.total[t]), self.total[t] // 2)))]
                    + [limit.most[t] for limit in upper if t in limit.most]
                )
                for t in self.types
                if rng.random() < 0.7
            }
            count = rng.choice((0, 1, 2)) if most else rng.choice((1, 2))
            found.append(WrittenLimit(users, groups, most, min([count, *counts]) if count else 0))
        return found

    def _draw_task(self, key: str, application: str, amounts: Amounts, created: int) -> Task:
        rng = self.rng
        unwilling = {"opted_out": rng.random() < 0.1, "originator": rng.random() < 0.07}
        return Task(key, application, amounts, rng.choice(PRIORITIES), created, "", rng.random() < 0.9, **unwilling)

    def _fits(self, amounts: Amounts, node: Node) -> bool:
        here = [task for task, name in self.running if name == node.name]
        return all(a + sum(task.amounts[t] for task in here) <= node.capacity[t] for t, a in amounts.items())

    def _add_gang(self, at: int) -> None:
        """Adds a gang that asks with placeholders, or runs already, and tasks of which end and come again.

        Three in four are Hard: their minimum is all members.
        """
        rng, name, owner = self.rng, f"gang{at}", self.rng.choice(OWNERS)
        second, count = rng.randint(0, self.last), rng.randint(2, 4)
        amounts = {t: rng.randint(1, max(1, self.largest // 2)) for t in self.types}
        task = Task("", name, amounts, rng.choice(PRIORITIES), START_S - 5, group="g")
        members = [replace(task, key=f"g{at}-{member}") for member in range(count)]
        if rng.random() < 0.6:
            second = 0
            for member in members:
                fitting = [node.name for node in self.nodes if self._fits(amounts, node)]
                self.running += [(member, rng.choice(fitting))] if fitting else []
            count = sum(task.application == name for task, _ in self.running)
        else:
            tasks = tuple(replace(task, placeholder=True, created=START_S + second) for task in members)
            self.events.append(Event(second, "ask", tasks=tasks))
        if count:
            least = {"g": count if rng.random() < 0.75 else 1}
            leaf = rng.choice(self.leaves)
            self.applications.append(Application(name, leaf, *owner, START_S - 5 + second, least, count, amounts))
            times = [turn for turn in range(second + 3, self.last + 10, 5) if rng.random() < 0.35]
            self.events += [Event(turn, rng.choice(("again", "again", "break")), name) for turn in times]

    def _add_load(self, applications: list[Application]) -> None:
        """Adds recovered tasks of one or two applications until nodes are nearly full, or only a few."""
        rng = self.rng
        hogs = rng.sample([a for a in applications if a.queue != self.owed], 1 if self.owed else 2)
        full = self.starters or rng.random() < (0.4 if self.narrow > 0.5 else 0.9)
        more = 0.95 if full else 0.3
        for node in self.nodes:
            while len(self.running) < 34 and rng.random() < more:
                amounts = {t: rng.randint(1, self.most) for t in self.types}
                if self._fits(amounts, node):
                    age = rng.randint(10, 90)
                    task = self._draw_task(f"r{len(self.running)}", rng.choice(hogs).name, amounts, START_S - age)
                    task = replace(task, priority=min(task.priority, 0)) if self.owed else task
                    self.running.append((task, node.name))

    def _add_asks(self, applications: list[Application]) -> None:
        """Adds asks in bursts of equal ones; some are as large as those before."""
        rng, count, amounts = self.rng, 0, dict[str, int]()
        while count < 14:
            second = rng.choice((0, 0, rng.randint(1, self.last)))
            first = self.starters and not count
            application = applications[0] if first else rng.choice(applications[: 2 if rng.random() < 0.5 else None])
            sizes = (1, 2, self.most) if application is applications[0] else (self.most, 1, self.largest, self.largest)
            if self.starters:
                sizes, second = ((self.largest,), 0) if first else ((1, 1, 2), rng.randint(3, self.last))
            if not amounts or self.starters or rng.random() < 0.7:
                size = min(rng.choice(sizes), self.largest)
                least = size if self.starters else 1
                amounts = {t: rng.randint(least, size) for t in self.types}
            base = self._draw_task("", application.name, amounts, START_S + second)
            base = replace(base, priority=5, may_preempt=True) if first else base
            refused = frozenset(node.name for node in self.nodes if self.asked and rng.random() < 0.3)
            only = rng.choice(self.nodes).name if rng.random() < 0.12 and not first else ""
            burst = range(count, count + rng.choice((1, 1, 2) if self.starters else (1, 2, 3, 4, 8)))
            tasks = (replace(base, key=f"k{at}", refused=refused, required_node=only) for at in burst)
            self.events.append(Event(second, "ask", tasks=tuple(tasks)))
            count += len(burst)

    def _add_mishaps(self) -> None:
        """Adds ends of tasks; and now and then a withdrawal, a drain, a loss, or foreign load."""
        rng = self.rng
        for what, times in (("end", rng.randint(6 * self.starters, 10)), ("follow", rng.randint(0, 4))):
            self.events += [Event(rng.randint(3, self.last), what, number=rng.randrange(50)) for _ in range(times)]
        for what, chance in (("withdraw", 0.25), ("drain", 0.35), ("lose", 0.35), ("foreign", 0.35)):
            if rng.random() < chance:
                second, node = rng.randint(2, self.last), rng.choice(self.nodes)
                load = {t: rng.randint(1, node.capacity[t]) for t in self.types}
                self.events.append(Event(second, what, node.name, rng.randrange(50), amounts=load))
                if what == "drain" and rng.random() < 0.5:
                    self.events.append(Event(second + rng.randint(3, 9), "open", node.name))


def configuration(world: World) -> str:
    """Returns the configuration of *world*, as JSON, which is YAML."""
    described: dict[str, dict[str, Any]] = {}
    for queue in world.queues:
        parent, _, name = queue.path.rpartition(".")
        properties = {
            "application.sort.priority": "enabled" if queue.by_priority else "disabled",
            "application.sort.policy": "stateaware" if queue.stateaware else "fifo",
            "priority.policy": "fence" if queue.fence else "default",
            "priority.offset": str(queue.offset),
            "preemption.policy": queue.preemption or "default",
        }
        properties |= {} if parent else {"preemption.delay": "1s"}
        resources = {"guaranteed": _written(queue.guaranteed), "max": _written(queue.maximum)}
        described[queue.path] = {
            "name": name,
            "properties": properties,
            "resources": {what: amounts for what, amounts in resources.items() if amounts},
            "limits": [_write_limit(limit) for limit in queue.limits],
            "maxapplications": queue.applications,
        }
        if parent:
            described[parent].setdefault("queues", []).append(described[queue.path])
    described["root"]["submitacl"] = "*"
    preemption = {"guaranteemode": "strict" if world.strict else "reach"}
    partition = {"name": "default", "preemption": preemption, "queues": [described["root"]]}
    if world.number >= WITH_RACKS:
        partition["topology"] = ["rack"]
    return json.dumps({"partitions": [partition]})


def _write_limit(limit: WrittenLimit) -> dict[str, Any]:
    entry = {"limit": "", "users": list(limit.users), "groups": list(limit.groups)}
    most = {"maxresources": _written(limit.most)} if limit.most else {}
    return entry | most | {"maxapplications": limit.applications}


def _written(amounts: Amounts) -> dict[str, str]:
    return {t: f"{amount}m" if t == "vcore" else str(amount) for t, amount in amounts.items()}
