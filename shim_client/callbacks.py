"""Answers to the core's questions, and the messages that the core sends besides its decisions
(``kornel.v1.CallbackService``).

A shim derives a class from :class:`CallbackHandler`, overrides the methods for the questions and messages that it wants
to handle, and passes an instance to :meth:`shim_client.ShimClient.attach_callbacks`. Questions are handled
concurrently, each in a separate task; answers that are ready are sent together. A question that is still open after the
timeout is given up, because the core has stopped waiting by then.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import grpc
import grpc.aio

from kornel.shim_client.errors import ConnectionLost, NotSupported, ShimClientError, StreamRefused, Superseded
from kornel.shim_client.stream import DuplexStream
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2 as pb

OPEN_QUESTIONS: Final = 10_000
"""The most questions handled at once. While there are that many, the stream is not read, and the core drops messages
that wait too long."""

NOTICES_WAITING: Final = 100
"""The most messages with notices that may wait for the handler. When there are more, the newest are dropped."""

ANSWERS_PER_REQUEST: Final = 2_000
PLACEMENTS_REMEMBERED: Final = 10_000
"""The most placements that are remembered as being in place. The question that waits for a placement arrives together
with it or soon afterwards, so older ones can be forgotten."""
CLOSE_GRACE_S: Final = 5.0

_LOGGER: Final = logging.getLogger(__name__)

Answer: TypeAlias = (
    pb.PredicatesAnswer
    | pb.PreemptionPredicatesAnswer
    | pb.StateDumpAnswer
    | pb.PreemptionNoticeAnswer
    | pb.PlacementKey
)
Attach: TypeAlias = "Callable[[], grpc.aio.StreamStreamCall[pb.AttachRequest, pb.AttachResponse]]"


class PredicatesQuestion(NamedTuple):
    """The core asks on which of these nodes the ask *key* may run. It prefers the first one, and has room on all of
    them.

    *allocate* is false if a node is to be reserved for the ask, or if the ask is to take the place of a placeholder
    there. *dependent* says that the answer depends on other placements: the handler has acknowledged those made so far,
    or had time to do so, and the answer permits only the first node that it does not refuse.
    """

    partition: str
    application_id: str
    key: str
    node_ids: tuple[str, ...]
    allocate: bool
    dependent: bool = False


class Judgement(NamedTuple):
    """An answer to a predicates question with more than the refused nodes.

    depends_on_placements  the answer could differ if other tasks were placed elsewhere
    in_place               from now on the handler counts the task as running on the first node that it does not
                           refuse; :meth:`CallbackHandler.not_placed` is called if the task does not run there
    """

    refused: Mapping[str, str]
    depends_on_placements: bool = False
    in_place: bool = False


class PreemptionQuestion(NamedTuple):
    """The core asks how many of *victims*, in their order, have to leave the node before the ask *key* could run there.

    At least the first *start_index* have to leave; the handler then tries one more at a time.
    """

    partition: str
    application_id: str
    key: str
    node_id: str
    victims: tuple[str, ...]
    start_index: int


class SchedulingState(NamedTuple):
    """The core reports that it tried an ask which quotas allow and could not place it, which is a reason to add
    nodes."""

    application_id: str
    key: str
    state: si.UpdateContainerSchedulingStateRequest.SchedulingState.ValueType
    reason: str


class PreemptionNotice(NamedTuple):
    """A warning that one application may have to give up allocations. Nothing has failed; the releases follow as usual.

    strict    these are released at *deadline_ms* (Unix time of the core) in any case: time to save a checkpoint
    at_risk   these are released then unless others of the application, with *need* in sum, were released before
    need      amounts by type; empty: the application cannot choose
    """

    notice_id: int
    partition: str
    application_id: str
    round: int
    strict: tuple[str, ...]
    at_risk: tuple[str, ...]
    need: Mapping[str, int]
    deadline_ms: int
    kind: str
    reason: str


class PreemptionWithdrawal(NamedTuple):
    """A message that *keys* of an earlier notice are no longer at risk."""

    notice_id: int
    partition: str
    application_id: str
    keys: tuple[str, ...]


class NoticeReply(NamedTuple):
    """The answer of an application to a preemption notice.

    instead      allocations of the application that it would rather lose
    checkpoints  the time of the last checkpoint in Unix nanoseconds, by allocation key
    """

    accepted: bool = True
    instead: Sequence[str] = ()
    checkpoints: Mapping[str, int] = MappingProxyType({})


class CallbackHandler:
    """The base class of a shim's handler. The client subscribes only to the questions and messages whose methods a
    subclass overrides.

    The methods run in the event loop and must not block. If a method raises, its question is answered with a refusal,
    and the stream goes on.
    """

    async def predicates(self, question: PredicatesQuestion) -> Mapping[str, str] | Judgement:
        """Returns the nodes of *question* on which the ask may not run, each with the reason. Several calls run at
        once, but never two with ``dependent`` set."""
        raise NotImplementedError

    def not_placed(self, partition: str, key: str) -> None:
        """Called when a task that was acknowledged, or answered with ``in_place``, does not run after all. No further
        question is handled before it has returned. A handler that overrides only this method subscribes to nothing."""

    async def preemption_predicates(self, question: PreemptionQuestion) -> int | None:
        """Returns the index of the last victim that has to leave, or ``None`` if preemption there would not help.
        Several calls run at once."""
        raise NotImplementedError

    async def scheduling_state(self, state: SchedulingState) -> None:
        """Called when the core found no room for an ask."""
        raise NotImplementedError

    async def preemption_notice(self, notice: PreemptionNotice) -> NoticeReply | None:
        """Called before allocations are preempted. Returns a reply, or ``None`` for no reply; later replies go through
        :meth:`CallbackAttachment.answer_notice`."""
        raise NotImplementedError

    async def preemption_withdrawn(self, withdrawal: PreemptionWithdrawal) -> None:
        """Called when an earlier notice no longer holds. A handler that overrides only this method subscribes to
        nothing."""

    async def events(self, events: Sequence[si.EventRecord]) -> None:
        """Called with events of the core, in order, at most every two seconds."""
        raise NotImplementedError

    async def state_dump(self) -> Mapping[str, Any]:
        """Returns the state of the shim for people to read: any value that :func:`json.dumps` accepts."""
        raise NotImplementedError


class CallbackAttachment:
    """A handler that stays attached to a core until the attachment or its client is closed.

    A stream that breaks is opened again. If that cannot help, because the core no longer knows the RM or stays
    unreachable for too long, the next registration through the same client attaches the handler again.
    """

    def __init__(
        self,
        handler: CallbackHandler,
        *,
        rm_id: str,
        timeout_s: float | None,
        start: Attach,
        connected: Callable[[], Awaitable[None]],
        ended: Callable[[Any], object] = lambda metadata: None,
    ) -> None:
        """Prepares an attachment; *start* opens the RPC, *connected* waits for a connection.

        Without *timeout_s* the core's default applies. *ended* is called with the trailing metadata of each RPC.
        """
        self.timeout_s: float = 0.0
        """The seconds that the core waits for an answer; 0 until the handler is attached."""
        self._handler = handler
        self._rm_id = rm_id
        self._wanted_timeout_s = timeout_s
        self._start = start
        self._connected = connected
        self._ended = ended
        self._answers = _Answers()
        self._placements = _PlacementsInPlace()
        self._core_names_placements = False
        """Says whether the core names, with each question, the placement that the question has to wait for. Such a core
        needs no acknowledgements."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._notices: asyncio.Queue[pb.AttachResponse] = asyncio.Queue(NOTICES_WAITING)
        self._registered_again = asyncio.Event()
        self._settled = asyncio.Event()
        """Set once the core has accepted or refused the subscription."""
        self._refusal: ShimClientError | None = None
        self._running = asyncio.create_task(self._run(), name=f"callbacks of {rm_id}")
        self._noticing = asyncio.create_task(self._deliver_notices(), name=f"notices of {rm_id}")

    async def wait_until_attached(self) -> None:
        """Wait until the core has accepted the subscription. Raises the error if the core refused it or could not be
        reached."""
        await self._settled.wait()
        if self._refusal is not None:
            raise self._refusal

    def answer_notice(self, notice_id: int, reply: NoticeReply) -> None:
        """Reply to a notice, with a substitution or the state of checkpoints. The reply is sent as soon as possible."""
        answer = pb.PreemptionNoticeAnswer(
            notice_id=notice_id, accepted=reply.accepted, instead_allocation_keys=reply.instead
        )
        for key, at_ns in reply.checkpoints.items():
            answer.checkpoints.add(allocation_key=key, time_ns=at_ns)
        self._answers.put(answer)

    def acknowledge(self, keys: Iterable[str], *, partition: str = "", node_id: str = "") -> None:
        """Tell the core that the shim has these allocations in place, so the next question that depends on them may be
        asked.

        Only allocations whose asks depend on placements matter; others do no harm. *node_id* is the node on which they
        are: with it, the core ignores an acknowledgement that arrives after the ask was placed elsewhere.

        A current core has sent that question already, and it waits in this attachment; only an older core is sent the
        acknowledgement.
        """
        for key in keys:
            self._placements.note_key(key)
            if not self._core_names_placements:
                self._answers.put(pb.PlacementKey(partition=partition, allocation_key=key, node_id=node_id))

    def note_registered(self) -> None:
        """Note that the RM has registered again, so a stream that was given up can be reopened."""
        self._registered_again.set()

    async def close(self) -> None:
        """Send the answers that are ready, and end all tasks. It may be called twice."""
        self._answers.close()
        self._registered_again.set()
        await asyncio.wait([self._running], timeout=CLOSE_GRACE_S)
        self._give_up_questions()
        remaining = [self._running, self._noticing, *self._tasks]
        for task in remaining:
            task.cancel()
        await asyncio.wait(remaining)

    async def _run(self) -> None:
        try:
            while not self._answers.closed:
                await self._stay_attached()
        except ShimClientError as error:
            self._refusal = _make_refusal(error)
        finally:
            if not self._settled.is_set():
                self._refusal = self._refusal or ConnectionLost("the attachment was closed before the core took it up")
                self._settled.set()

    async def _stay_attached(self) -> None:
        """Run one stream, reopening it as often as needed, then wait for the next registration unless the attachment
        was closed.

        Raises the error that ended the stream if the handler was never attached, so that the caller of
        ``attach_callbacks`` gets it.
        """
        self._registered_again.clear()
        try:
            await self._make_stream().run()
        except ShimClientError as error:
            if not self._settled.is_set():
                raise
            self._give_up_questions()
            if isinstance(error, Superseded):
                self._answers.close()
                return
            _LOGGER.warning("callbacks of %s are detached until it registers again: %s", self._rm_id, error)
            await self._registered_again.wait()

    def _make_stream(self) -> DuplexStream[Answer, pb.AttachRequest, pb.AttachResponse]:
        return DuplexStream(
            "Attach",
            start=self._start,
            bind=pb.AttachRequest(subscription=self._make_subscription()),
            encode=_encode_batch,
            outbox=self._answers,
            deliver=self._receive_response,
            reopened=self._drop_questions,
            connected=self._connected,
            ended=self._ended,
        )

    def _make_subscription(self) -> pb.Subscription:
        return pb.Subscription(
            rm_id=self._rm_id,
            predicates=self._is_overridden("predicates"),
            preemption_predicates=self._is_overridden("preemption_predicates"),
            scheduling_states=self._is_overridden("scheduling_state"),
            events=self._is_overridden("events"),
            state_dump=self._is_overridden("state_dump"),
            preemption_notices=self._is_overridden("preemption_notice"),
            awaits_placements=self._is_overridden("predicates"),
            timeout_ms=0 if self._wanted_timeout_s is None else max(1, round(self._wanted_timeout_s * 1000)),
        )

    def _is_overridden(self, method: str) -> bool:
        return getattr(type(self._handler), method) is not getattr(CallbackHandler, method)

    async def _drop_questions(self) -> None:
        """Drop the questions of the stream that broke. The core treats them as never asked."""
        self._give_up_questions()

    def _give_up_questions(self) -> None:
        self._answers.clear()
        for task in self._tasks:
            task.cancel()

    async def _receive_response(self, response: pb.AttachResponse) -> None:
        if response.HasField("attached"):
            self.timeout_s = response.attached.timeout_ms / 1000
            self._core_names_placements = response.attached.awaits_placements
            self._settled.set()
        for void in response.not_placed:
            self._placements.note_key(void.allocation_key)
            self._handler.not_placed(void.partition, void.allocation_key)
        for question in response.predicates:
            self._placements.forget_key(question.allocation_key)
        questions: list[Coroutine[Any, Any, None]] = [
            self._answer_predicates(
                question.question_id,
                PredicatesQuestion(
                    question.partition,
                    question.application_id,
                    question.allocation_key,
                    tuple(question.node_ids),
                    question.allocate,
                    question.dependent,
                ),
                question.after.allocation_key,
            )
            for question in response.predicates
        ]
        questions += [
            self._answer_preemption(
                question.question_id,
                PreemptionQuestion(
                    question.partition,
                    question.application_id,
                    question.arguments.allocationKey,
                    question.arguments.nodeID,
                    tuple(question.arguments.preemptAllocationKeys),
                    question.arguments.startIndex,
                ),
            )
            for question in response.preemption_predicates
        ]
        if response.HasField("state_dump"):
            questions.append(self._answer_dump(response.state_dump.question_id))
        if questions:
            self._start_questions(questions)
        if (
            response.scheduling_states
            or response.events
            or response.preemption_notices
            or response.preemption_withdrawals
        ):
            self._queue_notice(response)
        while len(self._tasks) >= OPEN_QUESTIONS:
            self._room.clear()
            await self._room.wait()

    def _start_questions(self, questions: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Handle *questions* concurrently until the timeout, which is the same for all questions of one message."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(question) for question in questions]
        self._tasks.update(tasks)
        for task in tasks:
            task.add_done_callback(self._remove_task)
        loop.call_later(self.timeout_s, self._cancel_late, tasks)

    def _remove_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.set()

    def _cancel_late(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        late = [task for task in tasks if not task.done()]
        if late:
            _LOGGER.warning("%d of %d questions not answered within %g s", len(late), len(tasks), self.timeout_s)
        for task in late:
            task.cancel()

    async def _answer_predicates(self, number: int, question: PredicatesQuestion, after: str) -> None:
        """Answers a question. It first waits until the placement *after*, if any, is in place, but no longer than half
        the timeout."""
        depends = in_place = False
        try:
            if after:
                await self._placements.wait_for(after, self.timeout_s / 2)
            judged = await self._handler.predicates(question)
            refused, depends, in_place = judged if isinstance(judged, Judgement) else Judgement(judged)
            refusals = [pb.NodeRefusal(node_id=node_id, reason=reason) for node_id, reason in refused.items()]
        except Exception as error:
            _LOGGER.exception("callback handler failed in predicates")
            reason = _describe_error(error)
            refusals = [pb.NodeRefusal(node_id=node_id, reason=reason) for node_id in question.node_ids]
        self._answers.put(pb.PredicatesAnswer(question_id=number, refusals=refusals, depends_on_placements=depends))
        if in_place:
            refused_ids = {refusal.node_id for refusal in refusals}
            first = next((node_id for node_id in question.node_ids if node_id not in refused_ids), "")
            self._placements.note_key(question.key)
            # This is sent in any case. The core answers it if it does not place the task there.
            self._answers.put(pb.PlacementKey(partition=question.partition, allocation_key=question.key, node_id=first))

    async def _answer_preemption(self, number: int, question: PreemptionQuestion) -> None:
        try:
            last = await self._handler.preemption_predicates(question)
            response = si.PreemptionPredicatesResponse(success=last is not None, index=-1 if last is None else last)
        except Exception:
            _LOGGER.exception("callback handler failed in preemption_predicates")
            response = si.PreemptionPredicatesResponse(success=False, index=-1)
        self._answers.put(pb.PreemptionPredicatesAnswer(question_id=number, response=response))

    async def _answer_dump(self, number: int) -> None:
        try:
            text, problem = json.dumps(await self._handler.state_dump()), ""
        except Exception as error:
            _LOGGER.exception("callback handler failed in state_dump")
            text, problem = "", _describe_error(error)
        self._answers.put(pb.StateDumpAnswer(question_id=number, json=text, error=problem))

    def _queue_notice(self, response: pb.AttachResponse) -> None:
        if self._notices.full():
            _LOGGER.warning("the callback handler is too slow for the notices of the core, some are dropped")
            return
        self._notices.put_nowait(response)

    async def _deliver_notices(self) -> None:
        """Pass notices to the handler one after the other, so that it gets them in order."""
        while True:
            await self._deliver_response(await self._notices.get())

    async def _deliver_response(self, response: pb.AttachResponse) -> None:
        for told in response.scheduling_states:
            state = SchedulingState(told.applicationID, told.allocationKey, told.state, told.reason)
            try:
                await self._handler.scheduling_state(state)
            except Exception:
                _LOGGER.exception("callback handler failed in scheduling_state")
        for notice in response.preemption_notices:
            await self._deliver_notice(notice)
        for withdrawn in response.preemption_withdrawals:
            withdrawal = PreemptionWithdrawal(
                withdrawn.notice_id,
                withdrawn.partition,
                withdrawn.application_id,
                tuple(withdrawn.allocation_keys),
            )
            try:
                await self._handler.preemption_withdrawn(withdrawal)
            except Exception:
                _LOGGER.exception("callback handler failed in preemption_withdrawn")
        if response.events:
            try:
                await self._handler.events(response.events)
            except Exception:
                _LOGGER.exception("callback handler failed in events")

    async def _deliver_notice(self, told: pb.PreemptionNotice) -> None:
        notice = PreemptionNotice(
            told.notice_id,
            told.partition,
            told.application_id,
            told.round,
            tuple(told.strict_allocation_keys),
            tuple(told.at_risk_allocation_keys),
            {name: quantity.value for name, quantity in told.negotiable_need.resources.items()},
            told.deadline_ms,
            told.kind,
            told.reason,
        )
        try:
            reply = await self._handler.preemption_notice(notice)
        except Exception:
            _LOGGER.exception("callback handler failed in preemption_notice")
        else:
            if reply is not None:
                self.answer_notice(notice.notice_id, reply)


class _PlacementsInPlace:
    """The placements that the shim has in place, for questions that have to wait for them."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}
        self._awaited: dict[str, asyncio.Event] = {}

    def note_key(self, key: str) -> None:
        """Note that *key* is in place, or that it never will be."""
        self._known.pop(key, None)
        self._known[key] = None
        if len(self._known) > PLACEMENTS_REMEMBERED:
            del self._known[next(iter(self._known))]
        if key in self._awaited:
            self._awaited.pop(key).set()

    def forget_key(self, key: str) -> None:
        """Note that *key* is not in place, since the core asks where it may run."""
        self._known.pop(key, None)

    async def wait_for(self, key: str, longest_s: float) -> None:
        """Return once *key* is in place, or after *longest_s* at the latest."""
        if key in self._known:
            return
        event = self._awaited.setdefault(key, asyncio.Event())
        try:
            await asyncio.wait_for(event.wait(), longest_s)
        except TimeoutError:
            self._awaited.pop(key, None)


class _Answers:
    """The answers that are ready to be sent. Answers that were not sent before a stream broke are of no use to the next
    stream."""

    def __init__(self) -> None:
        self._ready: deque[Answer] = deque()
        self._news = asyncio.Event()
        self.closed = False

    def put(self, answer: Answer) -> None:
        self._ready.append(answer)
        self._news.set()

    def clear(self) -> None:
        self._ready.clear()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    async def next_batch(self) -> list[Answer]:
        """Returns the answers of the next request, with at most one state dump among them. The result is empty once the
        queue is closed and everything has been sent."""
        while not self._ready and not self.closed:
            self._news.clear()
            await self._news.wait()
        batch: list[Answer] = []
        while self._ready and len(batch) < ANSWERS_PER_REQUEST:
            batch.append(self._ready.popleft())
            if isinstance(batch[-1], pb.StateDumpAnswer):
                break
        return batch

    async def mark_written(self, count: int) -> None:
        """Does nothing, because :meth:`next_batch` has already removed the batch from the queue."""


def _encode_batch(batch: Sequence[Answer]) -> pb.AttachRequest:
    request = pb.AttachRequest()
    for answer in batch:
        if isinstance(answer, pb.PredicatesAnswer):
            request.predicates.append(answer)
        elif isinstance(answer, pb.PreemptionPredicatesAnswer):
            request.preemption_predicates.append(answer)
        elif isinstance(answer, pb.PreemptionNoticeAnswer):
            request.preemption_notices.append(answer)
        elif isinstance(answer, pb.PlacementKey):
            request.acknowledged.append(answer)
        else:
            request.state_dump.CopyFrom(answer)
    return request


def _make_refusal(error: ShimClientError) -> ShimClientError:
    """Returns :class:`NotSupported` if *error* says that the core has no such service, otherwise *error*."""
    if isinstance(error, StreamRefused) and error.code is grpc.StatusCode.UNIMPLEMENTED:
        return NotSupported("Attach", error.code, error.reason)
    return error


def _describe_error(error: Exception) -> str:
    return f"callback failed: {type(error).__name__}: {error}"
