"""The shim's end of ``kornel.v1.CallbackService``, scripted by a case: it answers, withholds answers, and records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import grpc
import grpc.aio

from kornel.conformance.outcome import Mismatch, Skipped, check
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2

EVENT_PUSH_S: Final = 2.5
"""A little more than the interval between two lots of events."""

Predicates: TypeAlias = Callable[[callback_pb2.PredicatesQuestion], Mapping[str, str] | None]
"""Gives the reasons by refused node; ``None`` withholds the answer."""

PreemptionPredicates: TypeAlias = Callable[[callback_pb2.PreemptionPredicatesQuestion], int | None]
"""Gives the index of the last victim that has to go; below 0: that does not help; ``None`` withholds the answer."""

AttachCall: TypeAlias = grpc.aio.StreamStreamCall[callback_pb2.AttachRequest, callback_pb2.AttachResponse]


@dataclass(frozen=True, slots=True)
class Answers:
    """The subscriptions of the shim. ``None`` or false: none of that kind. *state_dump*: its text about itself.

    depends     every answer to predicates says that it depends on other placements
    awaits      the shim itself waits for the placement that a question names
    timeout_ms  how long the core waits; 0: as it likes
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
        self._answers = answers
        self._deadline_s = deadline_s
        self._news = asyncio.Event()
        self._attached = False
        self.names_placements = False
        """The core has said that it names the placement that a question comes after."""
        self._reader = asyncio.create_task(self._read(), name="callback reader")

    async def subscribe_rm(self, rm: str) -> None:
        """Subscribe, and wait until that is in force. Raises Skipped on a core that has no such service."""
        # Why a call ended is seen by reading.
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self._call.write(callback_pb2.AttachRequest(subscription=self._answers.to_subscription(rm)))
        await self.wait_until(lambda: self._attached or self._reader.done(), "the subscription to be confirmed")
        if self._attached:
            return
        self._reader.result()
        code = await self._call.code()
        if code is grpc.StatusCode.UNIMPLEMENTED:
            raise Skipped("the core does not serve kornel.v1.CallbackService")
        raise Mismatch(f"the subscription was refused: {code.name} {await self._call.details()}")

    async def wait_until(self, condition: Callable[[], object], hope: str) -> None:
        """Wait until *condition* holds. Raises Mismatch, naming the *hope*, when it does not in time."""
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
        """Say yes to the withheld questions about *keys*, in that order, in one request."""
        answer = callback_pb2.AttachRequest()
        for key in keys:
            question = next(each for each in self.withheld if each.allocation_key == key)
            self.withheld.remove(question)
            answer.predicates.add(question_id=question.question_id, depends_on_placements=self._answers.depends)
            if acknowledge:
                answer.acknowledged.add(allocation_key=key)
        await self._call.write(answer)

    async def acknowledge_placement(self, key: str) -> None:
        """Say that the allocation *key* is in place."""
        await self._call.write(callback_pb2.AttachRequest(acknowledged=[callback_pb2.PlacementKey(allocation_key=key)]))

    async def wait_for_end(self) -> tuple[grpc.StatusCode, str]:
        """Returns how the core ended the call. Raises Mismatch when it does not."""
        await self.wait_until(self._reader.done, "the callback stream to end")
        return await self._call.code(), await self._call.details() or ""

    async def close(self) -> None:
        """Cancel the call, and leave nothing running."""
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
