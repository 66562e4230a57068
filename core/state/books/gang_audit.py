"""Checks the invariants of gangs: the counts of task groups, the asks that wait in them, and the links of replacements
under way.

Rules: scheduling.md 10.1 to 10.3, 21 (I4, I10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.task_groups import TaskGroup
from kornel.core.state.books.findings import Broken
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.places import refused_asks
from kornel.core.state.waiting.rooms import UNSERVED


def check(state: PartitionState) -> Iterator[Broken]:
    """Yields every invariant about gangs that is violated."""
    for application in state.applications.values():
        running = Counter(a.spec.task_group for a in application.allocations.values() if a.spec.task_group)
        counted = {name: members.running for name, members in application.members.items() if members.running}
        if counted != running:
            yield Broken("10.7", application.application_id, f"{running} members run, {counted} are counted")
        for task_group in application.task_groups.values():
            yield from _check_task_group(state, application, task_group)
            looked_at = application in state.gangs.to_match or application in state.gangs.without_room
            looked_at = looked_at or application in state.gangs.waiting_for_turn
            looked_at = looked_at or any(ask.inquiry is not None or ask.pause_until_ns for ask in task_group.asks)
            if task_group.asks and task_group.free and not looked_at and application.state not in UNSERVED:
                yield Broken("10.3", application.application_id, f"nobody looks at what waits in {task_group.name}")
    for application in state.gangs.leaving:
        leaves = any(a.preempted and a not in state.stuck for a in application.allocations.values())
        if not leaves or not application.backoff_until_ns:
            yield Broken("B.10", application.application_id, "waits for the exit of its gang, which has left or stays")
    for key, request in state.requests.items():
        yield from _check_links(state, key, request)


def _check_task_group(state: PartitionState, application: Application, task_group: TaskGroup) -> Iterator[Broken]:
    where = f"{application.application_id}/{task_group.name}"
    held = [a for a in application.allocations.values() if _belongs_to(a, task_group) and a.spec.placeholder]
    asks = [a for a in application.asks.values() if _belongs_to(a, task_group)]
    present = len(held) + sum(ask.spec.placeholder for ask in asks)
    gone = task_group.replaced + task_group.timed_out
    if min(task_group.replaced, task_group.timed_out) < 0 or task_group.count != gone + present:
        yield Broken("I10", where, f"{task_group}, with {present} placeholders present")
    free = {placeholder for placeholder in held if not placeholder.released and not placeholder.preempted}
    if free != set(task_group.free):
        yield Broken("I10", where, f"free placeholders are {free}, kept are {set(task_group.free)}")
    refused = set(refused_asks(state))
    replaceable = {
        ask
        for ask in asks
        if task_group.open
        and not ask.spec.placeholder
        and ask.place is not AskPlace.REPLACING
        and ask.reservation is None
        and ask.place is not AskPlace.HELD
        and ask not in refused
    }
    if replaceable != set(task_group.asks) or any(ask.pool is not task_group for ask in replaceable):
        yield Broken("10.2", where, f"replaceable are {replaceable}, kept are {set(task_group.asks)}")


def _belongs_to(request: Allocation, task_group: TaskGroup) -> bool:
    return request.spec.task_group == task_group.name


def _check_links(state: PartitionState, key: str, request: Allocation) -> Iterator[Broken]:
    """Checks that the placeholder and the real ask of each pair refer to each other, and that the real ask is charged
    in advance only if it is to run on another node."""
    placeholder, real = request.replaces, request.replaced_by
    proposed = request.proposed_placeholder
    if proposed is not None and (proposed.proposed_by is not request or request.inquiry is None):
        yield Broken("10.3", key, "waits for the shim's answer about a placeholder that does not know it")
    if real is not None and (real.replaces is not request or not request.released or request.node is None):
        yield Broken("10.3", key, "linked to a real ask that does not know it, or not asked to leave")
    if placeholder is None:
        if request.node is not None and request.node.allocations.get(key) is not request:
            yield Broken("I4", key, "an allocation that its node does not know")
        return
    if placeholder.replaced_by is not request or state.requests.get(placeholder.key) is not placeholder:
        yield Broken("10.3", key, "replaces a placeholder that does not know it, or is gone")
    charged = request.node is not None and key in request.node.allocations
    if request.node is None or charged == (request.node is placeholder.node):
        yield Broken("I4", key, "a replacement is charged on its placeholder's node, or not on another one")
