"""The clocks of a core: the real one, or a test clock of the core that the kit can advance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import grpc
import grpc.aio

from kornel.shim_client.credentials import NO_CREDENTIALS, Credentials
from kornel.v1 import test_clock_pb2, test_clock_pb2_grpc

DEFAULT_PATIENCE_S: Final = 5.0
ADVANCE_TIMEOUT_S: Final = 120.0
ARRIVAL_S: Final = 0.02
"""The wait before the core's clock is advanced, in which messages on their way to the core can arrive. Otherwise they
would arrive too late."""


class Clock(Protocol):
    """The interface of a clock by which the core under test measures time."""

    @property
    def patience_s(self) -> float:
        """The longest time that may be passed to :meth:`advance_time`; cases that need more are gaps."""

    async def now_ns(self) -> int:
        """Returns the core's time, nanoseconds since the Unix epoch."""

    async def advance_time(self, seconds: float) -> None:
        """Wait until *seconds* have passed for the core, and it has begun to act on everything that is due."""


class RealClock:
    """A clock that really waits. It assumes that the clock of the core's machine agrees with that of this machine."""

    def __init__(self, patience_s: float = DEFAULT_PATIENCE_S) -> None:
        self.patience_s: Final = patience_s

    async def now_ns(self) -> int:
        return time.time_ns()

    async def advance_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class CoreClock:
    """A clock that advances the clock of a core which serves ``kornel.v1.TestClockService``."""

    patience_s: Final = float("inf")

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._core = test_clock_pb2_grpc.TestClockServiceStub(channel)

    async def now_ns(self) -> int:
        return await self._move_clock(0)

    async def advance_time(self, seconds: float) -> None:
        await asyncio.sleep(ARRIVAL_S)
        await self._move_clock(round(seconds * 1e9))

    async def _move_clock(self, by_ns: int) -> int:
        request = test_clock_pb2.AdvanceClockRequest(by_ns=by_ns)
        return (await self._core.AdvanceClock(request, timeout=ADVANCE_TIMEOUT_S)).now_ns


@asynccontextmanager
async def clock_of(
    address: str, patience_s: float = DEFAULT_PATIENCE_S, credentials: Credentials = NO_CREDENTIALS
) -> AsyncIterator[Clock]:
    """Yields the clock of the core at *address*: its test clock if it has one, otherwise the real one with
    *patience_s*."""
    async with credentials.channel(address, ()) as channel:
        clock = CoreClock(channel)
        try:
            await clock.now_ns()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            yield RealClock(patience_s)
        else:
            yield clock
