"""Random small worlds: nodes in racks, queues with guarantees, and what may happen there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kornel.shim_client import Devices, Topology
from tests.e2e.gang_judge.shim_books import Node, Queue, add_up

CORE = 1_000
LINKS = ("a", "a", "b", "b")


@dataclass
class GangDraft:
    """A gang that is about to be submitted. *groups*: the number and size of the members of each."""

    queue: str
    groups: Mapping[str, tuple[int, Mapping[str, int]]]
    hard: bool = True
    stated: int | None = None
    priority: int = 0
    survives: bool = False
    topology: Topology | None = None
    devices: Devices | None = None
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes on which the shim's predicate refuses members, by task group and number."""
    opted_out: bool = False
    preempts: bool = True
    timeout_s: int = 0
    """How long its placeholders may wait; 0: a quarter of an hour."""


class World:
    """The settings of one world, drawn from *seed*. Each draw depends on the draws before it alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Random(seed)
        dice = self.dice
        self.has_memory = dice.random() < 0.5
        self.all_levels: tuple[str, ...] = dice.choice([(), ("rack",), ("rack",), ("zone", "rack")])
        self.levels = self.all_levels
        """The levels of the present configuration."""
        self.has_devices = dice.random() < 0.25
        self.has_predicates = dice.random() < 0.25
        self.delay_s = dice.choice([0, 0, 0, 5])
        self.nodes = {node.name: node for node in (self.draw_node(f"n{at}") for at in range(dice.randint(2, 5)))}
        self.queues = self._draw_queues()

    def draw_node(self, name: str) -> Node:
        dice = self.dice
        capacity = {"vcore": dice.randint(3, 8) * CORE} | ({"memory": dice.randint(4, 12)} if self.has_memory else {})
        rack = dice.choice(["r1", "r2", "r2", "r3"])
        zone = "z2" if rack == "r3" else "z1"
        places = {"zone": zone, "rack": rack}
        if dice.random() < 0.05:
            places["rack"] = ""
        count = dice.choice([0, 1, 2, 4]) if self.has_devices else 0
        devices = {str(at): LINKS[at] if dice.random() < 0.8 else "" for at in range(count)}
        return Node(name, capacity, tuple(places[level] for level in self.all_levels), devices)

    def _draw_queues(self) -> dict[str, Queue]:
        dice = self.dice
        names = ["root.a", "root.v"]
        if dice.random() < 0.5:
            names.append("root.w")
        if dice.random() < 0.4:
            names += ["root.p", "root.p.x", "root.p.y"]
        queues = {name: Queue() for name in names}
        for name in names:
            self.redraw_queue(queues, name)
        return queues

    def redraw_queue(self, queues: dict[str, Queue], name: str) -> None:
        """Gives the queue *name* other limits, as far as a configuration may have them."""
        dice = self.dice
        total = add_up(node.capacity for node in self.nodes.values())
        guaranteed, maximum = {}, {}
        chance = {"root.a": 1.0, "root.v": 0.3}.get(name, 0.6)
        for kind, amount in total.items():
            unit = CORE if kind == "vcore" else 1
            if dice.random() < chance * (1 if kind == "vcore" else 0.5):
                share = dice.choice([0.5, 0.8, 1.0] if name == "root.a" else [0.1, 0.2, 0.4, 0.6])
                guaranteed[kind] = max(1, round(amount * share / unit)) * unit
            if dice.random() < 0.15:
                maximum[kind] = max(1, round(amount * dice.choice([0.4, 0.6, 0.9]) / unit)) * unit
        before = queues[name]
        queues[name] = Queue(
            guaranteed, maximum, name == "root.p" and dice.random() < 0.3, name != "root.a" and dice.random() < 0.06
        )
        if not _is_valid(queues):
            queues[name] = before

    def draw_size(self, most: int = 4) -> dict[str, int]:
        dice = self.dice
        size = {"vcore": dice.randint(1, most) * CORE}
        if self.has_memory and dice.random() < 0.8:
            size["memory"] = dice.randint(1, 5)
        return size

    def draw_leaf(self, *, gang: bool) -> str:
        """Returns the queue of new work. Gangs are mostly in the one that is owed most, and other work elsewhere."""
        leaves = [name for name in self.queues if name not in ("root.p", "root.a")]
        return "root.a" if self.dice.random() < (0.7 if gang else 0.15) else self.dice.choice(leaves)

    def draw_devices(self) -> Devices | None:
        dice = self.dice
        if not self.has_devices or dice.random() < 0.4:
            return None
        if dice.random() < 0.5:
            return Devices(fraction=dice.choice([0.25, 0.5, 0.6]))
        count = dice.choice([1, 1, 2])
        return Devices(count=count, linked=count > 1 and dice.random() < 0.5)

    def draw_topology(self) -> Topology | None:
        dice = self.dice
        if not self.levels or dice.random() < 0.4:
            return None
        level = dice.choice(self.levels)
        kind = dice.choice(["required", "required", "preferred", "spread"])
        size = dice.choice([0, 0, 2]) if kind == "required" else 0
        return Topology(**{kind: level}, slice_size=size)  # type: ignore[arg-type]

    def draw_gang(self, *, elsewhere: bool) -> GangDraft:
        dice = self.dice
        groups = {}
        for at in range(dice.choice([1, 1, 1, 2, 3])):
            groups["abc"[at]] = (dice.randint(1, 4 if at == 0 else 2), self.draw_size(3))
        counts = [count for count, _ in groups.values()]
        stated = dice.randint(1, min(counts)) if dice.random() < 0.3 else None
        refused = {}
        if self.has_predicates and stated is None and dice.random() < 0.6:
            for group, (count, _) in groups.items():
                for number in range(count):
                    if dice.random() < 0.3:
                        names = sorted(self.nodes)
                        refused[f"{group}{number}"] = tuple(dice.sample(names, dice.randint(1, len(names) - 1)))
        return GangDraft(
            self.draw_leaf(gang=not elsewhere), groups, dice.random() < 0.8, stated, dice.choice([0, 0, 0, 1, -1]),
            dice.random() < 0.1, self.draw_topology(), self.draw_devices(), refused, dice.random() < 0.1,
            dice.random() > 0.07, 45 if dice.random() < 0.12 else 0,
        )  # fmt: skip


def configure(levels: tuple[str, ...], queues: Mapping[str, Queue], delay_s: int) -> str:
    """Returns the configuration of such queues."""

    def build(name: str) -> dict[str, Any]:
        queue = queues[name]
        entry: dict[str, Any] = {"name": name.rpartition(".")[2], "properties": {"preemption.delay": f"{delay_s}s"}}
        if queue.fence:
            entry["properties"]["preemption.policy"] = "fence"
        elif queue.disabled or name.startswith("root.p."):
            entry["properties"]["preemption.policy"] = "disabled" if queue.disabled else "default"
        resources = {
            key: {kind: _write(kind, amount) for kind, amount in amounts.items()}
            for key, amounts in (("guaranteed", queue.guaranteed), ("max", queue.maximum))
            if amounts
        }
        if resources:
            entry["resources"] = resources
        children = [each for each in queues if each.rpartition(".")[0] == name]
        if children:
            entry["queues"] = [build(child) for child in children]
        return entry

    root = {
        "name": "root",
        "submitacl": "*",
        "queues": [build(name) for name in queues if name.count(".") == 1],
    }
    partition: dict[str, Any] = {
        "name": "default",
        "queues": [root],
        "preemption": {"governor": {"loop": {"window_ms": 1000, "returns": 1000}}},
    }
    if levels:
        partition["topology"] = list(levels)
    return json.dumps({"partitions": [partition]})


def _write(kind: str, amount: int) -> str:
    return f"{amount}m" if kind == "vcore" else str(amount)


def _is_valid(queues: Mapping[str, Queue]) -> bool:
    """Tells whether guarantees are within maxima and within those of the queues above."""
    for name, queue in queues.items():
        children = [each for other, each in queues.items() if other.rpartition(".")[0] == name]
        above = queues.get(name.rpartition(".")[0], Queue())
        wanted = add_up(child.guaranteed for child in children)
        for kind in wanted.keys() | queue.guaranteed.keys() | queue.maximum.keys():
            bounds = [each.maximum[kind] for each in (queue, above) if kind in each.maximum]
            if any(max(queue.guaranteed.get(kind, 0), wanted.get(kind, 0)) > bound for bound in bounds):
                return False
            if kind in queue.guaranteed and wanted.get(kind, 0) > queue.guaranteed[kind]:
                return False
            if kind in above.maximum and queue.maximum.get(kind, 0) > above.maximum[kind]:
                return False
    return True
