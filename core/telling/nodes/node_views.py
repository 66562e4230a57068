"""Shows nodes: what they offer, and what they hold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from kornel.core.domain.drains import OperatorDrain
from kornel.core.domain.resources import NOTHING, Resources
from kornel.core.model.domains import Domain
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations.allocation_views import AllocationView, ForeignView, KeptViews, Tags, foreign_view
from kornel.core.telling.nodes.device_views import DeviceView, device_views

MOST_SHAPES: Final = 100
"""The most shapes of waiting asks that are tried on each node to find what is stranded there."""


class NodeSummary(NamedTuple):
    """One node in a long list, which is cheap to make."""

    node_id: str
    schedulable: bool
    capacity: Resources
    allocated: Resources
    occupied: Resources
    available: Resources
    allocations: int
    reservations: int
    stranded: Resources = NOTHING
    """The free amounts of types that asks wait for, none of which fits there; only if that was asked for."""
    domain: str = ""


class NodeDomain(NamedTuple):
    """One domain of the topology in which a node is. ``name``: its path as text, such as ``a/r7``."""

    level: str
    name: str


class NodeView(NamedTuple):
    """One node. ``available`` = capacity - allocated - occupied; negative when it is over-allocated."""

    node_id: str
    host: str
    rack: str
    attributes: Tags
    capacity: Resources
    allocated: Resources
    occupied: Resources
    available: Resources
    allocations: tuple[AllocationView, ...]
    foreign: tuple[ForeignView, ...]
    schedulable: bool
    reservations: tuple[str, ...]
    """The keys of the asks that have a reservation on the node."""
    drained_by_shim: bool = False
    operator_drain: OperatorDrain | None = None
    """The drain by which an operator drains the node; ``None``: there is none."""
    domains: tuple[NodeDomain, ...] = ()
    """The domains of the topology in which the node is, the outermost first."""
    devices: tuple[DeviceView, ...] = ()
    """The devices that the node has reported, in that order."""


_NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})
_HOST: Final = ("si/hostname", "si.io/hostname")
_RACK: Final = ("si/rackname", "si.io/rackname")


def node_view(state: PartitionState, node: Node, kept: KeptViews) -> NodeView:
    """Shows one node with everything on it."""
    return node_head(state, node)._replace(
        allocations=tuple(kept.on_node(node)),
        foreign=tuple([foreign_view(load) for _, load in sorted(node.foreign_loads.items())]),
    )


def node_head(state: PartitionState, node: Node) -> NodeView:
    """Shows one node without what runs on it."""
    resources, attributes = state.types.to_resources, dict(node.attributes) if node.attributes else _NO_ATTRIBUTES
    return NodeView(
        node.node_id,
        _first_of(attributes, _HOST),
        _first_of(attributes, _RACK),
        node.attributes,
        resources(node.capacity),
        resources(node.allocated),
        resources(node.occupied),
        resources(node.free),
        (),
        (),
        node.schedulable,
        tuple(sorted(node.reservations)) if node.reservations else (),
        node.drained_by_shim,
        node.operator_drain,
        tuple([NodeDomain(domain.level.name, "/".join(domain.path)) for domain in node.domains]),
        device_views(node),
    )


class _Head(NamedTuple):
    """An encoded node, and the state of the node from which it was made."""

    node: Node
    version: int
    schedulable: bool
    drained_by_shim: bool
    operator_drain: OperatorDrain | None
    reservations: tuple[str, ...]
    domains: tuple[Domain, ...]
    rendered: bytes

    def holds(self, node: Node) -> bool:
        """Tells whether everything that the head shows of *node* is still the same."""
        return (
            self.node is node
            and self.version == node.version
            and self.schedulable is node.schedulable
            and self.drained_by_shim is node.drained_by_shim
            and self.operator_drain is node.operator_drain
            and self.domains is node.domains
            and self.reservations == (tuple(sorted(node.reservations)) if node.claims is not None else ())
        )


class NodeHeads:
    """Keeps encoded nodes, without what runs on them, until they change, because a page asks for all of them often."""

    def __init__(self) -> None:
        self._render: Callable[[NodeView], bytes] | None = None
        self._heads: dict[str, _Head] = {}

    def render_all(self, state: PartitionState, render: Callable[[NodeView], bytes]) -> Iterator[tuple[bool, bytes]]:
        """Yields for each node of *state*, by ID, whether it is schedulable, and its head as encoded by *render*.

        *render* is called only for heads that have changed, so its result must depend on the head alone. Results of the
        last *render* are kept.
        """
        if render is not self._render:
            self._render, self._heads = render, {}
        heads = self._heads
        if len(heads) > len(state.nodes):
            for name in heads.keys() - state.nodes.keys():
                del heads[name]
        for node in nodes_by_id(state):
            head = heads.get(node.node_id)
            if head is None or not head.holds(node):
                view = node_head(state, node)
                head = heads[node.node_id] = _Head(
                    node,
                    node.version,
                    view.schedulable,
                    view.drained_by_shim,
                    view.operator_drain,
                    view.reservations,
                    node.domains,
                    render(view),
                )
            yield head.schedulable, head.rendered


def node_summary(state: PartitionState, node: Node, waiting: Sequence[Shape] | None = None) -> NodeSummary:
    """Shows one node without what runs on it, and with what *waiting* shapes leave stranded there."""
    resources = state.types.to_resources
    return NodeSummary(
        node.node_id,
        node.schedulable,
        resources(node.capacity),
        resources(node.allocated),
        resources(node.occupied),
        resources(node.free),
        len(node.allocations),
        len(node.reservations),
        NOTHING if waiting is None else resources(_find_stranded(node, waiting)),
        "" if waiting is None or not node.domains else "/".join(node.domains[-1].path),
    )


def list_waiting(state: PartitionState) -> list[Shape]:
    """Returns the shapes of the asks that wait, the smallest first and at most :data:`MOST_SHAPES`, without those that
    fit nowhere where a smaller one of the same types does not."""
    shapes: dict[Shape, None] = {}
    for application in state.applications.values():
        for group in application.groups.values():
            shapes.update((ask.shape, None) for ask in (group.asks() if group.is_unit else (group.first_ask(),)))
    shapes.update((claim.ask.shape, None) for claim in state.reservations.values())  # These asks are in no group.
    found: list[Shape] = []
    for shape in sorted(shapes, key=lambda shape: sum(amount for _, amount in shape.pairs)):
        if len(found) < MOST_SHAPES and not any(_is_smaller(other, shape) for other in found):
            found.append(shape)
    return found


def _is_smaller(one: Shape, other: Shape) -> bool:
    """Tells whether *one* asks for the same types as *other*, and for no more of any."""
    return (
        one.devices == other.devices
        and one.amounts.keys() == other.amounts.keys()
        and all(amount <= other.amounts[t] for t, amount in one.pairs)
    )


def _find_stranded(node: Node, waiting: Sequence[Shape]) -> dict[int, int]:
    """Returns what is free on *node* of the types in *waiting* that no shape with that type can use there. A node that
    takes nothing new strands nothing: that is wanted."""
    if not node.schedulable:
        return {}
    wanted = {t for shape in waiting for t, _ in shape.pairs}
    used = {t for shape in waiting if node.has_room_for(shape) for t, _ in shape.pairs}
    return {t: node.free[t] for t in wanted - used if node.free[t] > 0}


def nodes_by_id(state: PartitionState, after: str = "", only: Collection[str] = ()) -> Iterator[Node]:
    """Yields the nodes whose IDs come after *after*, by ID, all or *only* some; a node that leaves in the meantime is
    left out."""
    ids = sorted(only or state.nodes)
    for node_id in ids[bisect_right(ids, after) :] if after else ids:
        node = state.nodes.get(node_id)
        if node is not None:
            yield node


def _first_of(attributes: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((attributes[name] for name in names if attributes.get(name)), "")
