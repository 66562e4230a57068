"""Gives up the placeholders of gangs that have waited too long (scheduling.md 10.5, S-9)."""

from __future__ import annotations

from typing import Final

from kornel.core.domain.application_states import AppEvent, AppState
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import TerminationType
from kornel.core.domain.effects import AskReleased
from kornel.core.domain.gangs import HARD
from kornel.core.engine import lifecycle
from kornel.core.engine.gangs import placeholders, replacement
from kornel.core.engine.withdrawing import withdraw_ask
from kornel.core.model.applications import Application
from kornel.core.preemption import eviction
from kornel.core.state.asks import questions
from kornel.core.state.asks.answers import answer_release
from kornel.core.state.asks.reservations import end_reservation
from kornel.core.state.partition_state import PartitionState

REASON: Final = "ResourceReservationTimeout"
"""The message of the state change; shims search for this word (protocol.md 11)."""


def give_up_expired(state: PartitionState, now_ns: int) -> None:
    """Gives up the placeholders of every application whose timer has ended since the last call."""
    while state.gangs.timed_out:
        application = next(iter(state.gangs.timed_out))
        del state.gangs.timed_out[application]
        _give_up(state, application, now_ns)


def _give_up(state: PartitionState, application: Application, now_ns: int) -> None:
    """Ends all placeholders of *application*; its real asks stay. Answers are sent in the order of the contract: those
    about waiting asks of G2 come first."""
    if application.state not in (AppState.RUNNING, AppState.COMPLETING):
        if application.spec.gang_style == HARD:
            lifecycle.fire_event(state, application, AppEvent.FAIL, now_ns, REASON)
            _stand_down(state, application)
        else:
            lifecycle.fire_event(state, application, AppEvent.RESUME, now_ns, REASON)
    pending = [ask for ask in application.asks.values() if ask.spec.placeholder]
    message = f"placeholders of application {application.application_id} waited too long"
    for ask in pending:
        withdraw_ask(state, ask, timed_out=True)
        if ask.spec.legacy:
            name = application.application_id
            state.effects.append(AskReleased(state.name, name, ask.spec.key, TerminationType.TIMEOUT, message))
    placeholders.dismiss_all(state, application, message)
    state.effects.extend(
        answer_release(state, ask, TerminationType.TIMEOUT, message) for ask in pending if not ask.spec.legacy
    )
    if pending:
        lifecycle.asks_withdrawn(state, application, now_ns)
    if not application.holds_any(placeholders=True):
        # No placeholder was placed, so no confirmation will come that would move the application on.
        lifecycle.no_placeholder_left(state, application, now_ns)


def _stand_down(state: PartitionState, application: Application) -> None:
    """Ends the replacements, reservations and claims of *application*: while it fails, it must not start anything or
    keep room from others."""
    for ask in list(application.asks.values()):
        questions.cancel_question(state, ask)
        if ask.place is AskPlace.REPLACING:
            replacement.undo_replacement(state, ask)
        if ask.reservation is not None:
            end_reservation(state, ask.reservation, requeue=True)
        eviction.forget_ask(state, ask)
