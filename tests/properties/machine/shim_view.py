"""What one shim knows of one engine, over all partitions, and how it looks things up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kornel.core.domain.commands import AttachCallbacks
from kornel.core.domain.devices import read_wants
from kornel.core.domain.effects import Allocated, Effect
from kornel.core.model.allocations import identity_of
from tests.properties.machine.view import Amounts, ContractBroken, PartitionView, RequestView


class Known(NamedTuple):
    """What only the core knows when it decides: who holds which node, who is in which queue, who replaces whom."""

    before: Mapping[str, frozenset[str]]
    """By node: names of the asks it was held for before the call."""
    held: Mapping[str, Mapping[str, Amounts]]
    """By node: what each of them held, by name."""
    throughout: Mapping[str, Mapping[str, Amounts]]
    """By node: what those of them hold, by name, that held it all the time."""
    lends: Callable[[str, str], bool]
    """Whether room that was saved for the first may be used by the second, both by name."""
    in_flight: frozenset[str]
    """Names of the real asks that were about to replace a placeholder before the call."""
    quota: Callable[[], Callable[[Allocated, bool], str | None]]
    """As things stood before the call: what a placement exceeds, and whether the shim agreed to it.

    What exceeds nothing is booked at once.
    """


@dataclass
class ShimView:
    """``updates``: by application, the states it changed to during this command."""

    rm_id: str = ""
    config: str = ""
    """The configuration in force."""
    partitions: dict[str, PartitionView] = field(default_factory=dict)
    kept_out: set[tuple[str, str]] = field(default_factory=set)
    """Partition and ID of the nodes that operators drained, registered or not."""
    attached: AttachCallbacks | None = None
    questions: dict[int, Effect] = field(default_factory=dict)
    """Those that were not answered, by number; the core may have given up waiting."""
    standing: dict[str, list[Any]] = field(default_factory=dict)
    """By application, what the shim let pass about members of a gang while it had not answered about all of them."""
    now_ns: int = 0
    updates: dict[str, list[str]] = field(default_factory=dict)
    removing: set[str] = field(default_factory=set)
    """Applications that leave with this command, of which no expiry is reported."""
    closed: dict[str, str] = field(default_factory=dict)
    """Of those, the ones that had not finished: the state that was recorded of each."""

    def partition_of(self, application_id: str) -> PartitionView | None:
        """Where *application_id* is live."""
        return next((p for p in self.partitions.values() if application_id in p.applications), None)

    def known(self, partition: str, name: str) -> RequestView:
        """The request of this name, which must exist."""
        view = self.partitions.get(partition)
        request = view.requests.get(name) if view is not None else None
        if request is None:
            raise ContractBroken("unknown key", f"{name!r} of {partition} is nothing the shim knows of")
        return request

    def known_by_key(self, partition: str, key: str) -> list[RequestView]:
        """All requests that share *key*; there must be one."""
        view = self.partitions.get(partition)
        found = view.of_key(key) if view is not None else []
        if not found:
            raise ContractBroken("unknown key", f"{key} of {partition} is nothing the shim knows of")
        return found


def placed(partition: PartitionView, effect: Allocated, *, node_id: str = "", name: str = "") -> RequestView:
    """A ``new`` entry: of a known ask that was not placed, on a node that is known; for *name* on *node_id*."""
    request = partition.requests.get(identity_of(effect.spec.key, effect.spec.instance))
    if request is None or request.owner != effect.spec.application_id:
        raise ContractBroken("new", f"{effect} names no known ask")
    if request.node:
        raise ContractBroken("new", f"{effect}: it runs on {request.node} already")
    if effect.node_id not in partition.nodes:
        raise ContractBroken("new", f"{effect} names no known node")
    if effect.resources != request.size:
        raise ContractBroken("new", f"{effect} differs from the asked {request.size}")
    if (name and request.name != name) or (node_id and effect.node_id != node_id):
        raise ContractBroken("echo", f"{effect} instead of {name!r} on {node_id}")
    told = read_wants(effect.tags)
    request.wanted = request.wants if told is None else told.demand
    request.devices = () if told is None else told.given
    request.node = effect.node_id
    return request
