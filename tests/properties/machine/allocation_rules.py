"""Asks, recovered allocations, placements by the shim, new sizes: right and wrong ones."""

from __future__ import annotations

from typing import Any

from kornel.core.domain.commands import AllocationSpec, ApplicationSpec, UpdateAllocations, UpdateApplications
from kornel.core.domain.devices import read_wants
from kornel.core.domain.gangs import MINIMUM_TAG, SURVIVES_TAG
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import read_request
from tests.properties.machine.cluster import APPLICATIONS, DEFAULT, GPU, GROUPS, KEYS, NODES, NOWHERE, size
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import rule
from tests.properties.machine.view import PartitionView, RequestView
from tests.properties.machine.world import RM, SECOND, World
from tests.request_texts import request_tags

_PRIORITIES = (0, 1, 2, -1, 2**31 - 1, -(2**31))


def some_partition(world: World, dice: Dice) -> str:
    """The default partition, rarely the other one, whether it exists or not."""
    return GPU if dice.one_in(10) else DEFAULT


def view_of(world: World, partition: str) -> PartitionView:
    return world.contract.partitions.get(partition) or PartitionView()


def free_keys(world: World, dice: Dice, partition: str, most: int) -> list[str]:
    """Up to *most* keys that name nothing now."""
    taken = {request.key for request in view_of(world, partition).requests.values()}
    return [key for key in KEYS[partition] if key not in taken][: 1 + dice.below(most)]


def some_application(world: World, dice: Dice, partition: str) -> str:
    live = list(view_of(world, partition).applications)
    return dice.pick(live) if live else APPLICATIONS[partition][0]


def some_request(
    world: World, dice: Dice, partition: str, *, placed: bool | None = None, leaves_as: bool | None = None
) -> RequestView | None:
    """One the shim knows of: *placed* or pending, told to leave or not."""
    found = [
        request
        for request in view_of(world, partition).requests.values()
        if (placed is None or bool(request.node) == placed)
        and (leaves_as is None or (request.leaves_as is not None) == leaves_as)
    ]
    return dice.pick(found) if found else None


def spec_of(world: World, dice: Dice, partition: str, key: str, application_id: str) -> AllocationSpec:
    """An ask with any fields, without a node."""
    group = dice.pick(GROUPS) if dice.one_in(4) else ""
    return AllocationSpec(
        key,
        application_id,
        partition,
        size(1 + dice.below(5), dice.below(4), int(dice.one_in(12))),
        priority=dice.pick(_PRIORITIES[:3]) if not dice.one_in(10) else dice.pick(_PRIORITIES),
        task_group=group,
        placeholder=bool(group) and dice.one_in(2),
        originator=dice.one_in(5),
        allow_preempt_self=not dice.one_in(3),
        allow_preempt_other=not dice.one_in(3),
        created_s=world.now_ns // SECOND - dice.below(5) if dice.one_in(3) else None,
        required_node=dice.pick((*NODES[partition], "nowhere")) if dice.one_in(20) else "",
        tags=(("note", "x"),) if dice.one_in(10) else (),
    )


def _sendable(spec: AllocationSpec) -> AllocationSpec:
    """*spec* in a message that has its fields: an ask of the older generation names no node, and tags say what is
    wanted of devices."""
    spec = spec._replace(devices=read_wants(spec.tags))
    return spec._replace(legacy=False, max_allocations=1) if spec.node_id else spec


def _specs(world: World, dice: Dice, partition: str, keys: list[str]) -> tuple[AllocationSpec, ...]:
    application_id = some_application(world, dice, partition)
    return tuple(spec_of(world, dice, partition, key, application_id) for key in keys)


def _as_sent(request: RequestView) -> AllocationSpec:
    """Returns the spec of *request* as it is read from a message with its tags: what runs keeps what it wants of
    devices, whatever the tags say."""
    return request.spec._replace(devices=read_wants(request.spec.tags))


@rule(24)
def ask(world: World, dice: Dice) -> None:
    """A few asks of one application in one request, equal or each its own way."""
    partition = some_partition(world, dice)
    keys = free_keys(world, dice, partition, 5)
    if not keys:
        return
    specs = _specs(world, dice, partition, keys)
    if not dice.one_in(3):
        specs = tuple(specs[0]._replace(key=key) for key in keys)
    world.send(UpdateAllocations(RM, specs))


@rule(9)
def ask_for_a_gang(world: World, dice: Dice) -> None:
    """Placeholders of one group, and maybe real asks of the group: as large, smaller or larger, before or after."""
    partition = some_partition(world, dice)
    view = view_of(world, partition)
    gangs = [name for name, app in view.applications.items() if app.spec.placeholder_ask is not None]
    keys = free_keys(world, dice, partition, 5)
    if not gangs or not keys:
        return
    application_id, group = dice.pick(gangs), dice.pick(GROUPS)
    member = size(2, 2 * dice.below(2))
    sizes = (member, size(1, 0), size(3, 1))
    legacy, each = (True, 1 + dice.below(3)) if dice.one_in(4) else (False, 1)
    placeholder = AllocationSpec(
        "", application_id, partition, member, task_group=group, placeholder=True, legacy=legacy, max_allocations=each
    )
    specs = tuple(
        placeholder._replace(key=key)
        if not dice.one_in(3)
        else AllocationSpec(key, application_id, partition, dice.pick(sizes), task_group=group)
        for key in keys
    )
    world.send(UpdateAllocations(RM, specs))


_PLACES = (
    request_tags(required="rack"), request_tags(required="zone"), request_tags(required="rack", slice_size=2),
)  # fmt: skip
"""What members of gangs may require that the topology has, in some configurations."""


@rule(8)
def ask_for_a_gang_that_is_owed(world: World, dice: Dice) -> None:
    """A hard gang in a queue with a guarantee, all members at once and old enough to preempt, of one size or two."""
    view = view_of(world, DEFAULT)
    keys = free_keys(world, dice, DEFAULT, 5)
    names = [name for name in APPLICATIONS[DEFAULT] if name not in view.applications]
    if not names or not keys:
        return
    name = dice.pick(names)
    first, second = size(1 + dice.below(3), dice.below(2)), size(1 + dice.below(4), dice.below(2))
    sizes = [second if dice.one_in(4) else first for _ in keys]
    total = Resources()
    for each in sizes:
        total = Resources({t: total.get(t, 0) + each.get(t, 0) for t in {*total, *each}})
    style = "Hard" if not dice.one_in(8) else "Soft"
    queue = dice.pick(("root.p.a", "root.q", "root.p.a", "root.p.b", "root.r"))
    tags: tuple[tuple[str, str], ...] = dice.pick(((), (), *_PLACES))
    if dice.one_in(5):
        tags = (*tags, (MINIMUM_TAG, str(1 + dice.below(len(keys)))))
    survives = ((SURVIVES_TAG, "true"),) if dice.one_in(10) else ()
    spec = ApplicationSpec(name, queue, DEFAULT, user="alice", tags=survives, placeholder_ask=total, gang_style=style)
    world.send(UpdateApplications(RM, (spec,)))
    before = world.now_ns // SECOND - 10
    asks = tuple(
        AllocationSpec(
            key, name, DEFAULT, each, task_group=GROUPS[each is second], placeholder=True, created_s=before,
            allow_preempt_other=not dice.one_in(20), priority=int(dice.one_in(8)), tags=tags,
            topology=read_request(tags),
        )
        for key, each in zip(keys, sizes, strict=True)
    )  # fmt: skip
    world.send(UpdateAllocations(RM, asks))


@rule(6)
def fill_what_is_owed_to_others(world: World, dice: Dice) -> None:
    """Small tasks in a queue without a guarantee, which may have to go for others."""
    view = view_of(world, DEFAULT)
    held = [name for name, app in view.applications.items() if app.spec.queue in ("root.r", "root.p.b")]
    keys = free_keys(world, dice, DEFAULT, 10)
    if not held or not keys:
        return
    spec = AllocationSpec("", dice.pick(held), DEFAULT, size(1 + dice.below(3), dice.below(2)))
    world.send(UpdateAllocations(RM, tuple(spec._replace(key=key) for key in keys)))


_WISHES = (
    request_tags(required="rack"), request_tags(required="zone"), request_tags(required="rack", slice_size=2),
    request_tags(preferred="rack"), request_tags(spread="rack"), request_tags(required="row"),
    request_tags(slice_size=2),
)  # fmt: skip
"""What the tags of asks say about the topology; the last two are wrong."""


@rule(6)
def ask_for_a_place_together(world: World, dice: Dice) -> None:
    """Equal asks that are to stand together or apart: placeholders of a gang, or asks of any application."""
    partition = some_partition(world, dice)
    keys = free_keys(world, dice, partition, 5)
    if not keys:
        return
    group, tags = dice.pick(("", *GROUPS)), dice.pick(_WISHES)
    spec = AllocationSpec(
        "",
        some_application(world, dice, partition),
        partition,
        size(1 + dice.below(3), dice.below(3)),
        task_group=group,
        placeholder=bool(group) and not dice.one_in(4),
        allow_preempt_other=dice.one_in(2),
        tags=tags,
        topology=read_request(tags),
    )
    world.send(UpdateAllocations(RM, tuple(spec._replace(key=key) for key in keys)))


@rule(4)
def ask_the_older_way(world: World, dice: Dice) -> None:
    """G2 asks, with counts right and wrong."""
    partition = some_partition(world, dice)
    keys = free_keys(world, dice, partition, 2)
    specs = _specs(world, dice, partition, keys)
    counts = (1, 3, 2, 1, 5, 0, -1, 10_001)
    legacy = tuple(spec._replace(legacy=True, max_allocations=dice.pick(counts)) for spec in specs)
    world.send(UpdateAllocations(RM, legacy))


@rule(4)
def ask_the_older_way_again(world: World, dice: Dice) -> None:
    """A key that is known is to have more allocations, fewer, or as many, in the same words or in others."""
    partition = some_partition(world, dice)
    request = some_request(world, dice, partition)
    if request is None:
        return
    spec = _as_sent(request)._replace(legacy=True, max_allocations=1 + dice.below(5), instance=0)
    if dice.one_in(3):
        spec = spec_of(world, dice, partition, spec.key, spec.application_id)._replace(
            legacy=True, max_allocations=spec.max_allocations
        )
    world.send(UpdateAllocations(RM, (spec,)))


@rule(4)
def ask_wrongly(world: World, dice: Dice) -> None:
    """Entries that are refused, among entries that are not."""
    partition = some_partition(world, dice)
    keys = free_keys(world, dice, partition, 4)
    specs = list(_specs(world, dice, partition, keys))
    faults: tuple[dict[str, Any], ...] = (
        {"application_id": "nobody"}, {"key": ""}, {"resources": None}, {"resources": Resources()},
        {"resources": Resources({"vcore": 0})}, {"resources": size(-1, 1)}, {"partition": NOWHERE},
        {"node_id": "nowhere"}, {"task_group": "", "placeholder": True},
        {"partition": GPU if partition == DEFAULT else DEFAULT},
    )  # fmt: skip
    for at, spec in enumerate(specs):
        if not dice.one_in(3):
            specs[at] = spec._replace(**dice.pick(faults))
    world.send(UpdateAllocations(RM, tuple(specs)))


@rule(3)
def ask_again(world: World, dice: Dice) -> None:
    """A key that is known: with the same words, with others, or in another application's name."""
    partition = some_partition(world, dice)
    request = some_request(world, dice, partition)
    if request is None:
        return
    spec = _as_sent(request)._replace(node_id=request.node, resources=request.size)
    changes: tuple[dict[str, Any], ...] = (
        {}, {"node_id": ""}, {"priority": 9}, {"originator": True}, {"priority": -(2**31)},
        {"allow_preempt_self": False, "tags": (("note", "y"),), "topology": None}, {"allow_preempt_other": True},
        {"task_group": "g9"},
        {"required_node": dice.pick(NODES[partition])}, {"task_group": GROUPS[0], "placeholder": True},
        {"application_id": some_application(world, dice, partition)},
    )  # fmt: skip
    world.send(UpdateAllocations(RM, (_sendable(spec._replace(**dice.pick(changes))),)))


@rule(4)
def resize(world: World, dice: Dice) -> None:
    """A pending ask or an allocation, larger or smaller, with a type more or less."""
    request = some_request(world, dice, partition := some_partition(world, dice))
    if request is None:
        return
    node_id = "" if dice.one_in(2) else request.node
    larger = size(1 + dice.below(7), dice.below(4), int(dice.one_in(6)))
    spec = _as_sent(request)._replace(node_id=node_id, resources=larger, partition=partition)
    world.send(UpdateAllocations(RM, (_sendable(spec),)))


@rule(5)
def recover(world: World, dice: Dice) -> None:
    """Allocations that run already, whether there is room or not."""
    partition = some_partition(world, dice)
    keys = free_keys(world, dice, partition, 3)
    nodes = list(view_of(world, partition).nodes)
    if keys and nodes:
        specs = _specs(world, dice, partition, keys)
        instances = (0, 0, 0, 0, 0, 0, 1, 2)
        running = (spec._replace(node_id=dice.pick(nodes), instance=dice.pick(instances)) for spec in specs)
        world.send(UpdateAllocations(RM, tuple(running)))


@rule(3)
def place_by_hand(world: World, dice: Dice) -> None:
    """The shim binds a pending ask itself, in its own size or another."""
    partition = some_partition(world, dice)
    request = some_request(world, dice, partition, placed=False)
    nodes = list(view_of(world, partition).nodes)
    if request is None or not nodes:
        return
    amounts = size(1 + dice.below(5), 1) if dice.one_in(4) else request.size
    spec = _as_sent(request)._replace(node_id=dice.pick(nodes), resources=amounts)
    world.send(UpdateAllocations(RM, (_sendable(spec),)))
