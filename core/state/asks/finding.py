"""Finds the node on which an ask can be placed now, or the reason why there is none. This is the only search for room,
and it changes nothing.

The allocation cycle, the reserved step and the preemption cycle all call :func:`find_node`
(preemption.md F3).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.reasons import Unschedulable
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.policies import claim_order, user_limits
from kornel.core.state.asks import group_domains, node_devices
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission
from kornel.core.state.waiting.rooms import find_no_room

_ACCEPTED: Final = AppState.ACCEPTED
"""Kept as a constant, because reading a member from its class costs as much as a call, and every placement needs it."""


def exceeded_limit(state: PartitionState, ask: Allocation) -> NotPlaced | None:
    """Returns the limit that *ask* would exceed now: applications, then user and group, then queues (scheduling.md 7.1,
    7.2), then any below which another waiter saves what is free (preemption.md B.7).

    Changes nothing, so explanations may call it too.
    """
    application, pairs = ask.application, ask.shape.pairs
    limited: NotPlaced | None = None
    if application.state is _ACCEPTED:
        gate = admission.may_run(state, application, ask.spec.priority)
        if isinstance(gate, Queue):
            limited = NotPlaced(Unschedulable.APPLICATION_LIMIT, queue=gate)
        elif gate is not None:
            limited = NotPlaced(Unschedulable.APPLICATION_LIMIT, account=gate)
    if limited is None and application.accounts:
        account = user_limits.find_exceeded(ask.accounts, pairs, claimed=ask.triggered)
        if account is not None:
            limited = NotPlaced(Unschedulable.USER_QUOTA, account=account)
    if limited is None:
        for queue in application.queue.lineage():
            if queue.ceilings and not queue.admits(pairs):
                full: Queue | None = ledger.queue_path_admits_swap(ask) if ask.triggered else queue
                if full is not None:
                    limited = NotPlaced(Unschedulable.QUEUE_QUOTA, full)
                break
    if limited is None and state.reserving.at_limits:
        limited = saved_for_another(state, ask, pairs)
    return limited


def saved_for_another(state: PartitionState, ask: Allocation, pairs: Pairs) -> NotPlaced | None:
    """Returns the limit that lets *ask*, or the gang for which it stands, have no *pairs* beside what others save
    there."""
    limit, _ = next(claim_order.find_savers(ask, pairs, state.guarantee_mode), (None, None))
    if limit is None:
        return None
    if isinstance(limit, Queue):
        return NotPlaced(Unschedulable.QUEUE_QUOTA, limit)
    return NotPlaced(Unschedulable.USER_QUOTA, account=limit)


def kept_back(state: PartitionState, ask: Allocation) -> NotPlaced | None:
    """Returns the limit that keeps *ask* back now, and records it in the event history if it has changed."""
    limited = exceeded_limit(state, ask)
    if state.recording:
        state.events.limits_checked(ask, limited)
    return limited


def find_node(state: PartitionState, ask: Allocation) -> Node | NotPlaced:
    """Returns the node on which *ask* fits now: its required node, or the first open node in order that has room. If a
    limit or a lack of room prevents that, returns the reason; limits are checked first."""
    shape = ask.shape
    limited = exceeded_limit(state, ask)
    if state.recording and (limited is not None or ask.extras is not None or ask.application.state is _ACCEPTED):
        # This does what kept_back does, without a call for every placement: elsewhere nothing can have changed.
        state.events.limits_checked(ask, limited)
    if limited is not None:
        return limited
    if ask.spec.required_node:
        node = state.nodes.get(ask.spec.required_node)
        if node is None or not node.has_room_for(shape):
            return NotPlaced(Unschedulable.REQUIRED_NODE)
        if ask.refused is not None and node.node_id in ask.refused:
            return NotPlaced(Unschedulable.REFUSED_BY_PREDICATE)
        return node
    if ask.spec.topology is not None:
        for chosen in group_domains.nodes_for(state, ask):
            return chosen
        return NotPlaced(group_domains.name_lack(ask))
    # The mark says that no node has gained room since an ask of this shape tried all nodes: a full cluster is searched
    # once for each shape, not for each ask.
    if not shape.no_room:
        plain = shape.devices is None
        node = state.node_order.first_fit(shape.pairs) if plain else node_devices.first_node(state, ask)
        if node is not None and (
            (ask.refused is not None and node.node_id in ask.refused)
            or (ask.extras is not None and node.node_id in ask.tried_last)
        ):
            node = next(acceptable_nodes(state, ask), None)
            return node if node is not None else NotPlaced(Unschedulable.REFUSED_BY_PREDICATE)
        if node is not None:
            return node
        # The shape is entered there even while no ask of it waits, so that a node that gains room removes the mark.
        find_no_room(state, shape)
    return NotPlaced(Unschedulable.NO_FITTING_NODE)


def acceptable_nodes(state: PartitionState, ask: Allocation) -> Iterator[Node]:
    """Yields the open nodes, in order, that have room for *ask* and are not left out for it because the shim refused
    them; those that it refused once come last."""
    if ask.spec.topology is not None and not ask.spec.required_node:
        return group_domains.nodes_for(state, ask)
    if ask.shape.devices is not None:
        nodes = node_devices.nodes_for(state, ask)
    else:
        refused = ask.refused or {}
        nodes = (node for node in state.node_order.fitting_nodes(ask.shape.pairs) if node.node_id not in refused)
    return _order_refused_last(nodes, ask.tried_last) if ask.tried_last else nodes


def _order_refused_last(nodes: Iterable[Node], last: Container[str]) -> Iterator[Node]:
    behind: list[Node] = []
    for node in nodes:
        if node.node_id in last:
            behind.append(node)
        else:
            yield node
    yield from behind
