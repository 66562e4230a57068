"""Nodes that report devices, and asks that want some: right and wrong ones."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.domain.commands import AllocationSpec, NodeAction, NodeSpec, UpdateAllocations, UpdateNodes
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, DeviceSpec, read_wants, want_tags
from tests.properties.machine.allocation_rules import free_keys, some_application, some_partition, spec_of, view_of
from tests.properties.machine.cluster import GROUPS, NODES, attributes_of, size
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import rule
from tests.properties.machine.world import RM, World
from tests.request_texts import write_devices

GIB: Final = 2**30
DEVICES: Final = (
    DeviceSpec("d0", "A", 16 * GIB, "x"),
    DeviceSpec("d1", "A", 16 * GIB, "x"),
    DeviceSpec("d2", "B", 32 * GIB, "y"),
    DeviceSpec("d3", "B", 32 * GIB, "y"),
    DeviceSpec("d4"),
)
"""All devices that there are on any node, so that a device never changes what it is."""

_WANTS: Final[tuple[dict[str, Any], ...]] = (
    {"count": 1}, {"fraction": "0.5"}, {"fraction": "0.3"}, {"count": 2, "linked": True}, {"memory": "8Gi"},
    {"count": 2}, {"count": 1, "types": ("B",)}, {"memory": "20Gi"}, {"count": 3, "linked": True}, {"count": 5},
    {"fraction": "2"},
)  # fmt: skip


def _report(dice: Dice) -> tuple[tuple[str, str], ...]:
    """All devices, or some; now and then a list that makes no sense, or an empty one."""
    if dice.one_in(12):
        return ((DEVICES_ATTRIBUTE, dice.pick(("", "[]", '[{"id":"d0"},{"id":"d0"}]', "none"))),)
    some = DEVICES if dice.one_in(2) else [device for device in DEVICES if not dice.one_in(3)]
    return ((DEVICES_ATTRIBUTE, write_devices(some)),)


def _wanting(spec: AllocationSpec, wants: dict[str, Any]) -> AllocationSpec:
    tags = (*spec.tags, *want_tags(**wants))
    return spec._replace(tags=tags, devices=read_wants(tags))


@rule(4)
def report_devices(world: World, dice: Dice) -> None:
    """Of a node that is known, or of a new one; now and then with another capacity."""
    partition = some_partition(world, dice)
    node_id = dice.pick(NODES[partition])
    report = _report(dice)
    if node_id in view_of(world, partition).nodes:
        capacity = size(4 + dice.below(12), 4 + dice.below(12)) if dice.one_in(4) else None
        spec = NodeSpec(node_id, NodeAction.UPDATE, partition, report, capacity)
    else:
        attributes = (*attributes_of(NODES[partition].index(node_id)), *report)
        spec = NodeSpec(node_id, NodeAction.CREATE, partition, attributes, size(8 + dice.below(8), 8))
    world.send(UpdateNodes(RM, (spec,)))


@rule(7)
def ask_for_devices(world: World, dice: Dice) -> None:
    """A few asks of one application, or allocations that run already."""
    partition = some_partition(world, dice)
    keys = free_keys(world, dice, partition, 4)
    application_id = some_application(world, dice, partition)
    nodes = list(view_of(world, partition).nodes)
    wants = dice.pick(_WANTS)
    specs: list[AllocationSpec] = []
    for key in keys:
        spec = _wanting(spec_of(world, dice, partition, key, application_id), wants)
        spec = spec._replace(resources=size(1 + dice.below(2), 0))
        specs.append(spec._replace(node_id=dice.pick(nodes)) if nodes and dice.one_in(6) else spec)
        if dice.one_in(3):
            wants = dice.pick(_WANTS)
    world.send(UpdateAllocations(RM, tuple(specs)))


@rule(3)
def ask_for_a_gang_with_devices(world: World, dice: Dice) -> None:
    """Placeholders of one group that want the same, and maybe real asks: with tags, without, or with other ones."""
    partition = some_partition(world, dice)
    view = view_of(world, partition)
    gangs = [name for name, app in view.applications.items() if app.spec.placeholder_ask is not None]
    keys = free_keys(world, dice, partition, 5)
    if not gangs or not keys:
        return
    application_id, group, wants = dice.pick(gangs), dice.pick(GROUPS), dice.pick(_WANTS[:6])
    member = AllocationSpec("", application_id, partition, size(2, 0), task_group=group)
    specs = []
    for key in keys:
        real = dice.one_in(3)
        spec = member._replace(key=key, placeholder=not real)
        if real and dice.one_in(2):
            specs.append(_wanting(spec, dice.pick(_WANTS)) if dice.one_in(2) else spec)
        else:
            specs.append(_wanting(spec, wants))
    world.send(UpdateAllocations(RM, tuple(specs)))
