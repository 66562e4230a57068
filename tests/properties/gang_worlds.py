"""Small random clusters in which one gang asks for room that others hold, and how the engine settles each."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.devices import (
    DEVICES_ATTRIBUTE,
    GIVEN_TAG,
    WHOLE,
    DeviceSpec,
    read_wants,
    want_tags,
    write_share,
)
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationRejected,
    Effect,
    NodeRejected,
    Released,
)
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import read_request
from kornel.core.engine.engine import Engine
from tests.oracles.rules import gang_units
from tests.oracles.rules.gang_units import RunningGang, Together, Unit
from tests.oracles.rules.unit_devices import Device, UnitDevices, Wish
from tests.oracles.rules.world import Amounts, Books, Node, Queue, Task, World
from tests.properties.rules_worlds import START_S, configuration
from tests.request_texts import request_tags, write_devices

PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
SECONDS: Final = (*[1] * 6, 4, 16, 16)
"""How long the engine is left alone, step by step, until it has decided what it will ever decide."""
TREES: Final = (
    ("root", "root.g", "root.v", "root.w"),
    ("root", "root.p", "root.p.g", "root.p.v", "root.w"),
    ("root", "root.p", "root.p.g", "root.q", "root.q.v", "root.q.w"),
)


@dataclass(frozen=True)
class GangWorld:
    """A cluster at rest, and a gang that asks."""

    queues: tuple[Queue, ...]
    nodes: tuple[Node, ...]
    running: tuple[tuple[Task, str], ...]
    gangs: tuple[RunningGang, ...]
    unit: Unit
    racks: Mapping[str, str] = field(default_factory=dict)
    """The rack of each node that has one."""
    wishes: Mapping[str, str] = field(default_factory=dict)
    """By member, the size of the slices of its group, each of which requires a rack; empty: all of it does."""

    def books(self) -> Books:
        """Returns the books before anything is decided."""
        return Books(
            {queue.path: queue for queue in self.queues},
            {node.name: node for node in self.nodes},
            running={task.key: (task, node) for task, node in self.running},
        )


def random_gang_world(seed: int, nodes_up_to: int = 4, tasks_up_to: int = 12) -> GangWorld:
    """Returns a cluster of a few nodes and tasks, mostly full, and a gang that is mostly owed its room."""
    rng = random.Random(seed)
    types = ("vcore", "memory")[: rng.choice([1, 1, 2])]
    nodes = tuple(
        Node(f"n{at + 1}", {t: rng.randint(2, 7) for t in types}, drained=rng.random() < 0.05)
        for at in range(rng.randint(2, nodes_up_to))
    )
    paths = rng.choice(TREES)
    asking = next(path for path in paths if path.endswith(".g"))
    leaves = [path for path in paths if path[-1] in "vw"]
    running, gangs = _random_load(rng, types, nodes, leaves, asking, tasks_up_to)
    members = _random_members(rng, types, asking)
    unit = Unit("gang", asking, members)
    wanted = gang_units.amounts_of(members)
    queues = []
    for path in paths:
        guaranteed: Amounts = {}
        if path == asking or (path == "root.p" and rng.random() < 0.4):
            own = {t: max(1, amount + rng.choice([-1, 0, 1, 3, 6, 9])) for t, amount in wanted.items()}
            guaranteed = {t: amount + (3 if path == "root.p" else 0) for t, amount in own.items()}
        elif path[-1] in "vw" and rng.random() < 0.4:
            guaranteed = {t: rng.randint(1, 5) for t in types if rng.random() < 0.7}
        if path == asking and "root.p" in paths and rng.random() < 0.3:
            guaranteed = {}
        if len(guaranteed) > 1 and rng.random() < 0.3:
            left_out = rng.choice(types)
            guaranteed = {t: amount for t, amount in guaranteed.items() if t != left_out}
        queues.append(
            Queue(
                path,
                guaranteed,
                preemption=rng.choices(["", "fence", "disabled"], [20, 1, 1])[0] if path != "root" else "",
                offset=rng.choice([0, 0, 0, 0, 1]) if path != "root" else 0,
            )
        )
    return GangWorld(tuple(_fitted(queues)), nodes, running, gangs, unit)


def random_domain_world(seed: int, nodes_up_to: int = 4, tasks_up_to: int = 12) -> GangWorld:
    """Returns such a cluster with nodes in racks, and a gang whose members, or some of them, require a rack."""
    rng = random.Random(seed)
    world = random_gang_world(rng.randrange(2**32), nodes_up_to, tasks_up_to)
    racks = {node.name: rack for node in world.nodes if (rack := rng.choice(["r1", "r1", "r2", "r2", "r3", ""]))}
    groups: dict[str, list[str]] = {}
    for member in world.unit.members:
        groups.setdefault(_group_of(member), []).append(member.key)
    wishes: dict[str, str] = {}
    together: list[Together] = []
    for keys in groups.values():
        if rng.random() < 0.8:
            size = rng.choice([0, 0, 0, 1, 2, 2])
            wishes |= dict.fromkeys(keys, str(size or ""))
            together.append(Together(frozenset(keys), racks, size))
    return replace(world, unit=replace(world.unit, together=tuple(together)), racks=racks, wishes=wishes)


def random_device_world(seed: int) -> GangWorld:
    """Returns such a cluster with devices on most nodes, of which running tasks hold some and members want some.

    The amounts are scarce, or enough for everybody, so that devices alone decide.
    """
    rng = random.Random(seed)
    world = random_gang_world(rng.randrange(2**32))
    devices = {
        node.name: tuple(
            Device(f"g{at}", rng.choice(["", "", "A"]), rng.choice(["", "x", "x", "y"])) for at in range(count)
        )
        for node in world.nodes
        if (count := rng.choice([0, 1, 2, 3, 4, 4]))
    }
    left = {(node, device.name): 1_000 for node, found in devices.items() for device in found}
    held: dict[str, tuple[str, dict[str, int]]] = {}
    for task, node in world.running:
        share = rng.choice([1_000, 1_000, 1_000, 500, 300])
        free = [name for (where, name), parts in left.items() if where == node and parts >= share]
        number = rng.choice([1, 1, 2]) if share == 1_000 else 1
        if len(free) < number or rng.random() < 0.3:
            continue
        names = rng.sample(free, number)
        held[task.key] = node, dict.fromkeys(names, share)
        for name in names:
            left[node, name] -= share
    wishes: dict[str, Wish] = {}
    of_group: dict[str, Wish] = {}
    for member in world.unit.members:
        wish = of_group.setdefault(
            _group_of(member),
            rng.choice(
                [Wish(1), Wish(1), Wish(2), Wish(2, linked=True), Wish(1, type="A"), Wish(share=500), Wish(share=300)]
            ),
        )
        if rng.random() < 0.95:
            wishes[member.key] = wish
    unit = replace(world.unit, devices=UnitDevices(devices, held, wishes))
    roomy = tuple(
        replace(node, capacity={t: amount + 9 for t, amount in node.capacity.items()}) for node in world.nodes
    )
    return replace(world, unit=unit, nodes=roomy if rng.random() < 0.5 else world.nodes)


def _group_of(member: Task) -> str:
    """Returns the task group of *member*: alike are those of one size and priority."""
    return f"of {sorted(member.amounts.items())} {member.priority}"


def _fitted(queues: list[Queue]) -> list[Queue]:
    """Returns *queues* with guarantees of parents raised to those of their children."""
    fitted: dict[str, Queue] = {}
    for queue in reversed(queues):
        children = [other for other in fitted.values() if other.path.rpartition(".")[0] == queue.path]
        guaranteed = {
            t: max(amount, sum(child.guaranteed.get(t, 0) for child in children))
            for t, amount in queue.guaranteed.items()
        }
        fitted[queue.path] = Queue(
            queue.path, guaranteed if queue.path != "root" else {}, preemption=queue.preemption, offset=queue.offset
        )
    return [fitted[queue.path] for queue in queues]


def _random_load(
    rng: random.Random,
    types: tuple[str, ...],
    nodes: tuple[Node, ...],
    leaves: list[str],
    asking: str,
    tasks_up_to: int,
) -> tuple[tuple[tuple[Task, str], ...], tuple[RunningGang, ...]]:
    """Returns tasks on the nodes, and those of them that run as gangs."""
    free = {node.name: dict(node.capacity) for node in nodes}
    load: list[tuple[Task, str]] = []
    groups: dict[str, list[str]] = {}
    teams = [f"team{number}" for number in range(rng.choice([0, 0, 1, 2]))]
    homes = {team: rng.choice(leaves) for team in teams}
    for node in nodes:
        misses = 0
        while misses < 2 and len(load) < tasks_up_to:
            amounts = {t: rng.randint(1, 3) for t in types if t == "vcore" or rng.random() < 0.7}
            if any(free[node.name].get(t, 0) < amount for t, amount in amounts.items()):
                misses += 1
                continue
            for t, amount in amounts.items():
                free[node.name][t] -= amount
            team = rng.choice(teams) if teams and rng.random() < 0.5 else ""
            leaf = homes[team] if team else rng.choice([*leaves, *leaves, *leaves, *leaves, asking])
            key = f"r{len(load) + 1:02}"
            task = Task(
                key,
                team or f"{leaf}-app",
                leaf,
                amounts,
                priority=rng.choice([0, 0, 0, 0, 0, 0, 1, -1]),
                opted_out=rng.random() < 0.12,
                originator=not team and rng.random() < 0.08,
                created=rng.randint(0, 500),
            )
            if team:
                groups.setdefault(team, []).append(key)
            load.append((task, node.name))
    gangs = tuple(
        RunningGang(team, frozenset(keys), len(keys) if rng.random() < 0.6 else rng.randint(1, len(keys)))
        for team, keys in groups.items()
    )
    return tuple(load), gangs


def _random_members(rng: random.Random, types: tuple[str, ...], queue: str) -> tuple[Task, ...]:
    """Returns the members of the gang that asks: one task group, or two of different sizes."""
    members: list[Task] = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        amounts = {t: rng.randint(1, 3) for t in types if t == "vcore" or rng.random() < 0.8}
        for _ in range(rng.randint(1, 3)):
            key = f"m{len(members) + 1}"
            members.append(Task(key, "gang", queue, amounts, priority=rng.choice([0, 0, 0, 1]), created=600))
    return tuple(members)


@dataclass
class Settled:
    """What came of a world. ``victims`` empty: nobody was told to leave. ``spread``: of members that run."""

    victims: list[str] = field(default_factory=list)
    spread: dict[str, str] = field(default_factory=dict)
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The devices that each member was told to use."""
    placed_at_once: bool = True
    preempted_again: bool = False
    refused: bool = False
    """The engine did not take the gang in at all."""


class Play:
    """Plays a world against an engine. Victims leave as soon as they are told."""

    def __init__(self, world: GangWorld) -> None:
        self.world = world
        self.engine = Engine()
        self.now_s = START_S
        self.settled = Settled()
        self._told: list[str] = []

    def settle(self) -> Settled:
        """Plays until nothing more is to be expected, and returns what came of it."""
        self._set_up()
        if not self.settled.refused:
            for pause in SECONDS:
                self._run_slices()
                self.now_s += pause
        return self.settled

    def _set_up(self) -> None:
        self.run_load()
        unit = self.world.unit
        self._add_application(unit.application, unit.queue, unit.members)
        for member in unit.members:
            self._send(member)

    def run_load(self) -> None:
        """Has the nodes come, and everything run that runs at the beginning."""
        world = self.world
        written = json.loads(configuration(World(world.queues, world.nodes, world.running, ())))
        if world.racks:
            written["partitions"][0]["topology"] = ["rack"]
        self.engine.apply(RegisterManager("rm", json.dumps(written)), self._now_ns)
        self._apply_nodes(NodeAction.CREATE, world.nodes)
        applications = {task.application: task.queue for task, _ in world.running}
        for application, queue in applications.items():
            self._add_application(application, queue, [t for t, _ in world.running if t.application == application])
        for task, node in world.running:
            self._send(task, node)
        self._apply_nodes(NodeAction.DRAIN_NODE, [node for node in world.nodes if node.drained])

    @property
    def _now_ns(self) -> int:
        return self.now_s * SECOND

    def _apply_nodes(self, action: NodeAction, nodes: list[Node] | tuple[Node, ...]) -> None:
        specs = tuple(
            NodeSpec(
                node.name,
                action,
                PARTITION,
                attributes=(("rack", self.world.racks.get(node.name, "")), *self._report_devices(node.name)),
                capacity=_resources(node.capacity) if action is NodeAction.CREATE else None,
            )
            for node in nodes
        )
        if specs:
            self._hear(self.engine.apply(UpdateNodes("rm", specs), self._now_ns))

    def _report_devices(self, node: str) -> tuple[tuple[str, str], ...]:
        devices = self.world.unit.devices
        if devices is None or node not in devices.devices:
            return ()
        specs = [DeviceSpec(device.name, device.type, link=device.link) for device in devices.devices[node]]
        return ((DEVICES_ATTRIBUTE, write_devices(specs)),)

    def _device_tags(self, task: Task) -> tuple[tuple[str, str], ...]:
        devices = self.world.unit.devices
        if devices is None:
            return ()
        if task.key in devices.held:
            parts = devices.held[task.key][1]
            share = max(parts.values())
            wants = want_tags(count=len(parts)) if share == WHOLE else want_tags(fraction=write_share(share))
            return (*wants, (GIVEN_TAG, ",".join(parts)))
        wish = devices.wishes.get(task.key)
        if wish is None:
            return ()
        types = (wish.type,) if wish.type else ()
        fraction = write_share(wish.share) if wish.share else ""
        return want_tags(count=wish.count, fraction=fraction, linked=wish.linked, types=types)

    def _is_gang(self, application: str) -> bool:
        return application == self.world.unit.application or any(
            gang.application == application for gang in self.world.gangs
        )

    def _add_application(self, application: str, queue: str, tasks: list[Task] | tuple[Task, ...]) -> None:
        asked = _resources(gang_units.amounts_of(tasks)) if self._is_gang(application) else None
        spec = ApplicationSpec(
            application,
            queue,
            PARTITION,
            user="user",
            placeholder_ask=asked,
            gang_style="Hard" if asked is not None else "",
        )
        self._hear(self.engine.apply(UpdateApplications("rm", (spec,)), self._now_ns))

    def _send(self, task: Task, node: str = "") -> None:
        gang = gang_units.gang_of(self.world.gangs, task)
        group = ""
        if gang is not None:
            group = "team"
        elif task in self.world.unit.members:
            group = _group_of(task)
        tags: tuple[tuple[str, str], ...] = ()
        if gang is not None:
            tags = (("kornel.gangMinimum", str(gang.minimum)),)
        elif task.key in self.world.wishes:
            tags = request_tags(required="rack", slice_size=int(self.world.wishes[task.key] or 0))
        tags += self._device_tags(task)
        spec = AllocationSpec(
            task.key,
            task.application,
            PARTITION,
            _resources(task.amounts),
            priority=task.priority,
            node_id=node,
            task_group=group,
            placeholder=bool(group),
            originator=task.originator,
            allow_preempt_self=not task.opted_out,
            allow_preempt_other=task.may_preempt,
            created_s=task.created,
            tags=tags,
            topology=read_request(tags),
            devices=read_wants(tags),
        )
        self._hear(self.engine.apply(UpdateAllocations("rm", (spec,)), self._now_ns))

    def _run_slices(self) -> None:
        more = True
        while more:
            result = self.engine.cycle(self._now_ns, 1)
            self._hear(result.effects)
            more = self._let_leave() or result.more
        self._hear(self.engine.preempt(self._now_ns))
        if self._let_leave():
            self._run_slices()

    def _hear(self, effects: list[Effect]) -> None:
        placed: dict[str, str] = {}
        members = {member.key for member in self.world.unit.members}
        for effect in effects:
            match effect:
                case Allocated(spec, node, _, tags) if spec.key in members:
                    placed[spec.key] = node
                    self.settled.devices[spec.key] = tuple(filter(None, dict(tags).get(GIVEN_TAG, "").split(",")))
                case Released(_, _, key, TerminationType.PREEMPTED_BY_SCHEDULER, _):
                    self._told.append(key)
                case ApplicationRejected():
                    self.settled.refused = True
                case AllocationRejected() | NodeRejected():
                    raise AssertionError(f"unexpected: {effect}")
        if placed:
            self.settled.placed_at_once = placed.keys() == members
            self.settled.spread |= placed

    def _let_leave(self) -> bool:
        """Confirms that all who were told have left. Returns whether there were any."""
        if not self._told:
            return False
        self.settled.preempted_again |= bool(self.settled.victims)
        self.settled.victims += self._told
        tasks = {task.key: task for task, _ in self.world.running}
        gone = tuple(
            ReleaseSpec(PARTITION, tasks[key].application, key, TerminationType.PREEMPTED_BY_SCHEDULER)
            for key in self._told
        )
        self._told = []
        self._hear(self.engine.apply(UpdateAllocations("rm", releases=gone), self._now_ns))
        return True


def _resources(amounts: Amounts) -> Resources:
    return Resources(dict(amounts))
