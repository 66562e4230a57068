"""The scripted core's end of ``CallbackService``: like a real core, it asks before it places an ask.

Questions that depend on placements are asked one at a time. If the shim awaits placements itself, the next one is asked
*before* ``new`` of the placement that it has to await is sent, so a shim that does not wait is detected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import grpc
import grpc.aio

from kornel.conformance.messages import DEPENDENT_TAG
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2 as pb
from kornel.v1 import callback_pb2_grpc

TIMEOUT_S: Final = 10.0
"""The time for an answer if the shim does not choose one."""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Core(Protocol):
    """The interface of the core behind the questions."""

    def admits_subscription(self, rm: str) -> bool:
        """Tells whether a program may subscribe for *rm*."""

    def judge_order(self, key: str, after: str, *, in_place: bool) -> None:
        """Judge the answer about *key*, which had to wait for *after*. *in_place*: the shim could know of it."""

    def is_placed(self, key: str) -> bool:
        """Tells whether *key* was placed, even if ``new`` was not sent yet."""

    def is_announced(self, key: str) -> bool:
        """Tells whether ``new`` was sent for *key*."""

    def handle_answer(self, question: Question) -> None:
        """Handle an answer, or a question that was given up."""

    def place_asks(self) -> None:
        """Place, or ask about, every ask that fits."""


@dataclass(slots=True)
class Question:
    """A question about an ask on nodes, with the answer once there is one.

    after    the key of the placement that the shim has to await; empty: none
    held     ``new`` was not sent for that placement when the question was asked
    made     the number of dependent placements before the question
    refused  the reasons by refused node; ``None``: not answered
    """

    ask: si.Allocation
    nodes: tuple[str, ...]
    dependent: bool
    after: str
    held: bool
    made: int
    refused: dict[str, str] | None = None

    @property
    def key(self) -> str:
        return self.ask.allocationKey

    def is_answered(self) -> bool:
        """Tells whether there is an answer."""
        return self.refused is not None

    @property
    def allowed(self) -> str:
        """Returns the first node that is not refused; empty: none, or there is no answer."""
        refused = self.nodes if self.refused is None else self.refused
        return next((node for node in self.nodes if node not in refused), "")


class _Attachment:
    """One open stream."""

    def __init__(self, subscription: pb.Subscription) -> None:
        self.subscription: Final = subscription
        self.timeout_s: Final = subscription.timeout_ms / 1000 or TIMEOUT_S
        self.words: Final[deque[pb.AttachResponse]] = deque()
        self.news: Final = asyncio.Event()
        self.closed = False
        self.end: tuple[grpc.StatusCode, str] | None = None

    def send(self, response: pb.AttachResponse) -> None:
        self.words.append(response)
        self.news.set()


class Questions(callback_pb2_grpc.CallbackServiceServicer):
    """The open questions of one RM, and the stream on which they are asked: the one attached last."""

    def __init__(self, core: Core) -> None:
        self.changes = 0
        """The number of changes of what runs. A node that was refused is asked about again after the next one."""
        self.ignored = False
        """Tells whether the shim was asked and has not answered anything yet."""
        self.ordered = False
        """Tells whether the shim has answered a question that named a placement before its ``new`` was sent."""
        self._core = core
        self._attached: _Attachment | None = None
        self._asked = 0
        self._open: Final[dict[int, Question]] = {}
        self._refused: Final[dict[tuple[str, str], int]] = {}
        """The value of ``changes`` when each key was refused on each node."""
        self._dependent: Final[set[str]] = set()
        """The keys that an answer called dependent."""
        self._made = 0
        """The number of dependent placements."""
        self._unsettled: pb.PlacementKey | None = None
        """The last dependent placement, until the shim has it in place."""
        self._assumed: Final[set[str]] = set()
        """The keys of the placements that the shim has acknowledged."""

    @property
    def wanted(self) -> bool:
        """Tells whether a shim wants to be asked before its asks are placed."""
        return self._attached is not None and self._attached.subscription.predicates

    @property
    def are_open(self) -> bool:
        """Tells whether a question is not answered yet."""
        return bool(self._open)

    @property
    def awaits_placements(self) -> bool:
        """Tells whether the shim waits itself for the placement that a question names."""
        return self._attached is not None and self._attached.subscription.awaits_placements

    @property
    def hold_s(self) -> float:
        """Returns for how long a placement that a question names is held back: less than a shim may wait for it."""
        return 0.0 if self._attached is None else min(0.3, self._attached.timeout_s / 4)

    def is_dependent(self, ask: si.Allocation) -> bool:
        """Tells whether the shim has said that *ask* depends on placements."""
        return ask.allocationTags.get(DEPENDENT_TAG) == "true" or ask.allocationKey in self._dependent

    def is_awaited(self, key: str) -> bool:
        """Tells whether an open question names the placement of *key*."""
        return any(question.after == key for question in self._open.values())

    def consider_ask(self, ask: si.Allocation, rooms: Sequence[str]) -> None:
        """Ask about *ask* on the nodes *rooms*, unless it is asked about, was refused there, or has to wait."""
        key = ask.allocationKey
        nodes = [node for node in rooms if self._refused.get((key, node)) != self.changes]
        if not nodes or any(question.key == key for question in self._open.values()):
            return
        if self.is_dependent(ask):
            turn_is_taken = any(question.dependent for question in self._open.values())
            if turn_is_taken or (self._unsettled is not None and not self.awaits_placements):
                return
        self.ask_about(ask, nodes)

    def ask_about(self, ask: si.Allocation, nodes: Sequence[str]) -> Question:
        """Ask whether *ask* may run on *nodes*."""
        assert self._attached is not None, "a shim wants to be asked"
        self.ignored = self.ignored or not self._asked
        self._asked += 1
        dependent = self.is_dependent(ask)
        after = self._unsettled if dependent and self.awaits_placements else None
        key = after.allocation_key if after else ""
        held = after is not None and not self._core.is_announced(key)
        question = Question(ask, tuple(nodes), dependent, key, held, self._made)
        self._open[self._asked] = question
        asked = pb.PredicatesQuestion(
            question_id=self._asked,
            partition=f"[{self._attached.subscription.rm_id}]default",
            application_id=ask.applicationID,
            allocation_key=ask.allocationKey,
            node_ids=nodes,
            allocate=True,
            dependent=dependent,
            after=after,
        )
        self._attached.send(pb.AttachResponse(predicates=[asked]))
        asyncio.get_running_loop().call_later(self._attached.timeout_s, self._give_up, self._asked)
        return question

    def is_stale(self, question: Question) -> bool:
        """Tells whether a dependent placement was made that an answer to *question* could not take into account."""
        return self.is_dependent(question.ask) and question.made != self._made

    def note_placed(self, ask: si.Allocation, node: str) -> None:
        """Note that the dependent *ask* is placed on *node*."""
        self._made += 1
        if self._attached is not None:
            key, partition = ask.allocationKey, f"[{self._attached.subscription.rm_id}]default"
            self._unsettled = pb.PlacementKey(partition=partition, allocation_key=key, node_id=node)
            asyncio.get_running_loop().call_later(self._attached.timeout_s, self._settle_late, key)

    def settle(self, key: str) -> None:
        """Note that the shim has *key* in place, or never will."""
        if self._unsettled is not None and self._unsettled.allocation_key == key:
            self._unsettled = None

    def forget(self) -> None:
        """Forget all questions: the RM has registered."""
        self._open.clear()
        self._refused.clear()
        self._dependent.clear()
        self._assumed.clear()
        self._unsettled = None

    def end_stream(self, code: grpc.StatusCode, text: str) -> None:
        """End the open stream, if there is one."""
        if self._attached is not None:
            self._attached.end = code, text
            self._attached.news.set()
            self._detach(self._attached)

    async def Attach(
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: Context
    ) -> AsyncIterator[pb.AttachResponse]:
        """Serve a subscription."""
        first = await anext(request_iterator, pb.AttachRequest())
        if not first.HasField("subscription"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first request has to subscribe")
        rm = first.subscription.rm_id
        if not self._core.admits_subscription(rm):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{rm!r} is not registered")
        line = self._attached = _Attachment(first.subscription)
        line.send(
            pb.AttachResponse(
                attached=pb.Attached(
                    timeout_ms=round(line.timeout_s * 1000), awaits_placements=first.subscription.awaits_placements
                )
            )
        )
        reader = asyncio.create_task(self._read_answers(line, request_iterator), name="scripted core reads answers")
        try:
            self._core.place_asks()
            while True:
                while line.words:
                    yield line.words.popleft()
                if line.end is not None:
                    await context.abort(*line.end)
                if line.closed:
                    return
                await line.news.wait()
                line.news.clear()
        finally:
            reader.cancel()
            await asyncio.wait([reader])
            self._detach(line)
            if not reader.cancelled() and (bug := reader.exception()) is not None:
                raise bug

    def _detach(self, line: _Attachment) -> None:
        """Forget the questions of *line*, which count as not asked."""
        if self._attached is line:
            self._attached = None
            self._open.clear()

    async def _read_answers(self, line: _Attachment, requests: AsyncIterator[pb.AttachRequest]) -> None:
        async for request in requests:
            # The acknowledgements of a request count after its answers, but before anything is placed or asked.
            answered = [self._read_answer(answer) for answer in request.predicates]
            self._assumed.update(each.allocation_key for each in request.acknowledged)
            for question in answered:
                if question is not None:
                    self._take_answer(question)
            for each in request.acknowledged:
                if self._core.is_placed(each.allocation_key):
                    self.settle(each.allocation_key)
                else:
                    self._assumed.discard(each.allocation_key)
                    line.send(pb.AttachResponse(not_placed=[each]))
            self._core.place_asks()
        line.closed = True
        line.news.set()

    def _read_answer(self, answer: pb.PredicatesAnswer) -> Question | None:
        question = self._open.pop(answer.question_id, None)
        self.ignored = False
        if question is not None:
            question.refused = {refusal.node_id: refusal.reason for refusal in answer.refusals}
            if answer.depends_on_placements:
                self._dependent.add(question.key)
        return question

    def _take_answer(self, question: Question) -> None:
        after = question.after
        if question.held:
            self.ordered = True
            in_place = after in self._assumed or self._core.is_announced(after) or not self._core.is_placed(after)
            self._core.judge_order(question.key, after, in_place=in_place)
        if after:
            self.settle(after)
        for node in question.refused or ():
            self._refused[question.key, node] = self.changes
        self._core.handle_answer(question)

    def _give_up(self, number: int) -> None:
        """Take a missing answer for a refusal for now."""
        if self._open.pop(number, None) is not None:
            self._core.place_asks()

    def _settle_late(self, key: str) -> None:
        if self._unsettled is not None and self._unsettled.allocation_key == key:
            self._unsettled = None
            self._core.place_asks()
