"""Plain waking: whenever something is gained, everybody who waits is tried again, whatever it is that he waits for.

The engine wakes only those whom a change can help, and wakes nobody else. That must never show: both ways of waking
give the same allocations, releases, rejections and victims, in the same order and at the same times.

Those who wait at a limit are woken when it has been chosen who may save there, because an ask begins to save before
others are tried (preemption.md B.7, "Below limits"), and only those that wait can be chosen. An application that waits
for a limit of applications is woken if that lets it start, because meanwhile it lends its queue no rank (G.1).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, Final
from unittest import mock
from weakref import WeakKeyDictionary

from kornel.core.domain.ask_places import AskMove
from kornel.core.engine.scheduling import cycle
from kornel.core.model.allocations import AskGroup
from kornel.core.model.queues import Queue
from kornel.core.model.users import Account
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission, turns, waking
from kornel.core.state.waiting.places import move_ask, refused_asks, resume_waiting
from kornel.core.state.waiting.rooms import activate_group, look_again, offer_application

AT_A_GAIN: Final = ("wake_for_node", "wake_for_queue", "wake_for_account", "wake_for_turn", "wake_for_domains")
"""The functions of the engine that are called when something was gained; ``wake_waiting`` is called otherwise, too."""

_woken_later: Final = WeakKeyDictionary[PartitionState, dict[AskGroup, None]]()
"""The groups that wait at limits and are woken before the next ask is chosen."""


@contextmanager
def waking_everybody() -> Iterator[None]:
    """Makes all engines wake plainly."""
    replaced = {name: _wake_all_after(getattr(waking, name)) for name in AT_A_GAIN}
    replaced["wake_waiting"] = _wake_all_if_gained(waking.wake_waiting)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(cycle, "first_group", _wake_at_limits_before(turns.first_group)))
        for name, plain in replaced.items():
            sound = getattr(waking, name)
            for module in _engine_modules():
                if getattr(module, name, None) is sound:
                    patches.enter_context(mock.patch.object(module, name, plain))
        yield


def wake_everybody(state: PartitionState) -> None:
    """Wakes all asks and applications that wait in *state*, those at limits before the next of them is tried."""
    at_limits = {id(room) for limit in _list_limits(state) for room in limit.parked.values()}
    for shape in state.no_room:
        shape.no_room = False
    for application in list(state.applications.values()):
        if application.held_at is not None and admission.may_run(state, application) is None:
            offer_application(application)
        for group in list(application.groups.values()):
            if id(group.parked_at) in at_limits:
                _woken_later.setdefault(state, {})[group] = None
            elif group.parked_at is not None and group.parked_at is not application.held_groups:
                activate_group(group)
    for ask in list(refused_asks(state)):
        move_ask(state, ask, AskMove.FORGIVE)
        resume_waiting(state, ask)
    for reservation in list(state.reservations.values()):
        if reservation.parked_at is not None:
            look_again(state, reservation)
    state.no_room.clear()
    for waiting in (state.gangs.without_room, state.gangs.waiting_for_turn):
        state.gangs.to_match.update(waiting)
        waiting.clear()


def _list_limits(state: PartitionState) -> list[Queue | Account]:
    queues = state.queues.values()
    return [*queues, *(account for queue in queues for account in queue.accounts.values())]


def _wake_at_limits_before(first_group: Callable[[PartitionState], AskGroup | None]) -> Callable[..., AskGroup | None]:
    def plain(state: PartitionState) -> AskGroup | None:
        for group in _woken_later.pop(state, ()):
            if group.parked_at is not None:
                activate_group(group)
        return first_group(state)

    return plain


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
