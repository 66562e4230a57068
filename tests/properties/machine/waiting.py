"""After the last slice no ask waits that could run: what keeps each of them back is looked for independently."""

from __future__ import annotations

from collections.abc import Iterable

from kornel.core.domain.effects import Effect, PredicatesAsked
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.state.asks import finding
from kornel.core.state.partition_state import PartitionState
from tests.properties.held_room import has_room
from tests.properties.lending import is_kept_below
from tests.properties.machine import topology
from tests.properties.machine.devices import finds_devices
from tests.properties.machine.gangs import (
    check_gang_not_forgotten,
    check_held_gang,
    check_members_not_forgotten,
    is_at_rest,
    running_members,
)
from tests.properties.machine.quotas import Quotas, counted, quotas
from tests.properties.machine.view import ContractBroken, PartitionView


def check_nobody_forgotten(state: PartitionState, view: PartitionView, config: str) -> None:
    """Raises for an ask that has room on a node it may use, under all quotas and limits. *config*: in force."""
    limits = quotas(state, view, config, counted(state))
    for ask in state.requests.values():
        if not ask.pending or ask.held_on is not None or ask.application.state == "Failing":
            continue
        if ask.application in state.gangs.leaving:
            continue  # The audit holds that some member of its gang is still to leave.
        if ask.pool is not None:
            if not view.placeholders(ask.spec.application_id, ask.spec.task_group):
                raise ContractBroken("forgotten", f"{ask} waits for a placeholder, and there is none")
            continue
        if ask.group is not None and ask.group.is_unit:
            if not ask.spec.placeholder:
                check_members_not_forgotten(state, view, ask, limits)
            elif is_at_rest(view, ask.spec.application_id):
                check_gang_not_forgotten(state, view, ask, limits)
            elif running := running_members(view, ask.application):
                raise ContractBroken("forgotten", f"{ask} waits for others of its gang, and {running} run")
            continue
        held = state.gangs.hold_of(ask) is not None
        at_rest = ask.spec.placeholder and is_at_rest(view, ask.spec.application_id)
        if held or (ask.reservation is not None and at_rest):
            check_held_gang(state, view, ask, limits)
            continue
        if _is_kept_back(state, ask, limits):
            continue
        usable = [node for node in _usable(state, ask) if has_room(state, node, ask) and finds_devices(node, ask)]
        if roomy := topology.lawful_nodes(state, ask, usable):
            raise ContractBroken("forgotten", f"{ask} fits {roomy}")


def check_questions(state: PartitionState, questions: Iterable[Effect]) -> None:
    """An ask is held on a node only while the shim is being asked whether it may run there, or about others of its
    gang, which is placed as a whole."""
    allocating = [q for q in questions if isinstance(q, PredicatesAsked) and q.allocate]
    asked = {(q.key, q.node_ids[0]) for q in allocating}
    gangs = {q.application_id for q in allocating}
    for node in state.nodes.values():
        for ask in node.held.values():
            with_gang = ask.spec.task_group and ask.spec.application_id in gangs
            if (ask.spec.key, node.node_id) not in asked and not with_gang:
                raise ContractBroken("held", f"{ask} is held on {node}, and nobody is asked")


def _is_kept_back(state: PartitionState, ask: Allocation, limits: Quotas) -> bool:
    """By a quota or limit. What is held for asks that the shim has to agree to counts too, and so does what others have
    preempted for, but only the core knows of either."""
    claimed = any(queue.claims for queue in ask.queue.lineage())
    if (state.held_count or claimed) and finding.exceeded_limit(state, ask) is not None:
        return True
    if state.held_count:
        return False
    if is_kept_below(state, ask):
        return True
    return limits.exceeded(ask.spec.application_id, ask.shape.resources) is not None


def _usable(state: PartitionState, ask: Allocation) -> list[Node]:
    refused = ask.refused or {}
    if ask.spec.required_node:
        node = state.nodes.get(ask.spec.required_node)
        nodes = [node] if node is not None else []
    else:
        nodes = [n for n in state.nodes.values() if n.schedulable]
        if ask.reservation is not None:
            nodes.append(ask.reservation.node)
    return [node for node in nodes if node.node_id not in refused]
