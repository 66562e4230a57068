"""Explains why no node takes an ask, with nodes grouped by reason instead of a list of all of them."""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.missing_shares import missing_share
from kornel.core.telling.allocations.explanation import PERMANENT, Blocker, BlockerKind, Level, Shortage
from kornel.core.telling.claims.claim_views import describe_claim
from kornel.core.telling.nodes.device_blockers import describe_lack, measure_lack
from kornel.shared.readable_amounts import format_count, format_quantity


class _Group:
    """The nodes with the same reason; ``closest`` is the one that lacks the smallest share, and among equals the first
    by ID."""

    __slots__ = ("closest", "count", "distance")

    def __init__(self) -> None:
        self.count = 0
        self.closest: Node | None = None
        self.distance = 0.0

    def add(self, node: Node, distance: float) -> None:
        self.count += 1
        if self.closest is None or (distance, node.node_id) < (self.distance, self.closest.node_id):
            self.closest, self.distance = node, distance


def node_blockers(state: PartitionState, ask: Allocation) -> tuple[list[Blocker], int]:
    """Returns one blocker for each reason, and the number of open nodes that have room. The cost is linear in nodes.

    A node counts for the first reason that applies, in the order of :func:`first_reason`.
    """
    if not state.nodes:
        nothing = Blocker(BlockerKind.NO_NODES, Level.NODE, "", "the partition has no nodes", permanent=True)
        return [expect_nodes(state, nothing)], 0
    groups: dict[BlockerKind, _Group] = {}
    fitting = 0
    for node in state.nodes.values():
        if ask.key in node.reservations:
            continue  # The reservation is a blocker of its own.
        kind = first_reason(node, ask)
        if kind is None:
            fitting += 1
        else:
            group = groups.get(kind)
            if group is None:
                group = groups[kind] = _Group()
            group.add(node, _measure_distance(node, ask, kind))
    found = [_make_blocker(state, ask, kind, groups[kind]) for kind in BlockerKind if kind in groups]
    if ask.reservation is not None or not PERMANENT.issuperset(groups):
        # Waiting may help if it may help on any node.
        found = [blocker._replace(permanent=False) for blocker in found]
    split = "" if fitting else _find_fragments(state, ask)
    return [
        blocker._replace(detail=blocker.detail + split)
        if blocker.kind is BlockerKind.NODE_FULL
        else expect_nodes(state, blocker)
        for blocker in found
    ], fitting


def expect_nodes(state: PartitionState, blocker: Blocker) -> Blocker:
    """Returns *blocker*, which only other nodes would remove. If the shim wants to know what waits for nodes, it may
    bring some, so that waiting may help."""
    if not blocker.permanent or not state.callbacks.scheduling_states:
        return blocker
    return blocker._replace(permanent=False, detail=f"{blocker.detail}; the shim is told what waits, and may add nodes")


def _find_fragments(state: PartitionState, ask: Allocation) -> str:
    """Returns a text about what is free for *ask* on all nodes that are large enough together, although none has it;
    empty: even that is too little."""
    nodes = [node for node in state.nodes.values() if node.schedulable and node.could_hold_shape(ask.shape)]
    sums = {t: (sum(max(0, node.free[t]) for node in nodes), amount) for t, amount in ask.shape.pairs}
    if not sums or any(free < amount for free, amount in sums.values()):
        return ""
    t = max(sums, key=lambda t: sum(node.free[t] < sums[t][1] for node in nodes))
    name, whole = state.types.names[t], sum(node.capacity[t] for node in nodes)
    free, whole_text = format_quantity(name, sums[t][0]), format_quantity(name, whole)
    return f"; nodes that are large enough have {free} of {whole_text} {name} free in all, but in fragments"


def first_reason(node: Node, ask: Allocation) -> BlockerKind | None:
    """Returns the first reason that keeps *ask* from *node*; ``None``: there is none."""
    return next(find_reasons(node, ask), None)


def find_reasons(node: Node, ask: Allocation) -> Iterator[BlockerKind]:
    """Yields all reasons that keep *ask* from *node*, beginning with those against which waiting helps least."""
    pairs = ask.shape.pairs
    too_small = not node.could_hold(pairs)
    lacks_devices = not too_small and not node.could_hold_shape(ask.shape)
    if too_small:
        yield BlockerKind.NODE_TOO_SMALL
    elif lacks_devices:
        yield BlockerKind.NODE_WITHOUT_DEVICES
    if not node.schedulable:
        yield BlockerKind.NODE_DRAINING
    if not too_small and not node.has_amounts_for(ask):
        free = node.free
        yield BlockerKind.NODE_RESERVED if all(free[t] >= n for t, n in pairs) else BlockerKind.NODE_FULL
    elif not too_small and not lacks_devices and not node.has_devices(ask.shape.devices):
        yield BlockerKind.NODE_DEVICES
    if ask.refused is not None and node.node_id in ask.refused:
        yield BlockerKind.NODE_REFUSED


def shortages_on(state: PartitionState, node: Node, pairs: Pairs, *, empty: bool = False) -> tuple[Shortage, ...]:
    """Returns the types of which *node* has too little free, or with *empty* too little at all."""
    names = state.types.names
    return tuple(
        Shortage(names[t], node.capacity[t], node.capacity[t] - left, amount, amount - left)
        for t, amount in pairs
        for left in [node.capacity[t] if empty else node.free[t]]
        if amount > left
    )


def _measure_distance(node: Node, ask: Allocation, kind: BlockerKind) -> float:
    if ask.shape.devices is not None and kind in (BlockerKind.NODE_DEVICES, BlockerKind.NODE_WITHOUT_DEVICES):
        return measure_lack(node, ask.shape.devices)
    pairs = ask.shape.pairs
    return _too_small_by(node, pairs) if kind in PERMANENT else missing_share(node, pairs)


def _too_small_by(node: Node, pairs: Pairs) -> float:
    capacity = node.capacity
    return sum([(amount - capacity[t]) / amount for t, amount in pairs if amount > capacity[t]])


def _make_blocker(state: PartitionState, ask: Allocation, kind: BlockerKind, group: _Group) -> Blocker:
    assert group.closest is not None, "a group has at least one node"
    return blocker_on(state, ask, kind, group.closest, group.distance)._replace(nodes=group.count)


def blocker_on(state: PartitionState, ask: Allocation, kind: BlockerKind, node: Node, distance: float) -> Blocker:
    """Returns the blocker for *kind*, one of the :func:`find_reasons` of *node* against *ask*, with its amounts."""
    return Blocker(
        kind,
        Level.NODE,
        node.node_id,
        _write_detail(state, kind, node, ask),
        shortages_on(state, node, ask.shape.pairs, empty=kind is BlockerKind.NODE_TOO_SMALL),
        1,
        distance,
        permanent=kind in PERMANENT,
    )


def _write_detail(state: PartitionState, kind: BlockerKind, node: Node, ask: Allocation) -> str:
    match kind:
        case BlockerKind.NODE_TOO_SMALL:
            return "smaller than the ask even when empty"
        case BlockerKind.NODE_DRAINING:
            drain = node.operator_drain
            if drain is None:
                return "draining: nothing new is placed there"
            also = ", and its shim drains it too" if node.drained_by_shim else ""
            return f"draining: nothing new is placed there; drained by {drain.by} until it is undrained{also}"
        case BlockerKind.NODE_RESERVED:
            assert node.claims is not None, "room is held there"
            first, *others = node.claims.in_order()
            more = f"; {format_count(len(others), 'more claim is', 'more claims are')} behind it" if others else ""
            return f"its room {describe_claim(state, first)}{more}"
        case BlockerKind.NODE_DEVICES | BlockerKind.NODE_WITHOUT_DEVICES if ask.shape.devices is not None:
            return describe_lack(node, ask.shape.devices, empty=kind is BlockerKind.NODE_WITHOUT_DEVICES)
        case BlockerKind.NODE_REFUSED:
            return f"refused by the shim: {(ask.refused or {})[node.node_id].reason}"
        case _:
            return "not enough room"
