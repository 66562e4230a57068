"""Asks and resources in one form, and how each generation of the interface writes them down.

G3 has one message for asks and allocations. G2 has a message of its own for asks, releases them in a list of their own,
and names an allocation by an ID that the core derives from the key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kornel.si.v1 import si_pb2 as si


class Generation(StrEnum):
    """Generation of the scheduler interface that a shim speaks."""

    G2 = "g2"
    """Interface releases 1.1 to 1.5: asks have a message of their own."""
    G3 = "g3"
    """Interface releases since 1.6: one message for asks and allocations."""


def resource(amounts: Mapping[str, int]) -> si.Resource:
    """Returns the wire form of *amounts*, in base units: vcore in thousandths of a core, memory in bytes."""
    message = si.Resource()
    for name, amount in amounts.items():
        message.resources[name].value = amount
    return message


def amounts(message: si.Resource) -> dict[str, int]:
    """Returns the amounts of a wire resource, in base units. A type missing from the message is missing here."""
    return {name: quantity.value for name, quantity in message.resources.items()}


@dataclass(frozen=True, slots=True)
class Topology:
    """The place of a task group in the topology of the partition; all of its asks say the same.

    Exactly one of *required* (all in one domain of this level, or wait), *preferred* (in as few as can be) and *spread*
    (in turn) names a level. *slice_size*: members that belong together; 0: all, or with *spread* each for itself.
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
        """Returns the tags that say so."""
        said = {"required": self.required, "preferred": self.preferred, "spread": self.spread}
        tags = {f"kornel.topology.{wish}": level for wish, level in said.items() if level}
        if self.slice_size:
            tags["kornel.topology.sliceSize"] = str(self.slice_size)
        return tags


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node. *memory* in bytes, 0: not said. *link*: the group of devices that it is linked with."""

    device_id: str
    type: str = ""
    memory: int = 0
    link: str = ""


def devices_attribute(devices: Iterable[Device]) -> dict[str, str]:
    """Returns the attribute of ``NodeInfo`` that reports *devices*, all that the node has. None: it has no more."""
    entries: list[dict[str, str | int]] = []
    for device in devices:
        said: dict[str, str | int] = {"type": device.type, "memory": device.memory, "link": device.link}
        entries.append({"id": device.device_id, **{name: value for name, value in said.items() if value}})
    return {"kornel.devices": json.dumps(entries, separators=(",", ":"))}


def devices_of(allocation: si.Allocation) -> tuple[str, ...]:
    """Returns the IDs of the devices that *allocation*, as the core announced it, holds on its node."""
    return tuple(filter(None, allocation.allocationTags.get("kornel.gpu.devices", "").split(",")))


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that an ask wants: *count* whole ones, a *fraction* of one, or so much *memory* (``16Gi``) of one.

    *linked*: all in one link group. *types*: of one of these types; none: of any.
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
        """Returns the tags that say so."""
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
    """A request for room for one task. *resources* in base units; *key* is unique within the partition.

    The preemption flags are always sent, so the core's default for an absent policy never applies.
    *created_s* is Unix seconds and only needed for tasks that existed before this shim did; without it the
    core takes the arrival. *depends_on_placements*: where other tasks run decides where this one may, so predicates are
    asked in turn. *topology*: where its task group is to stand. *devices*: those that it wants of its node.
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
        """Returns the ask as ``AllocationRequest.allocations`` takes it: an allocation without a node."""
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
        """Returns the ask as ``AllocationRequest.asks`` takes it, for exactly one allocation under the key."""
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
