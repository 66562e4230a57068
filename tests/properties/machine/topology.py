"""Where members of groups may stand, reckoned from attributes and tags alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.topology import Wish
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.state.partition_state import PartitionState
from tests.properties.machine.quotas import written
from tests.properties.machine.shim_view import ShimView
from tests.properties.machine.view import ContractBroken, PartitionView, RequestView

Domain = tuple[str, ...]


def levels_of(shim: ShimView, partition: str) -> Mapping[str, str]:
    """The attributes of the levels of *partition* by name, outermost first."""
    configured = (written(shim.config) or {}).get(partition.rpartition("]")[2])
    return {level.name: level.attribute for level in configured.topology} if configured is not None else {}


def _domain_of(levels: Mapping[str, str], level: str, attributes: Mapping[str, str]) -> Domain | None:
    """The values of all levels up to *level*; ``None``: one is missing."""
    names = list(levels)
    values = [attributes.get(levels[name], "") for name in names[: names.index(level) + 1]]
    return tuple(values) if all(values) else None


def judge_place(shim: ShimView, partition: PartitionView, request: RequestView) -> None:
    """A member of a group that requires one domain is placed in one, and with others where some stand already."""
    wanted = request.spec.topology
    levels = levels_of(shim, request.spec.partition)
    if wanted is None or wanted.wish != Wish.REQUIRED or wanted.level not in levels:
        return
    own = _domain_of(levels, wanted.level, partition.nodes[request.node].attributes)
    if own is None:
        raise ContractBroken("topology", f"{request.name!r} requires a {wanted.level}, {request.node} stands in none")
    others = {
        _domain_of(levels, wanted.level, partition.nodes[other.node].attributes)
        for other in partition.requests.values()
        if other is not request and other.node and _is_together(other, request)
    } - {None}
    if others and own not in others and not wanted.slice_size:
        raise ContractBroken("topology", f"{request.name!r} was placed in {own}, others stand in {others}")


def _is_together(other: RequestView, request: RequestView) -> bool:
    same = other.owner == request.owner and other.spec.task_group == request.spec.task_group
    real = bool(request.spec.task_group) and not (other.spec.placeholder and request.spec.placeholder)
    return same and (real or other.spec.topology == request.spec.topology)


def lawful_nodes(state: PartitionState, ask: Allocation, roomy: Sequence[Node]) -> Sequence[Node]:
    """Those of *roomy*, which have room for *ask*, on which it should be placed now for sure.

    One domain: where all that stand already are, or else each that has room for all that wait, whoever of them the shim
    has refused. Slices: nothing is sure.
    """
    wanted = ask.spec.topology
    if wanted is None or wanted.wish != Wish.REQUIRED or ask.spec.required_node:
        return roomy
    configured = state.config.topology if state.config is not None else ()
    levels = {level.name: level.attribute for level in configured}
    if wanted.level not in levels or wanted.slice_size or ask.group is None or ask.shape.devices is not None:
        return ()
    domains = {node: _domain_of(levels, wanted.level, dict(node.attributes)) for node in state.nodes.values()}
    standing = {domains[node] for node in _nodes_of_members(ask)} - {None}
    if len(standing) > 1:
        return ()
    if standing:
        return [node for node in roomy if domains[node] in standing]
    room: dict[Domain, int] = {}
    for node in roomy:
        at = domains[node]
        if at is not None:
            room[at] = room.get(at, 0) + min(node.open[t] // amount for t, amount in ask.shape.pairs)
    waiting = sum(
        other.pending and other.shape is ask.shape and _stand_together(other, ask)
        for other in ask.application.asks.values()
    )
    return [node for node in roomy if (at := domains[node]) is not None and room[at] >= waiting]


def lawful_domains(state: PartitionState, asks: Sequence[Allocation]) -> list[frozenset[str]]:
    """The domains, each as the names of its nodes, in one of which equal *asks* are to stand, all of them.

    None where they differ, in what they want or in what they say, or come in slices: then nothing is sure.
    """
    wanted = asks[0].spec.topology
    configured = state.config.topology if state.config is not None else ()
    levels = {level.name: level.attribute for level in configured}
    alike = all(a.shape is asks[0].shape and a.spec.topology == wanted and not a.spec.required_node for a in asks)
    same = len({a.spec.task_group for a in asks}) == 1
    if wanted is None or wanted.level not in levels or wanted.slice_size or not alike or not same:
        return []
    found: dict[Domain, set[str]] = {}
    for node in state.nodes.values():
        at = _domain_of(levels, wanted.level, dict(node.attributes))
        if at is not None:
            found.setdefault(at, set()).add(node.node_id)
    return [frozenset(names) for names in found.values()]


def _nodes_of_members(ask: Allocation) -> Iterable[Node]:
    for other in (*ask.application.allocations.values(), *ask.application.asks.values()):
        if other.place is AskPlace.REPLACING:
            continue  # It stands there once the exit of its placeholder is confirmed.
        node = other.held_on if other.pending else other.node
        if node is not None and _stand_together(other, ask):
            yield node


def _stand_together(other: Allocation, ask: Allocation) -> bool:
    same = other.spec.task_group == ask.spec.task_group
    real = bool(ask.spec.task_group) and not (other.spec.placeholder and ask.spec.placeholder)
    return same and (real or other.spec.topology == ask.spec.topology)
