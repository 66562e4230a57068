"""Shows asks, allocations and the load of other schedulers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from weakref import proxy

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.devices import GIVEN_TAG
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import ForeignLoad, Node
from kornel.core.model.not_placed import Failures
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import failing

Tags = tuple[tuple[str, str], ...]


class AskView(NamedTuple):
    """A pending ask. ``log``: sorted by the last occurrence of each reason, the oldest first."""

    spec: AllocationSpec
    """The ask as it was sent last. Encoders take its fields by name."""
    created_ns: int
    resources: Resources
    log: Failures
    triggered_preemption: bool
    attempted: bool
    """Tells whether the scheduler has tried to place it, or equal asks."""
    scale_up: bool
    """Tells whether the shim was notified that no node has room for it."""
    reserved_node: str
    """The node that is kept free for it; empty: none."""


@dataclass(slots=True)
class AllocationView:
    """An allocation on its node. A view is made once and shown again until the allocation changes (:class:`KeptViews`).

    ``rendered``: its encoded form, kept here for the next reader.
    """

    spec: AllocationSpec
    """The allocation as it was sent last. Encoders take its fields by name."""
    tags: Tags
    """The tags as sent, with the devices that the allocation got."""
    created_ns: int
    """The time when it was asked for."""
    bound_ns: int
    """The time when it got its node."""
    resources: Resources
    node_id: str
    """The node, which the core may have chosen."""
    placeholder_ns: int
    """The creation time of the placeholder that it replaced; 0: it replaced none."""
    preempted: bool
    rendered: bytes | None = field(default=None, compare=False, repr=False)


class ForeignView(NamedTuple):
    """Load of another scheduler. ``static`` tells whether it is never preempted."""

    key: str
    tags: Tags
    since_ns: int
    resources: Resources
    priority: int
    node_id: str
    static: bool


_SPARE: Final = 1_000
_LOOKED_AT_ONCE: Final = 500
"""The number of kept views that one step examines to find those whose allocation is gone."""


def most_kept(live: int) -> int:
    """Returns the most views that are kept for *live* records before views of ended ones are searched for."""
    return live + live // 4 + _SPARE


def ask_view(pending: Allocation) -> AskView:
    """Shows an ask that has not been placed."""
    spec, group, reservation = pending.spec, pending.group, pending.reservation
    failures = failing.failures_of(pending)
    return AskView(
        spec,
        pending.created_ns,
        pending.shape.resources,
        failures[::-1],
        pending.triggered,
        bool(failures) or reservation is not None or (group is not None and group.parked_at is not None),
        pending.scale_up,
        reservation.node.node_id if reservation is not None else "",
    )


def allocation_view(placed: Allocation) -> AllocationView:
    """Shows an allocation on its node."""
    spec, node = placed.spec, placed.node
    return AllocationView(
        spec,
        spec.tags if placed.extras is None or not placed.devices else _with_devices(spec.tags, placed.devices),
        placed.created_ns,
        placed.bound_ns,
        placed.shape.resources,
        node.node_id if node is not None else "",
        placed.placeholder_ns,
        placed.preempted,
    )


def _with_devices(tags: Tags, devices: tuple[str, ...]) -> Tags:
    """Returns *tags* with the tag that names the *devices* of an allocation."""
    return tuple(sorted({**dict(tags), GIVEN_TAG: ",".join(devices)}.items()))


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

    No record is kept alive. When there are many more views than requests, views of ended allocations are searched for:
    two views are examined for each that is made, and some whenever :meth:`forget_some` is called.
    """

    def __init__(self, state: PartitionState) -> None:
        self._state = proxy(state)
        self._views: dict[int, AllocationView] = {}
        """The views by version of the allocation."""
        self._on_nodes: dict[str, _Shown] = {}
        self._of_applications: dict[str, _Shown] = {}
        """The last views of what one node or application holds, by ID."""
        self._looking: list[int] = []
        """The versions of views that are still to be examined."""

    def __len__(self) -> int:
        return len(self._views)

    def on_node(self, node: Node) -> list[AllocationView]:
        """Shows what is on *node*, by key."""
        return self._views_of(self._on_nodes, node.node_id, node.allocations)

    def of_application(self, application: Application) -> list[AllocationView]:
        """Shows what *application* holds, by key."""
        return self._views_of(self._of_applications, application.application_id, application.allocations)

    def in_pieces(self, application: Application, size: int) -> Iterator[list[AllocationView]]:
        """Shows what *application* holds now, by key, in pieces of *size*; new views are made piece by piece."""
        placed, shown = application.allocations, self._of_applications.get(application.application_id)
        versions = [each.version for each in placed.values()]
        if shown is not None and shown.versions == versions:
            for start in range(0, len(versions), size):
                yield shown.views[start : start + size]
            return
        found, views = [placed[key] for key in sorted(placed)], []
        for start in range(0, len(found), size):
            piece = self._show(found[start : start + size])
            views += piece
            yield piece
        self._of_applications[application.application_id] = _Shown(versions, views)

    def forget_some(self) -> None:
        """Drops some views of allocations that have ended, if there are many."""
        self._look_at(_LOOKED_AT_ONCE)

    def _views_of(self, known: dict[str, _Shown], name: str, placed: dict[str, Allocation]) -> list[AllocationView]:
        # They are read in the order of their dict; sorting by key is only needed if something has changed.
        versions = [each.version for each in placed.values()]
        shown = known.get(name)
        if shown is not None and shown.versions == versions:
            return shown.views
        views = self._show([placed[key] for key in sorted(placed)])
        known[name] = _Shown(versions, views)
        return views

    def _show(self, placed: list[Allocation]) -> list[AllocationView]:
        known, shown, made = self._views, [], 0
        for each in placed:
            view = known.get(each.version)
            if view is None:
                view = allocation_view(each)
                if each.node is not None:  # It may have left, and get its next node with the same version.
                    known[each.version] = view
                    made += 1
            shown.append(view)
        if made:
            self._look_at(2 * made)
        return shown

    def _look_at(self, count: int) -> None:
        views, looking, state = self._views, self._looking, self._state
        if not looking:
            if len(views) <= most_kept(len(state.requests)):
                return
            looking += views
            self._on_nodes = _still_held(self._on_nodes, state.nodes)
            self._of_applications = _still_held(self._of_applications, state.applications)
        for version in looking[-count:]:
            key = views[version].spec.key
            request = state.requests.get(key)
            if request is None or request.version != version:
                sharing = state.instances.get(key)  # Older shims may ask for several allocations under one key.
                if sharing is None or all(each.version != version for each in sharing.values()):
                    del views[version]
        del looking[-count:]


class _Shown(NamedTuple):
    """The last views of one node or application: versions in the order of its dict, views by key."""

    versions: list[int]
    views: list[AllocationView]


def _still_held(known: dict[str, _Shown], holders: Mapping[str, Node | Application]) -> dict[str, _Shown]:
    return {name: shown for name, shown in known.items() if name in holders and holders[name].allocations}
