"""One bidirectional stream of a case: it sends requests, receives entries, and has the status with which it ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from kornel.conformance.entries import Entry
from kornel.conformance.outcome import Mismatch
from kornel.shim_client.call_status import StatusKeeper

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Inbox:
    """The received entries that are still unread, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entries: deque[Entry] = deque()
        self._news = asyncio.Event()
        self._closed = ""

    def put(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._news.set()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()

    def close(self, how: str) -> None:
        """Accept no more entries; *how* gives the reason."""
        self._closed = how
        self._news.set()

    async def take_entry(self, within_s: float, hope: str) -> Entry:
        """Returns the next entry. Raises Mismatch, with the text *hope* of the expectation, if none arrives in time."""
        try:
            async with asyncio.timeout(within_s):
                while not self._entries:
                    if self._closed:
                        raise Mismatch(f"expected {hope}, but the {self._name} stream ended: {self._closed}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Mismatch(f"expected {hope}, but nothing came within {within_s:g} s") from None
        return self._entries.popleft()


class AnyStream(Protocol):
    """The part of a stream that does not depend on its kind."""

    @property
    def name(self) -> str: ...

    @property
    def inbox(self) -> Inbox: ...

    async def wait_for_end(self, within_s: float) -> grpc.StatusCode: ...

    async def close(self) -> None: ...


class Stream(Generic[Request, Response]):
    """An open stream. Entries that *aside* picks go to :attr:`side`, all others to :attr:`inbox`."""

    def __init__(
        self,
        name: str,
        call: grpc.aio.StreamStreamCall[Request, Response],
        entries: Callable[[Response, int], Iterator[Entry]],
        aside: Callable[[Entry], bool],
    ) -> None:
        self.name: Final = name
        self.inbox: Final = Inbox(name)
        self.side: Final = Inbox(name)
        self.received = 0
        """The number of entries that have arrived."""
        self._call = call
        self._status = StatusKeeper(call)
        self._entries = entries
        self._aside = aside
        self._reader = asyncio.create_task(self._read_entries(), name=f"{name} reader")

    async def send(self, request: Request) -> None:
        """Write *request*. If the core has ended the stream, this shows only when it is read."""
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            return

    async def read_marks(self, within_s: float) -> dict[str, str]:
        """Returns the metadata with which the core has opened the stream."""
        try:
            async with asyncio.timeout(within_s):
                marks = await self._call.initial_metadata()
        except TimeoutError:
            raise Mismatch(
                f"expected metadata on the {self.name} stream, but none came within {within_s:g} s"
            ) from None
        return {str(key): str(value) for key, value in marks or ()}

    async def wait_for_end(self, within_s: float) -> grpc.StatusCode:
        """Returns the status with which the core ended the stream. Raises Mismatch if it is still open after
        *within_s*."""
        done, _ = await asyncio.wait([self._reader], timeout=within_s)
        if not done:
            raise Mismatch(f"expected the {self.name} stream to end, but it is open after {within_s:g} s")
        return (await self._status.wait_for_status()).code

    async def half_close(self) -> None:
        """End the requests, and go on reading."""
        await self._call.done_writing()

    async def close(self) -> None:
        """Cancel the call, and end all tasks."""
        self._call.cancel()
        await asyncio.wait([self._reader])

    async def _read_entries(self) -> None:
        batch = 0
        try:
            async for response in self._call:
                batch += 1
                for entry in self._entries(response, batch):
                    self.received += 1
                    (self.side if self._aside(entry) else self.inbox).put(entry)
        except (grpc.RpcError, asyncio.CancelledError):
            # The status is read below for every kind of ending; a cancelled call raises the second error.
            pass
        code, details, _ = await self._status.wait_for_status()
        how = f"{code.name} {details}".strip()
        self.inbox.close(how)
        self.side.close(how)
