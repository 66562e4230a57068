"""Keeps one bidirectional stream open: binds it, writes batches, reads responses, and opens it again when it breaks.

While no stream is open, the core keeps the RM's state and queues its messages, so a break only costs time. The first
message of the new stream, which contains only the RM's ID, binds it, and both directions continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from kornel.shim_client.call_status import StatusKeeper, ending_with_status
from kornel.shim_client.errors import ConnectionLost, ResyncRequired, StreamRefused, Superseded
from kornel.shim_client.progress import Progress
from kornel.shim_client.retry_info import read_retry_delay

Entry = TypeVar("Entry", bound=Message)
Written_co = TypeVar("Written_co", bound=Message, covariant=True)
Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

# The statuses after which the same stream can be expected to work when it is opened again. OK is among them because a
# stream ends with it when the other side was closed.
TRANSIENT: Final = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
    }
)
SUPERSEDED: Final = "superseded"
"""The beginning of the details of a status ABORTED which says that another program has registered the same RM."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 5.0


class Source(Protocol[Written_co]):
    """The interface of a stream's source of entries, such as :class:`kornel.shim_client.outbox.Outbox`."""

    @property
    def closed(self) -> bool:
        """Tells whether nothing more will be added."""

    async def next_batch(self) -> Sequence[Written_co]:
        """Returns the entries of the next request; empty if the source is closed and drained."""

    async def mark_written(self, count: int) -> None:
        """Remove the first *count* entries of the batch, which have been sent."""


class DuplexStream(Generic[Entry, Request, Response]):
    """One stream of the service, which runs until it is closed or cannot be opened again."""

    def __init__(
        self,
        kind: str,
        *,
        start: Callable[[], grpc.aio.StreamStreamCall[Request, Response]],
        bind: Request,
        encode: Callable[[Sequence[Entry]], Request],
        outbox: Source[Entry],
        deliver: Callable[[Response], Awaitable[None]],
        reopened: Callable[[], Awaitable[None]],
        connected: Callable[[], Awaitable[None]],
        ended: Callable[[Any], object] = lambda metadata: None,
        progress: Progress[Any] | None = None,
    ) -> None:
        """Prepares the stream called *kind*. *start* opens the RPC; *bind* is its first message.

        *connected* waits for a connection. *reopened* is called when the stream is open again: after the core's
        greeting, if there is one, and before the first response is delivered. *ended* is called with the trailing
        metadata of each RPC. *progress* counts the entries in both directions; without it, the core is not asked to
        continue where the stream broke.
        """
        self._progress = progress
        self._call: grpc.aio.StreamStreamCall[Request, Response] | None = None
        self._ended = ended
        self._kind = kind
        self._start = start
        self._bind = bind
        self._encode = encode
        self._outbox = outbox
        self._deliver = deliver
        self._reopened = reopened
        self._connected = connected

    async def run(self) -> None:
        """Keep the stream open. Returns once the outbox is closed and the core has finished.

        Raises ResyncRequired, Superseded, StreamRefused or ConnectionLost when opening it again cannot help.
        """
        pause = FIRST_PAUSE_S
        opened_before = False
        while True:
            await self._connected()
            heard, code, reason, delay_s = await self._run_rpc(announce=opened_before)
            opened_before = True
            if self._outbox.closed:
                return
            if self._call is None:
                opened_before = False
                continue
            if code is grpc.StatusCode.ABORTED and reason.startswith(SUPERSEDED):
                raise Superseded(self._kind, code, reason)
            if code is grpc.StatusCode.FAILED_PRECONDITION:
                raise ResyncRequired(self._kind, code, reason)
            if code not in TRANSIENT and delay_s is None:
                raise StreamRefused(self._kind, code, reason)
            # A stream that worked resets the pause; after one that broke at once, the pause grows.
            pause = FIRST_PAUSE_S if heard else min(2 * pause, LONGEST_PAUSE_S)
            await asyncio.sleep(max(pause, delay_s or 0.0))

    async def _run_rpc(self, *, announce: bool) -> tuple[bool, grpc.StatusCode, str, float | None]:
        """Runs one RPC to its end.

        Returns whether anything was received, the status and details with which it ended, and how many seconds the core
        asks to wait before the next RPC.
        """
        call = self._call = self._start()
        keeper = StatusKeeper(call)
        heard = False
        opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        writer = asyncio.create_task(self._write_batches(call, opened), name=f"{self._kind} writer")
        writer.add_done_callback(lambda _: _settle(opened, is_open=False))
        try:
            with ending_with_status():
                if announce and await opened:
                    await self._reopened()
                async for response in call:
                    if self._call is not call:
                        continue  # gRPC tells the status of a call only when all of its responses have been read.
                    heard = True
                    if self._progress is not None:
                        self._progress.note_received(response)
                    await self._deliver(response)
        except grpc.aio.AioRpcError:
            # The status of the call is read below for every kind of ending. A call of an earlier registration, or to a
            # core that no longer leads, was cancelled, and this stream goes on.
            pass
        finally:
            writer.cancel()
            call.cancel()
            await asyncio.wait([writer])
        if not writer.cancelled() and (bug := writer.exception()) is not None:
            raise bug
        code, reason, trailing = await keeper.wait_for_status()
        self._ended(trailing)
        return heard, code, reason, read_retry_delay(code, trailing)

    def begin_again(self) -> None:
        """Open another RPC, because the open one belongs to an earlier registration."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    async def _follow_greeting(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        """Read how many entries the core has applied, if it says so, before anything is written."""
        if self._progress is None or not self._progress.epoch:
            return
        marks = await call.initial_metadata()
        if call.done() or self._call is not call:
            raise asyncio.InvalidStateError
        try:
            await self._progress.follow_greeting(marks)
        except ResyncRequired:
            call.cancel()
            raise

    async def _write_batches(
        self, call: grpc.aio.StreamStreamCall[Request, Response], opened: asyncio.Future[bool]
    ) -> None:
        try:
            await call.write(self._bind)
            await self._follow_greeting(call)
            _settle(opened, is_open=True)
            while batch := await self._outbox.next_batch():
                await call.write(self._encode(batch))
                # This is done only now, so that a batch that was being written when the stream broke is written again.
                await self._outbox.mark_written(len(batch))
            await call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.InternalError):
            # The call is over, and the reading side reports why. The last error comes of the end of the requests.
            return


def _settle(opened: asyncio.Future[bool], *, is_open: bool) -> None:
    if not opened.done():
        opened.set_result(is_open)


async def wait_until_ready(channel: grpc.aio.Channel, seconds: float) -> None:
    """Wait for *channel* to connect. Raises ConnectionLost after *seconds*."""
    try:
        await asyncio.wait_for(channel.channel_ready(), seconds)
    except TimeoutError:
        raise ConnectionLost(f"the connection could not be made again within {seconds:g} s") from None
