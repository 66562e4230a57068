"""What waits for a shim that does not read, and what becomes of it."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest

from kornel.core.domain.commands import AttachCallbacks
from kornel.core.domain.effects import (
    Effect,
    EventRecorded,
    NodeAccepted,
    PlacementVoid,
    PredicatesAsked,
    PreemptionPredicatesAsked,
    SchedulingFailed,
)
from kornel.core.service.callbacks import callback_board
from kornel.core.service.callbacks.callback_board import CallbackBoard, CallbackStream
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.wire.callback_wire import Outgoing, Subscription

EVERYTHING = AttachCallbacks("rm-1", predicates=True, preemption_predicates=True, scheduling_states=True, events=True)


class Desk:
    """A board with one attached stream that is read when the test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = ServiceMetrics()
        logger = build_logger(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
        self.board = CallbackBoard(clock=self.clock, metrics=self.metrics, logger=logger)
        self.stream = self.attach(EVERYTHING)

    def attach(self, wanted: AttachCallbacks) -> CallbackStream:
        stream = self.board.open()
        self.board.attach_stream(stream, Subscription(wanted))
        attached = self.board.take_message(stream)
        assert attached == Outgoing(attached=True)
        return stream

    def take(self) -> Outgoing:
        outgoing = self.board.take_message(self.stream)
        assert outgoing is not None
        return outgoing


def ask(number: int, *names: str) -> PredicatesAsked:
    return PredicatesAsked(number, "p", "app", "k", names or ("n1",), allocate=True)


def numbers(asked: Iterable[PredicatesAsked | PreemptionPredicatesAsked]) -> list[int]:
    return [question.question for question in asked]


def test_too_many_questions_push_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest expire first, so they go first."""
    monkeypatch.setattr(callback_board, "QUESTIONS_WAITING", 3)
    desk = Desk()
    desk.board.deliver_effects([ask(n) for n in range(5)])
    assert numbers(desk.take().predicates) == [2, 3, 4]
    assert (desk.metrics.questions_sent, desk.metrics.questions_dropped) == (3, 2)


def test_too_many_scheduling_states_push_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ask that still waits may be told of again; the newest say most."""
    monkeypatch.setattr(callback_board, "NOTICES_WAITING", 2)
    desk = Desk()
    desk.board.deliver_effects([SchedulingFailed("app", f"k{n}", "no room") for n in range(3)])
    assert [state.key for state in desk.take().scheduling_states] == ["k1", "k2"]
    assert (desk.metrics.scheduling_states_sent, desk.metrics.scheduling_states_dropped) == (2, 1)


def test_expired_questions_are_not_asked_even_if_nothing_new_comes() -> None:
    """A question counts from the slice that asked it; the one that is just in time is sent."""
    desk = Desk()
    desk.board.deliver_effects([ask(1)])
    desk.clock.advance(SECOND_NS // 2)
    desk.board.deliver_effects([ask(2)])
    desk.clock.advance(SECOND_NS // 2)
    assert numbers(desk.take().predicates) == [2]
    assert desk.board.take_message(desk.stream) is None
    assert desk.metrics.questions_dropped == 1


def test_a_message_is_bounded_by_the_names_in_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions with many nodes or victims take several messages; a single one is never cut."""
    monkeypatch.setattr(callback_board, "NAMES_PER_MESSAGE", 4)
    desk = Desk()
    large = tuple(f"n{n}" for n in range(9))
    asked: list[Effect] = [
        ask(1, "a", "b"),
        PreemptionPredicatesAsked(2, "p", "app", "k", "n1", ("v1", "v2"), 0),
        ask(3, "a"),
        ask(4, *large),
        ask(5),
    ]
    desk.board.deliver_effects(asked)
    messages = []
    while (outgoing := desk.board.take_message(desk.stream)) is not None:
        messages.append((numbers(outgoing.predicates), numbers(outgoing.preemption_predicates)))
    assert messages == [([1], [2]), ([3], []), ([4], []), ([5], [])]


async def test_events_that_were_not_read_lose_the_next_interval() -> None:
    """Never more than one interval waits on a stream."""
    desk = Desk()
    for name in ("a", "b"):
        desk.board.deliver_effects([EventRecorded(1, name, "", 0, 0, 0, None, "")])
        desk.clock.advance(2 * SECOND_NS)
    assert [event.object_id for event in desk.take().events] == ["a"]
    assert (desk.metrics.events_sent, desk.metrics.events_dropped) == (1, 1)


def test_decisions_are_not_the_boards_business() -> None:
    """What another stream carries leaves no trace here."""
    desk = Desk()
    desk.board.deliver_effects([NodeAccepted("n1")])
    assert desk.board.take_message(desk.stream) is None


def test_each_attachment_is_told_from_the_one_before_even_if_equal() -> None:
    """So that the engine is told when another stream with the same wishes takes over."""
    desk = Desk()
    first = desk.board.attachment
    second = desk.attach(AttachCallbacks(*(getattr(EVERYTHING, name) for name in AttachCallbacks.__slots__)))
    assert desk.board.attachment == first
    assert desk.board.attachment is not first
    desk.board.close(second)
    assert desk.board.attachment is first


def test_what_a_stream_did_not_send_before_it_ended_is_counted() -> None:
    """Nothing is kept for a stream that may never come."""
    desk = Desk()
    changes: list[str] = []
    desk.board.on_change = lambda: changes.append("changed")
    desk.board.deliver_effects([ask(1), SchedulingFailed("app", "k", "no room")])
    desk.board.close(desk.stream)
    assert (desk.metrics.questions_dropped, desk.metrics.scheduling_states_dropped) == (1, 1)
    assert desk.board.attachment is None
    assert changes == ["changed"]
    desk.board.deliver_effects([ask(2)])
    desk.board.close(desk.stream)
    assert changes == ["changed"]


async def test_a_new_life_of_the_manager_hears_nothing_of_the_asks_of_the_old_one() -> None:
    """DB-4: questions and scheduling states that were not read are dropped; events are history and stay."""
    desk = Desk()
    desk.board.deliver_effects(
        [ask(1), SchedulingFailed("app", "k", "no room"), EventRecorded(1, "e", "", 0, 0, 0, None, "")]
    )
    desk.board.start_afresh()
    assert desk.board.take_message(desk.stream) is None
    desk.clock.advance(2 * SECOND_NS)
    outgoing = desk.take()
    assert [event.object_id for event in outgoing.events] == ["e"]
    assert not outgoing.predicates
    assert (desk.metrics.questions_dropped, desk.metrics.scheduling_states_dropped) == (1, 1)


def test_what_was_not_placed_goes_before_the_questions_in_messages_of_a_bounded_length() -> None:
    desk = Desk()
    desk.board.deliver_effects([PlacementVoid("p", f"k{n}") for n in range(2_500)])
    desk.board.deliver_effects([ask(1)])
    messages = [desk.take() for _ in range(3)]
    assert [len(message.not_placed) for message in messages] == [1_000, 1_000, 500]
    assert [numbers(message.predicates) for message in messages] == [[], [], [1]]
