"""Makes calls end with a status, and keeps the one with which the core ended a call.

If the channel of a call is closed, gRPC raises CancelledError where the call is awaited, although nobody cancelled the
task that awaits it. That task would end without a trace.

If a message is written while the core ends the call, gRPC replaces the status by INTERNAL and drops the trailing
metadata, even if it has delivered both already (https://github.com/grpc/grpc/issues/36066). A refusal would then look
like a fault of the core, and the address of the leader or the time to wait would be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

import grpc
import grpc.aio

STATUS_S: Final = 10.0
"""The time to wait for the core's status after gRPC has ended the call with an error of its own.

If all responses have been read, the status is there at once but on a starved machine. gRPC gives none while one is
unread.
"""

_LOOK_S: Final = 0.01
"""The time between two looks for it."""

_WRITE_FAILED: Final = "Internal error from Core"
"""The details of the status that gRPC makes itself when it cannot write a message."""

Result = TypeVar("Result")


@contextmanager
def ending_with_status() -> Iterator[None]:
    """Raises AioRpcError with UNAVAILABLE, in place of CancelledError, when the call that is awaited was cancelled but
    the current task was not."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "the connection was closed"
        ) from error


class CallStatus(NamedTuple):
    """The status with which a call ended."""

    code: grpc.StatusCode
    details: str
    trailing: Any
    """The trailing metadata."""


class StatusKeeper:
    """Keeps the status of one call, which must not have ended yet.

    The responses must be read with ``async for`` and to their end: after a failed write ``call.read`` gives no more of
    them.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        self._call = call
        self._kept: CallStatus | None = None
        call.add_done_callback(self._keep_status)

    async def wait_for_status(self) -> CallStatus:
        """Returns the status once the call has ended."""
        await self._call.code()
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_S):
                # gRPC tells nobody when the core's status takes the place of its own.
                while self._kept is None:
                    self._keep_status(self._call)
                    await asyncio.sleep(_LOOK_S)
        return self._kept or _read_status(self._call)

    def _keep_status(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        """Keeps the first status that gRPC has not made because of a write."""
        status = _read_status(call)
        if self._kept is None and (status.code, status.details) != (grpc.StatusCode.INTERNAL, _WRITE_FAILED):
            self._kept = status


def _read_status(call: grpc.aio.StreamStreamCall[Any, Any]) -> CallStatus:
    """Returns the status that a *call* that has ended has now."""
    return CallStatus(
        _read_result(call.code()), _read_result(call.details()) or "", _read_result(call.trailing_metadata())
    )


def _read_result(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Returns the result of a *coroutine* that does not wait, because the call has ended.

    A task would read the status later, when gRPC may have replaced it.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise AssertionError("the status of a call that has ended is there")
