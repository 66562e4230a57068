"""Asks, allocations and the load of other schedulers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.domain.resources import Resources
from core.model.allocations import Allocation
from core.model.applications import Application
from core.model.nodes import ForeignLoad, Node
from core.partition.state import PartitionState

Tags = tuple[tuple[str, str], ...]


class LogEntry(NamedTuple):
    """Something that kept an ask from being placed, ``times`` times."""

    message: str
    last_ns: int
    times: int


class AskView(NamedTuple):
    """A pending ask. ``log``: the oldest last occurrence first."""

    key: str
    application_id: str
    tags: Tags
    created_ns: int
    resources: Resources
    priority: int
    required_node: str
    placeholder: bool
    task_group: str
    log: tuple[LogEntry, ...]
    triggered_preemption: bool
    originator: bool
    attempted: bool
    """The scheduler has tried to place it, or asks exactly like it."""
    scale_up: bool
    """The shim was told that no node has room for it."""
    reserved_node: str
    """Which node is kept free for it."""


@dataclass(slots=True)
class AllocationView:
    """An allocation on its node. Made once and shown again until something of it changes (:class:`KeptViews`).

    ``rendered``: what a reader made of it, kept here for the next reader.
    """

    key: str
    application_id: str
    tags: Tags
    created_ns: int
    """When it was asked for."""
    bound_ns: int
    """When it got its node."""
    resources: Resources
    priority: int
    node_id: str
    placeholder: bool
    placeholder_ns: int
    """When the placeholder was made whose place it took; 0: it took none."""
    task_group: str
    preempted: bool
    originator: bool
    rendered: bytes | None = field(default=None, compare=False, repr=False)


class ForeignView(NamedTuple):
    """Load of another scheduler. ``static``: it is never told to leave."""

    key: str
    tags: Tags
    since_ns: int
    resources: Resources
    priority: int
    node_id: str
    static: bool


_SPARE: Final = 1_000
_LOOKED_AT_ONCE: Final = 500
"""Kept views that one step looks at, to find those whose allocation is gone."""


def most_kept(live: int) -> int:
    """Tells how much may be kept for *live* records before what belongs to others is looked for."""
    return live + live // 4 + _SPARE


def ask_view(pending: Allocation) -> AskView:
    """Shows an ask that has not been placed."""
    spec, group, reservation = pending.spec, pending.group, pending.reservation
    failures = () if pending.failures is None else pending.failures.recent_first()
    return AskView(
        spec.key,
        spec.application_id,
        spec.tags,
        pending.created_ns,
        pending.shape.resources,
        spec.priority,
        spec.required_node,
        spec.placeholder,
        spec.task_group,
        tuple([LogEntry(failure.message, failure.last_ns, failure.times) for failure in reversed(failures)]),
        pending.triggered,
        spec.originator,
        bool(failures) or reservation is not None or (group is not None and group.parked_at is not None),
        pending.scale_up,
        reservation.node.node_id if reservation is not None else "",
    )


def allocation_view(placed: Allocation) -> AllocationView:
    """Shows an allocation on its node."""
    spec, node = placed.spec, placed.node
    return AllocationView(
        spec.key,
        spec.application_id,
        spec.tags,
        placed.created_ns,
        placed.bound_ns,
        placed.shape.resources,
        spec.priority,
        node.node_id if node is not None else "",
        spec.placeholder,
        placed.placeholder_ns,
        spec.task_group,
        placed.preempted,
        spec.originator,
    )


def foreign_view(load: ForeignLoad) -> ForeignView:
    """Shows the load of another scheduler, as it was reported last."""
    spec = load.spec
    return ForeignView(
        spec.key,
        spec.tags,
        load.since_ns,
        load.shape.resources,
        spec.priority,
        spec.node_id,
        spec.foreign == "static",
    )


class KeptViews:
    """The views of the allocations of one partition, each shown again while its allocation has the same version.

    No record is kept alive. Views of allocations that are gone are looked for when there are many more views than
    allocations: two for each view that is made, and some whenever :meth:`forget_some` is called.
    """

    def __init__(self, state: PartitionState) -> None:
        self._requests = state.requests
        self._known: dict[int, tuple[int, str, AllocationView]] = {}
        """By arrival of the allocation, its version, its name and its view."""
        self._looking: list[int] = []
        """Arrivals that are still to be looked at."""

    def __len__(self) -> int:
        return len(self._known)

    def of(self, holder: Node | Application) -> list[AllocationView]:
        """Shows what is on a node, or what an application holds, by key."""
        placed = holder.allocations
        return self.show([placed[key] for key in sorted(placed)])

    def show(self, placed: Iterable[Allocation]) -> list[AllocationView]:
        """Shows each of *placed*, all of which are on their nodes."""
        known, shown, made = self._known, [], 0
        for each in placed:
            kept = known.get(each.arrival)
            if kept is None or kept[0] != each.version:
                kept = known[each.arrival] = each.version, each.key, allocation_view(each)
                made += 1
            shown.append(kept[2])
        if made:
            self._look_at(2 * made)
        return shown

    def forget_some(self) -> None:
        """Drops some views of what is no allocation any more, if there are many."""
        self._look_at(_LOOKED_AT_ONCE)

    def _look_at(self, count: int) -> None:
        known, looking = self._known, self._looking
        if not looking:
            if len(known) <= most_kept(len(self._requests)):
                return
            looking += known
        for arrival in looking[-count:]:
            request = self._requests.get(known[arrival][1])
            if request is None or request.arrival != arrival:
                del known[arrival]
        del looking[-count:]
