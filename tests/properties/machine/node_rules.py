"""What happens to nodes, and to load of other schedulers on them."""

from __future__ import annotations

from kornel.core.domain.commands import (
    AllocationSpec,
    NodeAction,
    NodeSpec,
    PreemptByHand,
    PreemptTarget,
    ReleaseSpec,
    SetOperatorDrain,
    UpdateAllocations,
    UpdateNodes,
    Waivable,
)
from kornel.core.domain.resources import Resources
from tests.properties.machine.allocation_rules import some_partition, spec_of
from tests.properties.machine.cluster import APPLICATIONS, FOREIGN_KEYS, KEYS, NODES, NOWHERE, attributes_of, size
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import rule
from tests.properties.machine.world import RM, World


def _capacity(dice: Dice) -> Resources | None:
    if dice.one_in(20):
        return dice.pick((None, Resources(), Resources({"vcore": 0}), size(-1, 4)))
    return size(4 + dice.below(12), 4 + dice.below(12), dice.below(3))


def _send(world: World, *nodes: NodeSpec) -> None:
    world.send(UpdateNodes(RM, nodes))


@rule(5)
def create_node(world: World, dice: Dice) -> None:
    """Known or new, open or draining, with load of others on it or not."""
    partition = some_partition(world, dice)
    action = NodeAction.CREATE_DRAIN if dice.one_in(4) else NodeAction.CREATE
    node_id = "" if dice.one_in(40) else dice.pick(NODES[partition])
    occupied = size(dice.below(4), dice.below(4) - (3 if dice.one_in(10) else 0)) if dice.one_in(6) else None
    target = NOWHERE if dice.one_in(40) else partition
    place = NODES[partition].index(node_id) if node_id else 0
    _send(world, NodeSpec(node_id, action, target, attributes_of(place), capacity=_capacity(dice), occupied=occupied))


@rule(2)
def create_node_with_allocations(world: World, dice: Dice) -> None:
    """G2: what runs on the node comes with it, and one bad entry refuses the whole node."""
    partition = some_partition(world, dice)
    existing = tuple(
        spec_of(world, dice, partition, dice.pick(KEYS[partition]), dice.pick(APPLICATIONS[partition]))
        for _ in range(1 + dice.below(3))
    )
    _send(
        world, NodeSpec(dice.pick(NODES[partition]), NodeAction.CREATE, partition, (), _capacity(dice), None, existing)
    )


@rule(4)
def update_node(world: World, dice: Dice) -> None:
    partition = some_partition(world, dice)
    occupied = size(dice.below(6), dice.below(6)) if dice.one_in(4) else None
    node_id = dice.pick(NODES[partition])
    _send(world, NodeSpec(node_id, NodeAction.UPDATE, partition, capacity=_capacity(dice), occupied=occupied))


@rule(2)
def move_node(world: World, dice: Dice) -> None:
    """To another rack or zone, out of one, or not at all; now and then with another capacity."""
    partition = some_partition(world, dice)
    capacity = _capacity(dice) if dice.one_in(4) else None
    attributes = attributes_of(dice.below(9))[dice.below(3) :]
    _send(world, NodeSpec(dice.pick(NODES[partition]), NodeAction.UPDATE, partition, attributes, capacity))


@rule(6)
def drain_or_open_nodes(world: World, dice: Dice) -> None:
    """One to three entries in one request, known nodes or not; numbers that are no action are ignored."""
    partition = some_partition(world, dice)
    opened, drained = NodeAction.DRAIN_TO_SCHEDULABLE, NodeAction.DRAIN_NODE
    actions = (opened, drained, opened, opened, drained, NodeAction.UNKNOWN, 77)
    picked = [(dice.pick(NODES[partition]), dice.pick(actions)) for _ in range(1 + dice.below(3))]
    _send(world, *(NodeSpec(node_id, action, partition) for node_id, action in picked))


@rule(1)
def drain_by_operator(world: World, dice: Dice) -> None:
    """Or no longer; of known nodes and others."""
    partition = NOWHERE if dice.one_in(40) else some_partition(world, dice)
    node_id = dice.pick(NODES.get(partition, ("n1",)))
    world.send(SetOperatorDrain(RM, partition, node_id, drained=dice.one_in(3), by="ops"))


@rule(1)
def preempt_by_hand(world: World, dice: Dice) -> None:
    """What runs on a node, drained or not, with all laws or none."""
    partition = some_partition(world, dice)
    node_id = dice.pick(NODES.get(partition, ("n1",)))
    waived = () if dice.one_in(2) else tuple(map(str, Waivable))
    world.send(PreemptByHand(RM, partition, PreemptTarget.NODE, node_id, None, waived, "chance", "ops"))


@rule(2)
def decommission_node(world: World, dice: Dice) -> None:
    partition = some_partition(world, dice)
    _send(world, NodeSpec(dice.pick(NODES[partition]), NodeAction.DECOMISSION, partition))


@rule(4)
def foreign_load(world: World, dice: Dice) -> None:
    """New, resized or moved; now and then without a node, on an unknown one, or negative."""
    partition = some_partition(world, dice)
    node_id = dice.pick(("", "nowhere")) if dice.one_in(12) else dice.pick(NODES[partition])
    amounts = dice.pick((None, size(-1, 1))) if dice.one_in(12) else size(dice.below(6), dice.below(4))
    kind = dice.pick(("default", "static"))
    spec = AllocationSpec(dice.pick(FOREIGN_KEYS), "", partition, amounts, node_id=node_id, foreign=kind)
    world.send(UpdateAllocations(RM, (spec,)))


@rule(3)
def foreign_load_ends(world: World, dice: Dice) -> None:
    partition = some_partition(world, dice)
    release = ReleaseSpec(partition, "", dice.pick((*FOREIGN_KEYS, "", "unknown")), dice.below(7))
    world.send(UpdateAllocations(RM, releases=(release,)))
