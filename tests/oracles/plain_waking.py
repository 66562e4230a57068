"""Plain waking: whenever something is gained, everybody who waits is tried again, whatever it is that he waits for.

The engine wakes only those whom a change can help, and wakes nobody else. That must never show: both ways of waking
give the same allocations, releases, rejections and victims, in the same order and at the same times.

Left out are those of whom the words of the rules say that nothing that changed can help them. Whom a limit keeps back
is woken when it has been chosen who may save there, because an ask begins to save before others are tried
(preemption.md B.7, "Below limits"), and only those that wait can be chosen. An application that waits for a limit of
applications is woken if that lets it start, because meanwhile it lends its queue no rank (G.1). Those that wait for
room on a node are tried while there is some for them, or a try may do more than take that (scheduling.md 7.2). Who may
use what is saved is judged from the words of the rule.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, Final
from unittest import mock
from weakref import WeakKeyDictionary

from kornel.core.domain.ask_places import AskMove, AskPlace
from kornel.core.engine.scheduling import cycle
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.orders.waiting_rooms import WaitingRoom
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import book_amounts
from kornel.core.model.users import Account
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission, turns, waking
from kornel.core.state.waiting.places import move_ask, refused_asks, resume_waiting
from kornel.core.state.waiting.rooms import activate_group, look_again, offer_application, park_without_node
from tests.properties.held_room import has_room
from tests.properties.lending import is_kept_below

AT_A_GAIN: Final = ("wake_for_node", "wake_for_queue", "wake_for_account", "wake_for_turn", "wake_for_domains")
"""The functions of the engine that are called when something was gained; ``wake_waiting`` is called otherwise, too."""

_woken_later: Final = WeakKeyDictionary[PartitionState, dict[AskGroup, None]]()
"""The groups that wait at limits and are woken before the next ask is chosen."""
_woken_for_room: Final = WeakKeyDictionary[PartitionState, dict[AskGroup, None]]()
"""The groups that waited for room on a node and have been woken."""


@contextmanager
def waking_everybody() -> Iterator[None]:
    """Makes all engines wake plainly."""
    replaced = {name: _wake_all_after(getattr(waking, name)) for name in AT_A_GAIN}
    replaced["wake_waiting"] = _wake_all_if_gained(waking.wake_waiting)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(cycle, "first_group", _wake_at_limits_before(turns.first_group)))
        patches.enter_context(mock.patch.object(turns, "open_rooms", _set_aside_before(turns.open_rooms)))
        for name, plain in replaced.items():
            sound = getattr(waking, name)
            for module in _engine_modules():
                if getattr(module, name, None) is sound:
                    patches.enter_context(mock.patch.object(module, name, plain))
        yield


def wake_everybody(state: PartitionState) -> None:
    """Wakes all asks and applications that wait in *state*, those at limits before the next of them is tried."""
    at_limits = {id(room): limit for limit in _list_limits(state) for room in limit.parked.values()}
    for_room = _woken_for_room.setdefault(state, {})
    without_node = [group for room in state.no_room.values() for group in room if isinstance(group, AskGroup)]
    for group in without_node:
        if _may_gain(state, group):
            for_room[group] = None
            group.shape.no_room = False
    for application in list(state.applications.values()):
        if application.held_at is not None and admission.may_run(state, application) is None:
            offer_application(application)
        for group in list(application.groups.values()):
            limit = at_limits.get(id(group.parked_at))
            if limit is not None and not _may_be_let(state, group, limit):
                _woken_later.setdefault(state, {})[group] = None
            elif limit is not None or _may_be_woken(state, group, for_room):
                activate_group(group)
    for ask in list(refused_asks(state)):
        if any(node.has_room_for(ask.shape) for node in state.node_order if node.node_id not in (ask.refused or ())):
            move_ask(state, ask, AskMove.FORGIVE)
            resume_waiting(state, ask)
    for reservation in list(state.reservations.values()):
        if reservation.parked_at is not None:
            look_again(state, reservation)
    for waiting in (state.gangs.without_room, state.gangs.waiting_for_turn):
        state.gangs.to_match.update(waiting)
        waiting.clear()


def _list_limits(state: PartitionState) -> list[Queue | Account]:
    queues = state.queues.values()
    return [*queues, *(account for queue in queues for account in queue.accounts.values())]


def _may_be_let(state: PartitionState, group: AskGroup, limit: Queue | Account) -> bool:
    """Tells whether *limit* has room for *group* now, which nobody else saves there."""
    return limit.admits(group.shape.pairs) and not is_kept_below(state, group.first_ask())


def _wake_at_limits_before(first_group: Callable[[PartitionState], AskGroup | None]) -> Callable[..., AskGroup | None]:
    def plain(state: PartitionState) -> AskGroup | None:
        for group in _woken_later.pop(state, ()):
            if group.parked_at is not None:
                activate_group(group)
        return first_group(state)

    return plain


def _set_aside_before(open_rooms: Callable[[PartitionState], list[WaitingRoom]]) -> Callable[..., list[WaitingRoom]]:
    def plain(state: PartitionState) -> list[WaitingRoom]:
        woken = _woken_for_room.get(state, {})
        for group in list(woken):
            offered = group.parked_at is None and group in group.application.order
            if not offered or not _may_gain(state, group):
                del woken[group]
                if offered:
                    park_without_node(state, group, group.shape)
        return open_rooms(state)

    return plain


def _may_be_woken(state: PartitionState, group: AskGroup, for_room: Container[AskGroup]) -> bool:
    """Tells whether *group* waits for something that may have been gained: for room on a node if it is *for_room*."""
    room = group.parked_at
    if room is None or room is group.application.held_groups or room is state.gangs.gathering:
        return False
    return group in for_room or room is not state.no_room.get(group.shape)


def _may_gain(state: PartitionState, group: AskGroup) -> bool:
    """Tells whether a node has room for *group*, or a try of it may do more than take that."""
    leaf, ask = group.application.queue, group.first_ask()
    if group.is_unit or group.due or leaf.properties.unschedulable_backoff or ask.spec.topology is not None:
        return True
    if any(_may_inherit(ask, holder) for ask in group.unordered_asks() for holder in leaf.claimants):
        return True
    devices = ask.shape.devices
    return any(has_room(state, node, ask) and node.has_devices(devices, ask) for node in state.node_order)


def _may_inherit(ask: Allocation, holder: Allocation) -> bool:
    """Tells whether *ask* may preempt and comes before *holder*, and what is idle or leaving for that one, and beside
    all claims, is enough for it."""
    claim, bound = holder.reservation, holder.spec.required_node or holder.place is AskPlace.HELD
    if claim is None or bound or holder.turn_priority >= ask.turn_priority or not ask.spec.allow_preempt_other:
        return False
    room = list(claim.node.beside)
    book_amounts(room, claim.pairs)
    return all(room[t] >= amount for t, amount in ask.shape.pairs)


def _engine_modules() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("kornel.core.")]


def _wake_all_after(wake: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(wake)
    def plain(state: PartitionState, *rest: Any) -> Any:
        result = wake(state, *rest)
        wake_everybody(state)
        return result

    return plain


def _wake_all_if_gained(wake: Callable[[PartitionState], None]) -> Callable[[PartitionState], None]:
    @wraps(wake)
    def plain(state: PartitionState) -> None:
        gained = bool(state.gained)
        wake(state)
        if gained:
            wake_everybody(state)

    return plain
