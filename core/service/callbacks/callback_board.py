"""Chooses the callback stream of a shim that is asked, and keeps the questions that wait for it.

Of the attached streams, the last one is asked; when it ends, the one attached before it. Unlike decisions, questions
are useless when they are late, because the engine stops waiting after the timeout. So questions that a shim does not
read in time are dropped, and nothing is kept for a stream that does not exist yet.

Rules: protocol.md 13, ``proto/kornel/v1/callback.proto``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import AnswerCallbacks, AttachCallbacks, CommandRefused, Fault
from kornel.core.domain.effects import (
    Effect,
    EventRecorded,
    NoticeEffect,
    PlacementVoid,
    PredicatesAsked,
    PreemptionNotice,
    PreemptionNoticeWithdrawn,
    PreemptionPredicatesAsked,
    SchedulingFailed,
)
from kornel.core.domain.history.event_records import unpack_effects
from kornel.core.service.callbacks.callback_times import CallbackTimes
from kornel.core.service.callbacks.event_feed import EventFeed
from kornel.core.service.machine.clock import SECOND_NS, Clock
from kornel.core.service.metrics.metrics import Durations, ServiceMetrics
from kornel.core.service.streams.presence import PresenceKeeper
from kornel.core.service.streams.sessions import SESSION, Session
from kornel.core.service.wire.callback_wire import Outgoing, Subscription

QUESTIONS_PER_MESSAGE: Final = 1_000
NAMES_PER_MESSAGE: Final = 20_000
"""The most node IDs and victims in one message, unless a single question has more: about 1 MB, within the 4 MiB that a
client accepts."""

NOTICES_PER_MESSAGE: Final = 1_000

QUESTIONS_WAITING: Final = 50_000
"""The most questions that wait for a slow reader, as long as their timeout allows."""

NOTICES_WAITING: Final = 10_000
"""The most scheduling states that wait for a slow reader, and the most preemption notices."""

PREEMPTION_NOTICES_PER_MESSAGE: Final = 20
"""The most notices in a message, because each may name a thousand allocations."""


_DELIVERED: Final = frozenset(
    {
        PredicatesAsked,
        PreemptionPredicatesAsked,
        SchedulingFailed,
        PreemptionNotice,
        PreemptionNoticeWithdrawn,
        PlacementVoid,
    }
)
"""The effects that go to the stream that is asked, except events, which only go to subscribers."""


class NoStateDump(Exception):
    """The state of the shim cannot be obtained; the text says why."""


class CallbackStream:
    """One open callback stream. It is attached once its subscription is accepted."""

    __slots__ = (
        "_news", "attached", "board", "dumps", "ending", "error", "events", "not_placed", "notices", "questions",
        "scheduling_states", "session", "subscription",
    )  # fmt: skip

    def __init__(self, board: CallbackBoard) -> None:
        self.board = board
        """The board that serves it."""
        self.subscription: Subscription | None = None
        self.session = SESSION.get()
        """The program that opened it."""
        self.attached = False
        """Tells whether the shim is still to be notified that its subscription was accepted."""
        self.ending = False
        self.error: Exception | None = None
        """The reason why it ends; ``None``: it ends without an error."""
        self.questions: deque[tuple[int, PredicatesAsked | PreemptionPredicatesAsked]] = deque()
        """The questions as (time when it expires, question), the oldest first."""
        self.scheduling_states: deque[SchedulingFailed] = deque()
        self.notices: deque[NoticeEffect] = deque()
        self.not_placed: deque[PlacementVoid] = deque()
        self.events: deque[EventRecorded] = deque()
        self.dumps: deque[int] = deque()
        self._news = asyncio.Event()

    def wake_writer(self) -> None:
        """Wakes the writer of the stream."""
        self._news.set()

    async def wait_for_news(self) -> None:
        """Returns when there may be something to send, or the stream is ending."""
        await self._news.wait()
        self._news.clear()


class CallbackBoard:
    """Keeps all callback streams of one manager. It is used from the event loop's thread only."""

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
        presence: PresenceKeeper | None = None,
        latency: Durations | None = None,
    ) -> None:
        """Makes a board without streams. *presence* is notified of every stream that is attached, *latency* of how long
        each answer took."""
        self._clock = clock
        self._presence = presence
        self._metrics = metrics
        self._feed = EventFeed(self._push_events, clock=clock, metrics=metrics, logger=logger)
        self._open: dict[CallbackStream, None] = {}
        self._attached: list[CallbackStream] = []
        """The streams that are attached, in the order in which they were attached."""
        self._dump_number = 0
        self._dumps: dict[int, tuple[CallbackStream, asyncio.Future[str]]] = {}
        self.delivered = 0
        """The number of times that there was something new for a stream to tell, besides events."""
        self.times = CallbackTimes(latency)
        """The times that the shim takes to answer."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when :attr:`attachment` may have changed outside the partition task."""

    @property
    def attachment(self) -> AttachCallbacks | None:
        """The subscription that the engine should have; a different object after every change."""
        receiver = self._find_receiver()
        return None if receiver is None else _subscription_of(receiver).attachment

    def open(self) -> CallbackStream:
        """Returns a new stream, which is not attached yet."""
        stream = CallbackStream(self)
        self._open[stream] = None
        self._metrics.streams_opened += 1
        return stream

    def take_over(self, stream: CallbackStream) -> None:
        """Serves *stream*, which is open and has not subscribed yet, from now on in place of the board that opened
        it."""
        if stream in stream.board._open:
            del stream.board._open[stream]
            self._open[stream] = None
        stream.board = self

    def attach_stream(self, stream: CallbackStream, subscription: Subscription) -> None:
        """Attaches *stream*, which is asked from now on."""
        stream.subscription = subscription
        stream.attached = True
        self._attached.append(stream)
        if self._presence is not None:
            self._presence.note_opened(subscription.attachment.rm_id)
        stream.wake_writer()

    def close(self, stream: CallbackStream) -> None:
        """Removes *stream*, which has ended."""
        if stream in self._open:
            del self._open[stream]
        self._detach_stream(stream, "its stream ended before it answered")

    def end_stream(self, stream: CallbackStream, error: Exception | None) -> None:
        """Ends *stream*, with *error* or without one."""
        if stream.ending:
            return
        stream.ending = True
        stream.error = error
        self._detach_stream(stream, "its stream ended before it answered")
        stream.wake_writer()

    def finish_all(self, error: Exception) -> None:
        """End every open stream with *error*."""
        for stream in list(self._open):
            self.end_stream(stream, error)

    def sessions(self) -> set[Session]:
        """Returns the sessions of all attached streams."""
        return {stream.session for stream in self._attached}

    def supersede(self, sessions: Container[Session], error: Exception) -> None:
        """End every stream of *sessions* with *error*."""
        for stream in list(self._open):
            if stream.session in sessions:
                self.end_stream(stream, error)

    def note_registration(self, rm_id: str, extra_config: Mapping[str, str]) -> None:
        """Notes, after a registration or update, that *rm_id*, if any, is registered with these settings."""
        self._feed.follow_settings(extra_config)
        for stream in list(self._attached):
            theirs = _subscription_of(stream).attachment.rm_id
            if theirs != rm_id:
                refusal = CommandRefused(
                    Fault.UNKNOWN_MANAGER, f"AttachRequest: resource manager {theirs!r} is not registered any more"
                )
                self.end_stream(stream, refusal)

    def start_afresh(self) -> None:
        """Drops what concerns asks from before a new registration of the manager (protocol.md DB-4). Events stay,
        because they are history."""
        for stream in self._attached:
            self._drop_what_concerns_asks(stream)

    def deliver_effects(self, effects: Sequence[Effect]) -> None:
        """Passes those *effects* that are questions or notices to the stream that is asked, if it has subscribed to
        them."""
        stream = self._find_receiver()
        if stream is None:
            return
        wanted = _subscription_of(stream).attachment
        if _DELIVERED.isdisjoint(map(type, effects)) and not wanted.events:
            return
        expires_ns = self._clock.now_ns() + wanted.timeout_ns
        news = False
        for effect in unpack_effects(effects) if wanted.events else effects:
            if isinstance(effect, (PredicatesAsked, PreemptionPredicatesAsked)):
                stream.questions.append((expires_ns, effect))
                news = True
            elif isinstance(effect, EventRecorded):
                if wanted.events:
                    self._feed.record_event(effect)
            elif isinstance(effect, SchedulingFailed) and wanted.scheduling_states:
                stream.scheduling_states.append(effect)
                news = True
            elif isinstance(effect, (PreemptionNotice, PreemptionNoticeWithdrawn)) and wanted.preemption_notices:
                stream.notices.append(effect)
                news = True
            elif isinstance(effect, PlacementVoid):
                stream.not_placed.append(effect)
                news = True
        if news:
            self.delivered += 1
            self._trim_backlog(stream)
            stream.wake_writer()

    def take_message(self, stream: CallbackStream) -> Outgoing | None:
        """Returns the content of the next message for *stream*. ``None``: there is none right now."""
        outgoing = Outgoing()
        if stream.attached:
            stream.attached = False
            outgoing.attached = True
            return outgoing
        self._trim_backlog(stream)
        if not (
            stream.questions
            or stream.scheduling_states
            or stream.notices
            or stream.events
            or stream.dumps
            or stream.not_placed
        ):
            return None
        # These come before the questions, because later questions have to be judged without these placements.
        outgoing.not_placed = _first_of(stream.not_placed, NOTICES_PER_MESSAGE)
        if not stream.not_placed:
            self._take_questions(stream, outgoing)
        outgoing.scheduling_states = _first_of(stream.scheduling_states, NOTICES_PER_MESSAGE)
        outgoing.notices = self._date_notices(_first_of(stream.notices, PREEMPTION_NOTICES_PER_MESSAGE))
        outgoing.events = _first_of(stream.events, NOTICES_PER_MESSAGE)
        if stream.dumps:
            outgoing.state_dump = stream.dumps.popleft()
        if outgoing.predicates or outgoing.preemption_predicates:
            self._metrics.questions_sent += len(outgoing.predicates) + len(outgoing.preemption_predicates)
            asked = [question.question for question in outgoing.predicates]
            asked += [question.question for question in outgoing.preemption_predicates]
            self.times.note_asked(asked, self._clock.now_ns())
        self._metrics.scheduling_states_sent += len(outgoing.scheduling_states)
        self._metrics.preemption_notices_sent += len(outgoing.notices)
        self._metrics.events_sent += len(outgoing.events)
        return outgoing

    def _date_notices(self, notices: list[NoticeEffect]) -> list[NoticeEffect]:
        """Returns *notices* with deadlines by the wall clock, because the shim compares them with its own clock."""
        ahead_ns = self._clock.ahead_s * SECOND_NS
        if not ahead_ns:
            return notices
        return [
            notice._replace(deadline_ns=notice.deadline_ns + ahead_ns)
            if isinstance(notice, PreemptionNotice)
            else notice
            for notice in notices
        ]

    async def state_dump(self) -> str:
        """Returns the state of the shim as it describes it. Raises :class:`NoStateDump`."""
        stream = self._find_receiver()
        if stream is None or not _subscription_of(stream).state_dump:
            raise NoStateDump("no shim is attached that answers state dumps")
        self._dump_number += 1
        number = self._dump_number
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._dumps[number] = stream, answer
        stream.dumps.append(number)
        stream.wake_writer()
        timeout_ns = _subscription_of(stream).attachment.timeout_ns
        late = f"the shim did not answer within {timeout_ns // 1_000_000} ms"
        timer = self._clock.call_at(self._clock.now_ns() + timeout_ns, lambda: _fail_answer(answer, late))
        try:
            return await answer
        finally:
            timer.cancel()
            del self._dumps[number]
            if number in stream.dumps:
                stream.dumps.remove(number)

    def take_answers(self, command: AnswerCallbacks) -> None:
        """Records the shim's answers to questions, whether or not they came in time."""
        answers = [answer.question for answer in command.predicates]
        answers += [answer.question for answer in command.preemption_predicates]
        if answers:
            self.times.note_answered(answers, self._clock.now_ns())

    def state_dumped(self, number: int, text: str, error: str) -> None:
        """Handles the answer to question *number*. If *error* is not empty, it says why there is no state."""
        asked = self._dumps.get(number)
        if asked is None:
            return
        answer = asked[1]
        if error:
            _fail_answer(answer, error)
        elif not answer.done():
            answer.set_result(text)

    def _find_receiver(self) -> CallbackStream | None:
        return self._attached[-1] if self._attached else None

    def _detach_stream(self, stream: CallbackStream, reason: str) -> None:
        self._drop_what_concerns_asks(stream)
        self._metrics.events_dropped += len(stream.events)
        stream.events.clear()
        for asked, answer in self._dumps.values():
            if asked is stream:
                _fail_answer(answer, reason)
        if stream in self._attached:
            self._attached.remove(stream)
            if self._presence is not None:
                self._presence.note_closed(_subscription_of(stream).attachment.rm_id)
            self.times.forget_questions()
            receiver = self._find_receiver()
            if receiver is None or not _subscription_of(receiver).attachment.events:
                self._feed.clear()
            self.on_change()

    def _drop_what_concerns_asks(self, stream: CallbackStream) -> None:
        self._metrics.questions_dropped += len(stream.questions)
        stream.questions.clear()
        stream.not_placed.clear()
        self._metrics.scheduling_states_dropped += len(stream.scheduling_states)
        stream.scheduling_states.clear()
        self._metrics.preemption_notices_dropped += len(stream.notices)
        stream.notices.clear()

    def _trim_backlog(self, stream: CallbackStream) -> None:
        """Drops questions that have expired, and what exceeds the bounds of the backlog."""
        questions = stream.questions
        now_ns = self._clock.now_ns()
        while questions and (questions[0][0] <= now_ns or len(questions) > QUESTIONS_WAITING):
            questions.popleft()
            self._metrics.questions_dropped += 1
        while len(stream.scheduling_states) > NOTICES_WAITING:
            stream.scheduling_states.popleft()
            self._metrics.scheduling_states_dropped += 1
        while len(stream.notices) > NOTICES_WAITING:
            stream.notices.popleft()
            self._metrics.preemption_notices_dropped += 1

    def _take_questions(self, stream: CallbackStream, outgoing: Outgoing) -> None:
        questions = stream.questions
        names = 0
        for _ in range(min(len(questions), QUESTIONS_PER_MESSAGE)):
            question = questions[0][1]
            if isinstance(question, PredicatesAsked):
                names += len(question.node_ids)
            else:
                names += len(question.victims)
            if names > NAMES_PER_MESSAGE and (outgoing.predicates or outgoing.preemption_predicates):
                return
            questions.popleft()
            if isinstance(question, PredicatesAsked):
                outgoing.predicates.append(question)
            else:
                outgoing.preemption_predicates.append(question)

    def _push_events(self, events: list[EventRecorded]) -> None:
        stream = self._find_receiver()
        if stream is None or stream.events:
            self._metrics.events_dropped += len(events)
            return
        stream.events.extend(events)
        stream.wake_writer()


def _subscription_of(stream: CallbackStream) -> Subscription:
    assert stream.subscription is not None, "only subscribed streams are attached"
    return stream.subscription


def _fail_answer(answer: asyncio.Future[str], reason: str) -> None:
    if not answer.done():
        answer.set_exception(NoStateDump(reason))


def _first_of(waiting: deque[Any], limit: int) -> list[Any]:
    return [waiting.popleft() for _ in range(min(len(waiting), limit))]
