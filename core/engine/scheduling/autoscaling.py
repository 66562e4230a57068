"""Reports asks to the shim that would be placed if there were more nodes, once per ask (scheduling.md 16).

Reports are sent once a second while a client listens. Only configured limits count, not the size of the cluster. An ask
that fits the limits uses them up for the asks after it, so a queue that could run ten more tasks reports ten asks,
however many wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from kornel.core.domain.ask_places import WaitsFor
from kornel.core.domain.effects import SchedulingFailed
from kornel.core.domain.history.events import shorten_event_text
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.orders.waiting_rooms import is_asleep
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.policies.application_order import application_key
from kornel.core.policies.queue_order import queue_key
from kornel.core.state.history.event_texts import describe_refusals
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.places import refused_asks

INTERVAL_NS: Final = 10**9

Headroom = dict[int, int]
"""The amounts that may still be used, by type; a missing type is unlimited."""


def start(state: PartitionState, now_ns: int) -> None:
    """Reports every second from now on, until no client listens any more."""
    if state.autoscaling or not state.callbacks.scheduling_states:
        return
    state.autoscaling = True
    state.run_at(now_ns + INTERVAL_NS, partial(_look_regularly, state))


def _look_regularly(state: PartitionState, now_ns: int) -> None:
    state.autoscaling = state.callbacks.scheduling_states
    if state.autoscaling:
        report_asks(state)
        state.run_at(now_ns + INTERVAL_NS, partial(_look_regularly, state))


def report_asks(state: PartitionState) -> None:
    """Reports every ask that waits for a node and has not been reported yet."""
    if not state.root.waiting:
        return
    reserved: dict[Application, list[Allocation]] = {}
    for reservation in state.reservations.values():
        if reservation.by_age:
            reserved.setdefault(reservation.ask.application, []).append(reservation.ask)
    for ask in refused_asks(state):
        if ask.reservation is None:
            reserved.setdefault(ask.application, []).append(ask)
    _walk_queues(state, state.root, [], reserved)


def _walk_queues(
    state: PartitionState, queue: Queue, above: list[Headroom], apart: dict[Application, list[Allocation]]
) -> None:
    """Reports asks of *queue* and all queues below it in scheduling order. *above*: the headroom of each ancestor with
    a max, which all queues below it share."""
    path = above
    if queue.parent is not None and queue.max:
        path = [*above, {t: most - queue.used[t] for t, most in queue.max.items()}]
    if not queue.leaf:
        for child in sorted(queue.children.values(), key=queue_key):
            if child.waiting:
                _walk_queues(state, child, path, apart)
        return
    for application in sorted(queue.applications.values(), key=application_key):
        if application.asks:
            _look_at(state, application, path, apart.get(application, []))


def _look_at(state: PartitionState, application: Application, path: list[Headroom], apart: list[Allocation]) -> None:
    """Counts the asks of one application that its limits allow, and reports those that have not been reported yet."""
    left = _find_least(path)
    told: list[Allocation] = []
    for _, asks, pairs, unknown in sorted(_tried_asks(state, application, apart), key=lambda entry: entry[0]):
        if isinstance(asks, AskGroup):
            fitting = min(asks.size, _count_fitting(left, pairs))
            if unknown:
                told += [ask for ask in asks.asks()[:fitting] if not ask.scale_up]
        else:
            fitting = min(1, _count_fitting(left, pairs))
            if fitting and unknown:
                told.append(asks)
        for t, amount in pairs:
            if t in left:
                left[t] -= fitting * amount
    for ask in told:
        ask.scale_up = True
        if ask.group is not None:
            ask.group.scale_ups += 1
        state.effects.append(SchedulingFailed(application.application_id, ask.spec.key, _write_reason(state, ask)))
        for headroom in path:
            for t, amount in ask.shape.pairs:
                if t in headroom:
                    headroom[t] -= amount


def _write_reason(state: PartitionState, ask: Allocation) -> str:
    """Returns why no node takes *ask*: what the shim refused, and that no other node has room, if there are any."""
    lack, refused = ask.shape.write_lack(), ask.refused
    if not refused:
        return lack
    told = describe_refusals(refusal.reason for refusal in refused.values())
    return shorten_event_text(told if len(refused) >= len(state.node_order) else f"{told}; no other{lack[2:]}")


def _tried_asks(
    state: PartitionState, application: Application, apart: list[Allocation]
) -> Iterator[tuple[tuple[int, int, int], AskGroup | Allocation, Pairs, bool]]:
    """Yields (order, asks, demand, whether any is unreported) for asks that were tried and found no room in the
    cluster.

    Asks that wait for room under a quota exceed their limits, so they need not be looked at.
    """
    for group in application.groups.values():
        if group.waits_for is WaitsFor.ROOM_FOR_GANG:
            # The members of a gang may differ, and all of them lack room as long as one does.
            for ask in group.asks():
                yield ask.order, ask, ask.shape.pairs, not ask.scale_up
            continue
        waits = is_asleep(group) and group.parked_at is state.no_room.get(group.shape)
        waits = waits or group.parked_at is state.waiting_for_domain
        if waits and not group.required_node:
            yield group.head_order(), group, group.shape.pairs, group.scale_ups < group.size
    for ask in apart:
        if not ask.spec.required_node and not ask.triggered:
            yield ask.order, ask, ask.shape.pairs, not ask.scale_up


def _find_least(path: list[Headroom]) -> Headroom:
    least: Headroom = {}
    for headroom in path:
        for t, amount in headroom.items():
            least[t] = min(amount, least.get(t, amount))
    return least


def _count_fitting(headroom: Headroom, pairs: Pairs) -> int:
    """Returns how many times *pairs* fit into *headroom*."""
    times = min((headroom[t] // amount for t, amount in pairs if t in headroom), default=1 << 62)
    return max(0, times)
