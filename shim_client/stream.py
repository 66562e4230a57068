"""One bidirectional stream, kept open: bind, write batches, read responses, reopen when it breaks.

The core keeps an RM's state while no stream is open and queues what it has to say, so a break costs nothing
but time: the new stream is bound by a first message that carries only the RM's ID, and both directions go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from kornel.shim_client.errors import ConnectionLost, ResyncRequired, StreamRefused, Superseded

Entry = TypeVar("Entry", bound=Message)
Written_co = TypeVar("Written_co", bound=Message, covariant=True)
Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

# Statuses after which the same stream, opened again, can be expected to work. OK is one of them: it
# ends a stream whose other side was closed.
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
"""The details of ABORTED begin with it when another program has registered the same RM."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 5.0


class Source(Protocol[Written_co]):
    """The interface of what a stream writes from, such as :class:`kornel.shim_client.outbox.Outbox`."""

    @property
    def closed(self) -> bool:
        """Tells whether nothing more will be added."""

    async def next_batch(self) -> Sequence[Written_co]:
        """Returns the entries of the next request. Empty: closed and drained."""

    async def mark_written(self, count: int) -> None:
        """Remove the first *count* entries of the batch: they have been sent."""


class DuplexStream(Generic[Entry, Request, Response]):
    """One stream of the service, run until it is closed or beyond repair."""

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
    ) -> None:
        """Prepares the stream called *kind*; *start* opens the RPC, *bind* is its first message.

        *connected* waits for a connection.
        """
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
            heard, code, reason = await self._run_rpc(announce=opened_before)
            opened_before = True
            if self._outbox.closed:
                return
            if code is grpc.StatusCode.ABORTED and reason.startswith(SUPERSEDED):
                raise Superseded(self._kind, code, reason)
            if code is grpc.StatusCode.FAILED_PRECONDITION:
                raise ResyncRequired(self._kind, code, reason)
            if code not in TRANSIENT:
                raise StreamRefused(self._kind, code, reason)
            # A stream that worked starts the pauses anew; one that breaks at once must not be hammered.
            pause = FIRST_PAUSE_S if heard else min(2 * pause, LONGEST_PAUSE_S)
            await asyncio.sleep(pause)

    async def _run_rpc(self, *, announce: bool) -> tuple[bool, grpc.StatusCode, str]:
        """Runs one RPC to its end. Returns whether anything was received, and how it ended."""
        call = self._start()
        heard = False
        writer = asyncio.create_task(self._write_batches(call), name=f"{self._kind} writer")
        try:
            if announce:
                await self._reopened()
            async for response in call:
                heard = True
                await self._deliver(response)
        except grpc.aio.AioRpcError:
            # Its status is the call's, and that is read below for every kind of ending.
            pass
        finally:
            writer.cancel()
            call.cancel()
            await asyncio.wait([writer])
        if not writer.cancelled() and (bug := writer.exception()) is not None:
            raise bug
        return heard, await call.code(), await call.details() or ""

    async def _write_batches(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        try:
            await call.write(self._bind)
            while batch := await self._outbox.next_batch():
                await call.write(self._encode(batch))
                # Only now: a batch that was being written when the stream broke is written again.
                await self._outbox.mark_written(len(batch))
            await call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The call is over; the reading side learns why.
            return


async def wait_until_ready(channel: grpc.aio.Channel, seconds: float) -> None:
    """Wait for *channel* to connect. Raises ConnectionLost after *seconds*."""
    try:
        await asyncio.wait_for(channel.channel_ready(), seconds)
    except TimeoutError:
        raise ConnectionLost(f"the connection could not be made again within {seconds:g} s") from None
