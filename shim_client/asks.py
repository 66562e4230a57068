"""Asks and resources in one form, and their conversion to the messages of each generation of the interface.

G3 has one message for asks and allocations. G2 has a separate message for asks and a separate list for their releases,
and names an allocation by an ID that the core derives from the key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from kornel.si.v1 import si_pb2 as si

AllocationEntry: TypeAlias = si.Allocation | si.AllocationAsk | si.AllocationAskRelease | si.AllocationRelease
"""One entry of an ``AllocationRequest``."""


class Generation(StrEnum):
    """The generation of the scheduler interface that a shim speaks."""

    G2 = "g2"
    """Interface releases 1.1 to 1.5: there is a separate message for asks."""
    G3 = "g3"
    """Interface releases since 1.6: one message for asks and allocations."""


def resource(amounts: Mapping[str, int]) -> si.Resource:
    """Returns the wire message for *amounts*, which are in base units: vcore in thousandths of a core, memory in
    bytes."""
    message = si.Resource()
    for name, amount in amounts.items():
        message.resources[name].value = amount
    return message


def amounts(message: si.Resource) -> dict[str, int]:
    """Returns the amounts of a wire resource, in base units. A type that the message lacks is missing from the result
    too."""
    return {name: quantity.value for name, quantity in message.resources.items()}


@dataclass(frozen=True, slots=True)
class Topology:
    """The requirements of a task group on its place in the topology of the partition. All asks of the group carry the
    same ones.

    Exactly one of three fields names a level: *required* (all members run in one domain of this level, or wait),
    *preferred* (the members run in as few domains as possible) or *spread* (the members are placed in the domains in
    turn). *slice_size* is the number of members that stay together; with 0 it is all of them, or with *spread* each
    member alone.
    """

    required: str = ""
    preferred: str = ""
    spread: str = ""
    slice_size: int = 0

    def __post_init__(self) -> None:
        if sum(map(bool, (self.required, self.preferred, self.spread))) != 1:
            raise ValueError("a topology names one level: required, preferred or spread")
        if self.slice_size < 0:
            raise ValueError(f"a slice has {self.slice_size} members")

    def encode_tags(self) -> dict[str, str]:
        """Returns the tags of an ask that express this topology."""
        said = {"required": self.required, "preferred": self.preferred, "spread": self.spread}
        tags = {f"kornel.topology.{wish}": level for wish, level in said.items() if level}
        if self.slice_size:
            tags["kornel.topology.sliceSize"] = str(self.slice_size)
        return tags


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node. *memory* is in bytes; 0: unknown. *link* names the group of devices to which it is
    linked."""

    device_id: str
    type: str = ""
    memory: int = 0
    link: str = ""


def devices_attribute(devices: Iterable[Device]) -> dict[str, str]:
    """Returns the attribute of ``NodeInfo`` that reports *devices* as all devices of the node. An empty *devices* says
    that the node no longer has any."""
    entries: list[dict[str, str | int]] = []
    for device in devices:
        said: dict[str, str | int] = {"type": device.type, "memory": device.memory, "link": device.link}
        entries.append({"id": device.device_id, **{name: value for name, value in said.items() if value}})
    return {"kornel.devices": json.dumps(entries, separators=(",", ":"))}


def devices_of(allocation: si.Allocation) -> tuple[str, ...]:
    """Returns the IDs of the devices of *allocation*, a message in which the core announced it."""
    return tuple(filter(None, allocation.allocationTags.get("kornel.gpu.devices", "").split(",")))


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that an ask wants: *count* whole devices, a *fraction* of one, or an amount of *memory* (``16Gi``) of
    one.

    With *linked*, all of them have to be in one link group. *types* are the permitted types; if it is empty, every type
    is.
    """

    count: int = 0
    fraction: float = 0.0
    memory: str = ""
    linked: bool = False
    types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if sum(map(bool, (self.count, self.fraction, self.memory))) != 1:
            raise ValueError("an ask wants whole devices, a fraction of one or memory of one")
        if self.fraction and not 0.001 <= self.fraction <= 0.999:
            raise ValueError(f"{self.fraction} is no fraction of a device: at least 0.001, at most 0.999")

    def encode_tags(self) -> dict[str, str]:
        """Returns the tags of an ask that express this request."""
        said = {
            "count": str(self.count) if self.count else "",
            "fraction": f"{self.fraction:.3f}" if self.fraction else "",
            "memory": self.memory,
            "link": "same" if self.linked else "",
            "type": ",".join(self.types),
        }
        return {f"kornel.gpu.{name}": value for name, value in said.items() if value}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for room for one task. *resources* are in base units; *key* is unique within the partition.

    The preemption flags are always sent, so the core's default for an absent policy never applies. *created_s* is Unix
    seconds and only needed for tasks that existed before this shim did; without it the core uses the time of arrival.
    *depends_on_placements* says that the nodes on which this task may run depend on where other tasks run, so the core
    asks such predicates one after another. *topology* says where the task group is to run. *devices* are those that it
    wants on its node.
    """

    key: str
    application_id: str
    resources: Mapping[str, int]
    priority: int = 0
    allow_preempt_self: bool = True
    allow_preempt_other: bool = False
    originator: bool = False
    task_group: str = ""
    placeholder: bool = False
    partition: str = ""
    created_s: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    depends_on_placements: bool = False
    topology: Topology | None = None
    devices: Devices | None = None

    def _all_tags(self) -> dict[str, str]:
        tags = dict(self.tags)
        if self.created_s is not None:
            tags["creationTime"] = str(self.created_s)
        if self.depends_on_placements:
            tags["kornel.dependsOnPlacements"] = "true"
        if self.topology is not None:
            tags |= self.topology.encode_tags()
        if self.devices is not None:
            tags |= self.devices.encode_tags()
        return tags

    def _encode_policy(self) -> si.PreemptionPolicy:
        return si.PreemptionPolicy(allowPreemptSelf=self.allow_preempt_self, allowPreemptOther=self.allow_preempt_other)

    def to_g3(self) -> si.Allocation:
        """Returns the ask for ``AllocationRequest.allocations``: an allocation without a node."""
        return si.Allocation(
            allocationKey=self.key,
            applicationID=self.application_id,
            partitionName=self.partition,
            resourcePerAlloc=resource(self.resources),
            priority=self.priority,
            taskGroupName=self.task_group,
            placeholder=self.placeholder,
            originator=self.originator,
            preemptionPolicy=self._encode_policy(),
            allocationTags=self._all_tags(),
        )

    def to_g2(self) -> si.AllocationAsk:
        """Returns the ask for ``AllocationRequest.asks``: it asks for exactly one allocation under the key."""
        return si.AllocationAsk(
            allocationKey=self.key,
            applicationID=self.application_id,
            partitionName=self.partition,
            resourceAsk=resource(self.resources),
            maxAllocations=1,
            priority=self.priority,
            taskGroupName=self.task_group,
            placeholder=self.placeholder,
            Originator=self.originator,
            preemptionPolicy=self._encode_policy(),
            tags=self._all_tags(),
        )


def encode_ask(ask: Ask, generation: Generation) -> AllocationEntry:
    """Returns the message with which *generation* asks."""
    return ask.to_g2() if generation is Generation.G2 else ask.to_g3()


def encode_withdrawal(generation: Generation, application_id: str, key: str, *, partition: str = "") -> AllocationEntry:
    """Returns the message with which *generation* withdraws the pending ask *key*."""
    if generation is Generation.G3:
        return make_release(generation, application_id, key, si.STOPPED_BY_RM, partition=partition)
    return si.AllocationAskRelease(
        partitionName=partition, applicationID=application_id, allocationKey=key, terminationType=si.STOPPED_BY_RM
    )


def make_release(
    generation: Generation,
    application_id: str,
    key: str,
    termination: si.TerminationType.ValueType,
    *,
    partition: str = "",
) -> si.AllocationRelease:
    """Returns the release of the allocation *key*, with the names that *generation* uses for it."""
    return si.AllocationRelease(
        partitionName=partition,
        applicationID=application_id,
        allocationKey=key,
        allocationID=f"{key}-0" if generation is Generation.G2 else "",
        terminationType=termination,
    )
