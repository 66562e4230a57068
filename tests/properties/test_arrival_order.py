"""Commands that have nothing to do with each other may arrive in any order: the totals are the same."""

from __future__ import annotations

import random
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    Command,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.resources import Resources
from tests.examples import scale_examples
from tests.properties.machine.cluster import DEFAULT, LEAVES, configuration, size
from tests.properties.machine.dice import Dice
from tests.properties.machine.world import RM, World

LIVE: Final = tuple(f"live{number}" for number in range(6))
NODES: Final = tuple(f"n{number}" for number in range(4))
ROOMY: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: p, queues: [{name: a}, {name: b, properties: {application.sort.policy: fair}}]}
          - {name: q}
          - {name: r}
"""
Totals = dict[str, object]


def _world(config: str, room: int) -> World:
    """Nodes of *room* cores and live applications, each of which runs one thing and waits for another."""
    world = World()
    world.send(RegisterManager(RM, config))
    nodes = (NodeSpec(name, NodeAction.CREATE, DEFAULT, capacity=size(room, room)) for name in NODES)
    world.send(UpdateNodes(RM, tuple(nodes)))
    for number, name in enumerate(LIVE):
        queue = LEAVES[number % 4]
        world.send(UpdateApplications(RM, (ApplicationSpec(name, queue, DEFAULT, user="alice"),)))
        world.send(UpdateAllocations(RM, (AllocationSpec(f"r-{name}", name, DEFAULT, size(2, 1), node_id=NODES[0]),)))
        world.send(UpdateAllocations(RM, (AllocationSpec(f"w-{name}", name, DEFAULT, size(1, 1)),)))
    return world


def _batch(dice: Dice) -> list[Command]:
    """At most one command about each application, node and foreign load."""
    batch: list[Command] = []
    for name in LIVE:
        asks = tuple(AllocationSpec(f"{name}-{i}", name, DEFAULT, size(1 + dice.below(4), i)) for i in range(3))
        specs: tuple[Command, ...] = (
            UpdateAllocations(RM, asks),
            UpdateAllocations(RM, tuple(ask._replace(node_id=NODES[1]) for ask in asks)),
            UpdateAllocations(RM, (AllocationSpec(f"w-{name}", name, DEFAULT, size(3, 3)),)),
            UpdateAllocations(RM, (AllocationSpec(f"r-{name}", name, DEFAULT, size(3, 3)),)),
            UpdateAllocations(RM, releases=(ReleaseSpec(DEFAULT, name, dice.pick((f"r-{name}", f"w-{name}", ""))),)),
        )
        batch.append(dice.pick(specs))
    for number, name in enumerate(("fresh0", "fresh1")):
        batch.append(UpdateApplications(RM, (ApplicationSpec(name, LEAVES[number], DEFAULT, user="bob"),)))
    for name in NODES[2:]:
        action = dice.pick((NodeAction.UPDATE, NodeAction.DRAIN_NODE))
        batch.append(UpdateNodes(RM, (NodeSpec(name, action, DEFAULT, capacity=size(30, 30)),)))
    batch.append(UpdateNodes(RM, (NodeSpec("new", NodeAction.CREATE, DEFAULT, capacity=size(40, 40, 2)),)))
    load = AllocationSpec("f", "", DEFAULT, Resources({"vcore": 2, "other": 1}), node_id=NODES[0], foreign="static")
    batch.append(UpdateAllocations(RM, (load,)))
    return batch


def _totals(world: World) -> Totals:
    """What every queue uses and waits for, what every application holds, what every node has; not who is where."""
    state = world.engine.partition(DEFAULT)
    assert state is not None
    resources = state.types.to_resources
    return {
        "queues": {path: (resources(q.used), resources(q.pending), q.waiting) for path, q in state.queues.items()},
        "priorities": {path: queue.priority for path, queue in state.queues.items()},
        "applications": {
            name: (str(app.state), resources(app.real), resources(app.pending))
            for name, app in state.applications.items()
        },
        "nodes": {name: (resources(n.capacity), resources(n.occupied)) for name, n in state.nodes.items()},
        "root": resources(state.root.max),
    }


@settings(max_examples=scale_examples(60), deadline=None)
@given(st.integers(0, 95), st.lists(st.integers(0, 999), max_size=40), st.integers(0, 2**32))
def test_totals_do_not_depend_on_the_order_of_arrival(variant: int, numbers: list[int], seed: int) -> None:
    """One batch in two orders: the same totals before anything is decided, whether there is room or not."""
    totals: list[Totals] = []
    for shuffled in (False, True):
        world = _world(configuration(variant), room=6)
        batch = _batch(Dice.of(numbers))
        if shuffled:
            random.Random(seed).shuffle(batch)
        for command in batch:
            world.send(command)
        totals.append(_totals(world))
    assert totals[0] == totals[1]


@settings(max_examples=scale_examples(40), deadline=None)
@given(st.lists(st.integers(0, 999), max_size=40), st.integers(0, 2**32))
def test_with_room_for_all_the_outcome_is_the_same_too(numbers: list[int], seed: int) -> None:
    """Where nobody has to wait for anybody, all orders end with the same things running."""
    totals: list[Totals] = []
    for shuffled in (False, True):
        world = _world(ROOMY, room=100)
        batch = _batch(Dice.of(numbers))
        if shuffled:
            random.Random(seed).shuffle(batch)
        for command in batch:
            world.send(command)
        world.settle()
        totals.append(_totals(world))
    assert totals[0] == totals[1]
