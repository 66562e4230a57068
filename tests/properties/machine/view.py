"""What a shim knows: what it said, and what it was answered. Nothing here looks into the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kornel.core.domain.commands import AllocationSpec, ApplicationSpec
from kornel.core.domain.devices import DeviceRequest, DeviceSpec
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import identity_of

Amounts = dict[str, int]

EXPIRES_AFTER_NS: Final = 72 * 3600 * 10**9


class ContractBroken(AssertionError):
    """The engine did what its contract does not allow. *rule* names the broken rule, for the shrinker."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


@dataclass(slots=True)
class NodeView:
    node_id: str
    capacity: Amounts
    drained: bool
    """By its shim."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    kept_out: bool = False
    """By an operator."""
    devices: dict[str, DeviceSpec] = field(default_factory=dict)
    """By ID, as they were reported last."""

    @property
    def draining(self) -> bool:
        return self.drained or self.kept_out


@dataclass(slots=True)
class ApplicationView:
    """A live application."""

    spec: ApplicationSpec
    state: str = "New"


@dataclass(slots=True)
class RequestView:
    """An ask (no node) or an allocation. ``leaves_as``: the type of the release that the core announced for it."""

    spec: AllocationSpec
    size: Resources
    node: str = ""
    leaves_as: int | None = None
    devices: tuple[str, ...] = ()
    """Of its node, those that it holds."""
    wanted: DeviceRequest | None = None
    """What it wanted of devices when it was placed."""

    @property
    def wants(self) -> DeviceRequest | None:
        """What it wants of devices: what runs keeps what it got."""
        if self.node:
            return self.wanted
        return None if self.spec.devices is None else self.spec.devices.demand

    @property
    def key(self) -> str:
        return self.spec.key

    @property
    def name(self) -> str:
        """Its key, or what stands for it where several share the key."""
        return identity_of(self.spec.key, self.spec.instance)

    @property
    def owner(self) -> str:
        return self.spec.application_id

    @property
    def placeholder(self) -> bool:
        return self.spec.placeholder


@dataclass(slots=True)
class ForeignView:
    node: str
    size: Resources


@dataclass(slots=True)
class Grave:
    """An application that ended or was rejected, and when its expiry is due."""

    application_id: str
    due_ns: int
    silent: bool = False
    """Another application had its ID when that was due, so that it need not be told."""


@dataclass(slots=True)
class PartitionView:
    """One partition as the shim knows it."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    applications: dict[str, ApplicationView] = field(default_factory=dict)
    requests: dict[str, RequestView] = field(default_factory=dict)
    """By name."""
    foreign: dict[str, ForeignView] = field(default_factory=dict)
    graves: list[Grave] = field(default_factory=list)
    served: list[tuple[int, Resources]] = field(default_factory=list)
    """Asks that preempted for a guarantee within the last interval of the cycle: when, and their sizes."""
    group_wants: dict[tuple[str, str], set[DeviceRequest | None]] = field(default_factory=dict)
    """What placeholders of each application and task group wanted of devices."""
    minima: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """The minima that placeholders of each application and task group have ever stated; the first one counts."""
    last_served: tuple[int, str] | None = None
    """The last of these decisions, if it was for a gang: when, and its application."""

    def silence(self, now_ns: int) -> None:
        """Nobody hears of an expiry while the ID is in use."""
        for grave in self.graves:
            grave.silent |= grave.due_ns <= now_ns and grave.application_id in self.applications

    def of(self, application_id: str) -> list[RequestView]:
        return [request for request in self.requests.values() if request.owner == application_id]

    def of_key(self, key: str) -> list[RequestView]:
        """All requests that have *key*, by instance."""
        found = [request for request in self.requests.values() if request.key == key]
        return sorted(found, key=lambda request: request.spec.instance)

    def asks_of(self, application_id: str) -> list[RequestView]:
        return [request for request in self.of(application_id) if not request.node]

    def allocations_of(self, application_id: str) -> list[RequestView]:
        return [request for request in self.of(application_id) if request.node]

    def placeholders(self, application_id: str, task_group: str) -> list[RequestView]:
        """Those of one task group that are pending, or allocated and not gone yet."""
        return [r for r in self.of(application_id) if task_group and r.placeholder and r.spec.task_group == task_group]

    def on(self, node_id: str) -> list[RequestView]:
        return [request for request in self.requests.values() if request.node == node_id]

    def replacing(self) -> set[tuple[str, str]]:
        """(application, task group) where a placeholder was announced as replaced and not confirmed gone.

        A pending real ask there may be one that the core has already placed; only the core knows which.
        """
        replaced = [r for r in self.requests.values() if r.leaves_as == REPLACED]
        return {(request.owner, request.spec.task_group) for request in replaced}

    def free(self) -> dict[str, Amounts]:
        """By node: capacity minus everything that is known to run there."""
        free = {node_id: dict(node.capacity) for node_id, node in self.nodes.items()}
        loads: Iterator[tuple[str, Resources]] = (
            *((request.node, request.size) for request in self.requests.values() if request.node),
            *((foreign.node, foreign.size) for foreign in self.foreign.values()),
        ).__iter__()
        for node_id, size in loads:
            add(free[node_id], size, -1)
        return free


REPLACED: Final = 4


def add(amounts: Amounts, size: Mapping[str, int] | None, sign: int = 1) -> None:
    """*amounts* plus *sign* times *size*, in place."""
    for name, amount in (size or {}).items():
        amounts[name] = amounts.get(name, 0) + sign * amount


def without_zeros(amounts: Mapping[str, int]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}
