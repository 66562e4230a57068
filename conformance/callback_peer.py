"""The shim's end of ``kornel.v1.CallbackService``, controlled by a case: it answers questions or withholds the answers,
and records everything that it receives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import grpc
import grpc.aio

from kornel.conformance.outcome import Mismatch, Skipped, check
from kornel.shim_client.call_status import StatusKeeper
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2

EVENT_PUSH_S: Final = 2.5
"""A little more than the interval between two messages with events."""

Predicates: TypeAlias = Callable[[callback_pb2.PredicatesQuestion], Mapping[str, str] | None]
"""Returns the reasons of refusal by node, or ``None`` to withhold the answer."""

PreemptionPredicates: TypeAlias = Callable[[callback_pb2.PreemptionPredicatesQuestion], int | None]
"""Returns the index of the last victim that has to leave; a number below 0 if preemption does not help; or ``None`` to
withhold the answer."""

AttachCall: TypeAlias = grpc.aio.StreamStreamCall[callback_pb2.AttachRequest, callback_pb2.AttachResponse]


@dataclass(frozen=True, slots=True)
class Answers:
    """The subscriptions of the shim. ``None`` or false means that it does not subscribe to that kind. *state_dump* is
    the text of its own state.

    depends     every answer to predicates says that it depends on other placements
    awaits      the shim itself waits for the placement that a question names
    timeout_ms  how long the core waits; 0: the core chooses
    """

    predicates: Predicates | None = None
    preemption_predicates: PreemptionPredicates | None = None
    scheduling_states: bool = False
    events: bool = False
    state_dump: str | None = None
    depends: bool = False
    awaits: bool = False
    timeout_ms: int = 0

    def to_subscription(self, rm: str) -> callback_pb2.Subscription:
        """Returns the subscription as a message for the core."""
        return callback_pb2.Subscription(
            rm_id=rm,
            predicates=self.predicates is not None,
            preemption_predicates=self.preemption_predicates is not None,
            scheduling_states=self.scheduling_states,
            events=self.events,
            state_dump=self.state_dump is not None,
            timeout_ms=self.timeout_ms,
            awaits_placements=self.awaits,
        )


class CallbackPeer:
    """One open subscription. The questions and notices received are in the lists, in order."""

    def __init__(self, call: AttachCall, answers: Answers, *, deadline_s: float) -> None:
        self.questions: Final[list[callback_pb2.PredicatesQuestion]] = []
        self.preemption_questions: Final[list[callback_pb2.PreemptionPredicatesQuestion]] = []
        self.states: Final[list[si.UpdateContainerSchedulingStateRequest]] = []
        self.events: Final[list[si.EventRecord]] = []
        self.not_placed: Final[list[str]] = []
        self.withheld: Final[list[callback_pb2.PredicatesQuestion]] = []
        """Questions about predicates that were not answered."""
        self._call = call
        self._status = StatusKeeper(call)
        self._answers = answers
        self._deadline_s = deadline_s
        self._news = asyncio.Event()
        self._attached = False
        self.names_placements = False
        """Says whether the core names the placement on which a question depends."""
        self._reader = asyncio.create_task(self._read(), name="callback reader")

    async def subscribe_rm(self, rm: str) -> None:
        """Subscribe, and wait until the subscription is in force. Raises Skipped on a core that has no such service."""
        # The reading side finds out why a call ended.
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self._call.write(callback_pb2.AttachRequest(subscription=self._answers.to_subscription(rm)))
        await self.wait_until(lambda: self._attached or self._reader.done(), "the subscription to be confirmed")
        if self._attached:
            return
        self._reader.result()
        code, details, _ = await self._status.wait_for_status()
        if code is grpc.StatusCode.UNIMPLEMENTED:
            raise Skipped("the core does not serve kornel.v1.CallbackService")
        raise Mismatch(f"the subscription was refused: {code.name} {details}")

    async def wait_until(self, condition: Callable[[], object], hope: str) -> None:
        """Wait until *condition* is true. Raises Mismatch, with the text *hope*, if that takes too long."""
        try:
            async with asyncio.timeout(self._deadline_s):
                while not condition():
                    if self._reader.done() and not self._reader.cancelled():
                        self._reader.result()
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Mismatch(f"expected {hope}, but that did not come within {self._deadline_s:g} s") from None

    async def answer_questions(self, *keys: str, acknowledge: bool = False) -> None:
        """Answer the withheld questions about *keys* with yes, in that order and in one request."""
        answer = callback_pb2.AttachRequest()
        for key in keys:
            question = next(each for each in self.withheld if each.allocation_key == key)
            self.withheld.remove(question)
            answer.predicates.add(question_id=question.question_id, depends_on_placements=self._answers.depends)
            if acknowledge:
                answer.acknowledged.add(allocation_key=key)
        await self._call.write(answer)

    async def acknowledge_placement(self, key: str) -> None:
        """Acknowledge that the allocation *key* is in place."""
        await self._call.write(callback_pb2.AttachRequest(acknowledged=[callback_pb2.PlacementKey(allocation_key=key)]))

    async def wait_for_end(self) -> tuple[grpc.StatusCode, str]:
        """Returns the status and details with which the core ended the call. Raises Mismatch if it does not end it."""
        await self.wait_until(self._reader.done, "the callback stream to end")
        code, details, _ = await self._status.wait_for_status()
        return code, details

    async def close(self) -> None:
        """Cancel the call, and end all tasks."""
        self._call.cancel()
        await asyncio.wait([self._reader])

    async def _read(self) -> None:
        try:
            async for response in self._call:
                if not self._attached:
                    check(response.HasField("attached"), "the first response confirms the subscription")
                    self._attached = True
                    self.names_placements = response.attached.awaits_placements
                await self._take_response(response)
        except (grpc.RpcError, asyncio.CancelledError, asyncio.InvalidStateError):
            # The call is over.
            pass
        finally:
            self._news.set()

    async def _take_response(self, response: callback_pb2.AttachResponse) -> None:
        self.questions.extend(response.predicates)
        self.preemption_questions.extend(response.preemption_predicates)
        self.states.extend(response.scheduling_states)
        self.events.extend(response.events)
        self.not_placed.extend(void.allocation_key for void in response.not_placed)
        self._news.set()
        answer = callback_pb2.AttachRequest(
            predicates=[judged for each in response.predicates if (judged := self._answer_predicates(each))],
            preemption_predicates=[
                planned for each in response.preemption_predicates if (planned := self._answer_preemption(each))
            ],
        )
        if response.HasField("state_dump") and self._answers.state_dump is not None:
            answer.state_dump.question_id = response.state_dump.question_id
            answer.state_dump.json = self._answers.state_dump
        if answer.ListFields():
            await self._call.write(answer)

    def _answer_predicates(self, question: callback_pb2.PredicatesQuestion) -> callback_pb2.PredicatesAnswer | None:
        refused = self._answers.predicates(question) if self._answers.predicates else None
        if refused is None:
            self.withheld.append(question)
            return None
        refusals = [callback_pb2.NodeRefusal(node_id=node, reason=reason) for node, reason in refused.items()]
        return callback_pb2.PredicatesAnswer(
            question_id=question.question_id, refusals=refusals, depends_on_placements=self._answers.depends
        )

    def _answer_preemption(
        self, question: callback_pb2.PreemptionPredicatesQuestion
    ) -> callback_pb2.PreemptionPredicatesAnswer | None:
        index = self._answers.preemption_predicates(question) if self._answers.preemption_predicates else None
        if index is None:
            return None
        response = si.PreemptionPredicatesResponse(success=index >= 0, index=index)
        return callback_pb2.PreemptionPredicatesAnswer(question_id=question.question_id, response=response)
