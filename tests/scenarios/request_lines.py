"""The lines of a scenario about nodes and applications, as entries of requests."""

from __future__ import annotations

from typing import Final

from kornel.core.domain.commands import ApplicationSpec, NodeAction, NodeSpec
from kornel.core.domain.devices import (
    COUNT_TAG,
    DEVICES_ATTRIBUTE,
    FRACTION_TAG,
    GIVEN_TAG,
    MEMORY_TAG,
    DeviceSpec,
    want_tags,
)
from kornel.core.domain.names import full_partition_name
from kornel.core.domain.resources import Resources
from kornel.core.service.wire.scheduler_wire import APPLICATION_TIME_TAG, creation_time
from tests.request_texts import write_devices
from tests.scenarios.language import RM, Line, time_ns

ALLOCATIONS: Final = frozenset({"ask", "run", "resize-ask", "foreign", "existing"})
NODE_ACTIONS: Final = {
    "node": NodeAction.CREATE,
    "resize": NodeAction.UPDATE,
    "drain": NodeAction.DRAIN_NODE,
    "undrain": NodeAction.DRAIN_TO_SCHEDULABLE,
    "decommission": NodeAction.DECOMISSION,
}
RELEASES: Final = frozenset({"release", "release-foreign", "withdraw"})
REQUESTS: Final = frozenset({*ALLOCATIONS, *NODE_ACTIONS, *RELEASES, "app", "remove-app"})


def partition_of(line: Line) -> str:
    return full_partition_name(RM, line.options.get("partition", ""))


def make_node(line: Line) -> NodeSpec:
    action: int = NODE_ACTIONS[line.directive]
    if line.flag("draining"):
        action = NodeAction.CREATE_DRAIN
    default = Resources({"vcore": 10_000, "memory": 10}) if line.directive == "node" else None
    return NodeSpec(
        node_id="" if line.name == "-" else line.name,
        action=int(line.options.get("action", action)),
        partition=partition_of(line),
        attributes=(
            *((key.removeprefix("attr."), value) for key, value in line.options.items() if key.startswith("attr.")),
            *(((DEVICES_ATTRIBUTE, devices_of(line.options["devices"])),) if "devices" in line.options else ()),
        ),
        capacity=line.resources(default),
        occupied=line.amounts("occupied"),
    )


def topology_tags(text: str) -> tuple[tuple[str, str], ...]:
    """The tags that ``required:rack:4`` stands for."""
    wish, _, rest = text.partition(":")
    level, _, size = rest.partition(":")
    tags = ((f"kornel.topology.{wish}", level),) if text else ()
    return (*tags, ("kornel.topology.sliceSize", size)) if size else tags


def devices_of(text: str) -> str:
    """The list of devices that ``g0:A100:80Gi:link,g1`` stands for."""
    devices = []
    for entry in filter(None, text.strip("-").split(",")):
        name, kind, memory, link, *_ = *entry.split(":"), "", "", ""
        devices.append(DeviceSpec(name, kind, int(memory.removesuffix("Gi") or 0) * 2**30, link))
    return write_devices(devices)


def device_tags(want: str, held: str) -> tuple[tuple[str, str], ...]:
    """The tags that ``2,same`` or ``0.25`` stand for, and the devices that an allocation holds."""
    amount, *more = want.split(",")
    types = [word for word in more if word != "same"]
    tag = FRACTION_TAG if "." in amount else MEMORY_TAG if amount.endswith("i") else COUNT_TAG
    tags = ((tag, amount), *want_tags(linked="same" in more, types=types)) if want else ()
    return (*tags, (GIVEN_TAG, held)) if held else tags


def make_application(line: Line) -> ApplicationSpec:
    options = line.options
    tags = [(key.removeprefix("tag."), value) for key, value in options.items() if key.startswith("tag.")]
    if line.flag("force"):
        tags.append(("application.create.force", "true"))
    return ApplicationSpec(
        application_id="" if line.name == "-" else line.name,
        queue=options.get("queue", "root.a"),
        partition=partition_of(line),
        user=options.get("user", "user"),
        groups=tuple(options["groups"].split(",")) if "groups" in options else (),
        tags=tuple(tags),
        placeholder_timeout_ms=time_ns(options.get("timeout", "0s")) // 10**6,
        placeholder_ask=line.amounts("gang"),
        gang_style=options.get("style", ""),
        created_s=creation_time(tags, APPLICATION_TIME_TAG),
    )
