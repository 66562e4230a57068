"""Random scenarios of shim_mock: preemption, devices, lost nodes, lost confirmations and new configurations."""

from __future__ import annotations

import json
import random
from typing import Any

from kornel.shim_client import Device, Devices
from kornel.shim_mock.queues import read_queues
from kornel.shim_mock.scenario import Application, Change, NodeGroup, PriorityClass, ReleasePolicy, Scenario, TaskGroup

CLASSES = (
    PriorityClass("high", 100),
    PriorityClass("low", 0, may_preempt=False),
    PriorityClass("plain", 0),
    PriorityClass("fixed", 0, allow_preemption=False),
)


def make_scenario(seed: int) -> Scenario:
    """Returns the scenario of *seed*: some minutes on up to eight nodes."""
    dice = random.Random(seed)
    leaves = [f"q{number}" for number in range(dice.randint(2, 4))]
    config = make_config(dice, leaves)
    changes = ()
    if dice.random() < 0.5:
        other = make_config(dice, leaves)
        changes = (Change(other, read_queues(other), at_s=float(dice.randint(5, 60))),)
    with_devices = dice.random() < 0.4
    nodes = tuple(make_nodes(dice, number, with_devices) for number in range(dice.randint(2, 4)))
    applications = tuple(make_application(dice, f"app{n}", leaves, with_devices) for n in range(dice.randint(4, 10)))
    releases = ReleasePolicy(
        delay_s=dice.choice((0.0, 0.5, 2.0)),
        loss=dice.choice((0.0, 0.3)),
        duplication=dice.choice((0.0, 0.2)),
        retry_s=1.5,
        seed=seed,
    )
    return Scenario(
        name=f"random-{seed}",
        config=config,
        queues=read_queues(config),
        nodes=nodes,
        applications=applications,
        changes=changes,
        releases=releases,
        speed=dice.choice((1.0, 10.0)),
        settle_s=3.0,
    )


def make_config(dice: random.Random, leaves: list[str]) -> str:
    """Returns a configuration in which each of *leaves* may have a guarantee and a max."""

    def make_leaf(name: str) -> dict[str, Any]:
        guaranteed = dice.randint(0, 6)
        resources: dict[str, Any] = {"guaranteed": {"vcore": guaranteed}} if guaranteed else {}
        if dice.random() < 0.3:
            resources["max"] = {"vcore": guaranteed + dice.randint(2, 8)}
        properties = {"preemption.delay": f"{dice.randint(1, 4)}s", "quota.preemption.delay": "2s"}
        if dice.random() < 0.3:
            properties["application.sort.policy"] = "fair"
        return {"name": name, "resources": resources, "properties": properties}

    root = {"name": "root", "submitacl": "*", "queues": [make_leaf(name) for name in leaves]}
    preemption: dict[str, Any] = {"quotapreemptionenabled": True}
    if dice.random() < 0.3:
        preemption["monitor"] = {"enabled": True, "interval_ms": 700, "max_wait_ms": 3000, "natural_factor": 1}
    return json.dumps({"partitions": [{"name": "default", "preemption": preemption, "queues": [root]}]})


def make_nodes(dice: random.Random, number: int, with_devices: bool) -> NodeGroup:
    """Returns up to two nodes, which may come late, be drained or be lost."""
    devices = tuple(Device(str(n), "a", link=str(n // 2)) for n in range(4)) if with_devices else ()
    at_s = dice.choice((0.0, 0.0, 4.0))
    drain_s = at_s + dice.randint(1, 40) if dice.random() < 0.3 else None
    return NodeGroup(
        name=f"n{number}",
        resources={"vcore": 1_000 * dice.randint(3, 6), "memory": 2**30},
        count=dice.randint(1, 2),
        devices=devices,
        at_s=at_s,
        drain_s=drain_s,
        restore_s=drain_s + 5 if drain_s is not None and dice.random() < 0.5 else None,
        remove_s=at_s + dice.randint(10, 60) if dice.random() < 0.3 else None,
    )


def make_application(dice: random.Random, name: str, leaves: list[str], with_devices: bool) -> Application:
    """Returns an application of one or two groups of tasks."""

    def make_group(number: int) -> TaskGroup:
        wants = Devices(count=dice.randint(1, 2)) if with_devices and dice.random() < 0.5 else None
        if wants is not None and dice.random() < 0.3:
            wants = Devices(fraction=0.5)
        return TaskGroup(
            name=f"g{number}",
            resources={"vcore": 500 * dice.randint(1, 6), "memory": 2**20},
            count=dice.randint(1, 8),
            priority_class=dice.choice(CLASSES),
            runtime_s=dice.choice((None, 3.0, dice.uniform(1, 40), dice.uniform(1, 40))),
            arrival_per_s=dice.choice((None, None, 2.0, 0.7)),
            at_s=dice.choice((0.0, 0.0, dice.uniform(0, 10))),
            originator=number == 0 and dice.random() < 0.5,
            restart=dice.random() < 0.7,
            devices=wants,
        )

    return Application(
        id=name,
        queue=f"root.{dice.choice(leaves)}",
        tasks=tuple(make_group(number) for number in range(dice.randint(1, 2))),
        user=dice.choice(("ann", "bob")),
        at_s=dice.choice((0.0, 0.0, float(dice.randint(1, 30)), dice.uniform(0, 30))),
        after_quiet=dice.random() < 0.1,
        retries=dice.choice((None, 2)),
        fail_s=dice.choice((None, None, 12.0)),
    )
