"""Serves ``kornel.v1.TestClockService``, which moves the clock of a core that was started with a clock that stands
still."""

from __future__ import annotations

import asyncio
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.service.calls.rpc import Service
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.managers.managers import Managers
from kornel.core.service.wire.status_codes import InvalidRequest
from kornel.v1 import test_clock_pb2 as pb

LATEST_NS: Final = 2**63 - 1
"""The latest time that the wire can carry: in the year 2262."""


class TestClockService(Service):
    """Moves the clock, and stops at every time at which something is due, so that each timer sees its own time. It
    serves one caller at a time."""

    described = pb.DESCRIPTOR.services_by_name["TestClockService"]

    def __init__(self, managers: Managers, clock: ManualClock, *, logger: FilteringBoundLogger) -> None:
        super().__init__(logger)
        self._managers = managers
        self._clock = clock
        self._turn = asyncio.Lock()

    async def _advance_clock(self, request: pb.AdvanceClockRequest) -> pb.AdvanceClockResponse:
        if request.by_ns < 0:
            raise InvalidRequest(f"by_ns is {request.by_ns}: time does not go back")
        self._managers.first.runner.check_intake()  # Otherwise the core would never become idle.
        async with self._turn:
            target_ns = self._clock.now_ns() + request.by_ns
            if target_ns > LATEST_NS:
                raise InvalidRequest(f"by_ns is {request.by_ns}: no timestamp can carry a time after the year 2262")
            await self._managers.wait_until_idle()
            before = self._count_responses()
            while (due_ns := self._clock.next_call_ns()) is not None and due_ns <= target_ns:
                self._move_to(due_ns)
                await self._managers.wait_until_idle()
                if request.until_told and self._count_responses() != before:
                    return pb.AdvanceClockResponse(now_ns=self._clock.now_ns())
            self._move_to(target_ns)
            await self._managers.wait_until_idle()
            return pb.AdvanceClockResponse(now_ns=self._clock.now_ns())

    def _count_responses(self) -> list[tuple[int, ...]]:
        """Returns how many responses, and changes of what callback streams have to say, there were so far."""
        places = self._managers.places
        return [(*place.switchboard.count_entered(), place.callbacks.delivered) for place in places]

    def _move_to(self, at_ns: int) -> None:
        self._clock.advance(max(0, at_ns - self._clock.now_ns()))
