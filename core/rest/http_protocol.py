"""Serves an HTTP/1.1 connection: uvicorn's, with bounds on everything that a client may send or leave unread (rest.md
2).

Input is parsed in small pieces, and no further than the next request while one is being answered. So everything that a
client sends is counted before much of it is kept: the head of a request, its body with the framing around it, and
requests sent ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from kornel.core.security.tls import peer_certificate

HEADER_PATIENCE_S: Final = 10.0
"""The longest time from the beginning of a request, or of the connection, to the end of the headers."""

BODY_PATIENCE_S: Final = 30.0
"""The longest time from the end of the headers to the end of the body."""

READER_PATIENCE_S: Final = 10.0
"""The time within which a client has to read :data:`LEAST_TAKEN` bytes of an answer, or all that is left of it."""

LEAST_TAKEN: Final = 16 * 1024

WRITTEN_AHEAD: Final = 64 * 1024
"""The bytes of an answer that may wait in the event loop for the system before no more are made."""

HEADER_LIMIT: Final = 64 * 1024
"""The most bytes of a request line and its headers together."""

HEADERS_LIMIT: Final = 128
"""The most headers of a request."""

BODY_LIMIT: Final = 8 * 2**20
"""The most bytes of a body, whether or not the route takes one. Routes that take a body allow less."""

FRAMING_LIMIT: Final = 16 * 1024
FRAMING_PER_BYTE: Final = 8
"""The most bytes of chunk sizes, their extensions and trailers: a fixed number, and a number for each byte of the
body."""

DRAINED: Final = 64 * 1024
"""The most bytes of an unwanted body that are read after the answer; if more would follow, the connection ends."""

LINGER_S: Final = 1.0
LONGEST_LINGER: Final = 10
LINGER_BYTES: Final = BODY_LIMIT + 2**20
LEAST_LINGERED: Final = 64 * 1024
"""The bounds within which a refused caller may go on sending, and read why it was refused, before its connection is
closed. It has ``LINGER_S`` seconds. Each time it sends ``LEAST_LINGERED`` bytes in them, it gets as many seconds again,
at most ``LONGEST_LINGER`` times. It may send ``LINGER_BYTES`` bytes in all, enough for a whole body with its
framing."""

PARSED_AT_ONCE: Final = 16 * 1024
CHUNKS_PARSED_AT_ONCE: Final = 256
"""The most bytes, and chunks, parsed at once: they may hold a dozen requests, each of which takes some KiB once
parsed."""

TOO_MUCH_HEAD: Final = b"431 Request Header Fields Too Large"

_END_OF_HEADERS: Final = b"\r\n\r\n"

ABORT: Final = "kornel.abort"
"""An extension of the ASGI scope: ``abort`` drops the connection and everything that waits to be written to it."""

CERTIFICATE: Final = "kornel.certificate"
"""An extension of the ASGI scope: the client's certificate in DER, which TLS has verified. Absent: the client showed
none."""


class _Flow(FlowControl):
    """Reports that reading may go on instead of resuming it, because some input may not be parsed yet."""

    def __init__(self, protocol: PatientProtocol, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.protocol: PatientProtocol | None = protocol
        """The protocol object of the connection; ``None`` once the connection has ended."""

    def pause_reading(self) -> None:
        self.read_paused = True

    def resume_reading(self) -> None:
        if self.read_paused and self.protocol is not None:
            self.read_paused = False
            self.protocol.loop.call_soon(self.protocol.parse_on)


class PatientProtocol(HttpToolsProtocol):
    """Closes connections that are too slow or send too much, if possible with an answer that says why."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_lost: Callable[[], None] = _do_nothing
        """Called when the connection has ended."""
        self._late: asyncio.TimerHandle | None = None
        self._unparsed: deque[bytes] = deque()
        self._parsed = 0
        """The number of bytes of the first entry of ``_unparsed`` that are parsed already."""
        self._held_up = False
        """Tells whether reading is paused."""
        self._asked = False
        """Tells whether a request has come."""
        self._lost = False
        """Tells whether the connection has ended."""
        self._ends = False
        """Tells whether no further requests are accepted, so that the connection ends after the answers that are
        due."""
        self._lingers = False
        """Tells whether the last answer was sent, so that all further input is dropped."""
        self._thrown_away = 0
        self._thrown_before = 0
        """The value of ``_thrown_away`` when the connection was last checked."""
        self._in_headers = False
        """Tells whether a request has begun, or the first one is awaited."""
        self._header_bytes = 0
        self._in_body = False
        self._length: int | None = None
        """The announced length of the body; ``None``: it comes in chunks."""
        self._body_bytes = 0
        self._framing_bytes = 0
        self._certificate: bytes | None = None
        self._sent = 0
        """The bytes of bodies that were given to the transport."""
        self._taken = 0
        """The bytes of bodies that the client had read when it was last seen to read."""
        self._taken_at = 0.0

    @property
    def waiting(self) -> bool:
        """Tells whether no request is being answered on this connection."""
        return not self.pipeline and (self._lost or not self._asked or self.cycle.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for headers."""
        super().connection_made(transport)
        # Over TLS, the event loop keeps eight times as much by default.
        transport.set_write_buffer_limits(high=WRITTEN_AHEAD)
        self.flow: _Flow = _Flow(self, transport)
        self._taken_at = self.loop.time()
        self._certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers, because nothing more is expected."""
        self._lost = True
        self._stop_clock()
        self._forget_input()
        super().connection_lost(exc)
        self.on_lost()
        self._break_cycles()

    def _break_cycles(self) -> None:
        """Drop the references back to the connection, so that its memory is freed at once. An answer that is still
        being made does not need them.

        The garbage collector would never free it: it never again examines connections that were open while long-lived
        objects were taken out of its reach (:mod:`kornel.core.service.machine.garbage`).
        """
        self.on_lost = _do_nothing
        self.flow.protocol = None
        self.scope = None  # type: ignore[assignment]
        self.cycle = None  # type: ignore[assignment]
        self.pipeline.clear()

    def give_up(self) -> None:
        """Cleans up after a connection that was dropped while it was being made, which the event loop does not
        report."""
        if not self._lost and self.transport is not None:
            self.connection_lost(None)

    def data_received(self, data: bytes) -> None:
        """Parse *data*, or keep it until the requests before it are answered."""
        if self._lingers:
            self._throw_away(len(data))
            return
        if not self._ends:
            self._unparsed.append(data)
        self.parse_on()

    def parse_on(self) -> None:
        """Parse the input as far as is allowed, and resume reading once all of it is parsed."""
        if self._lingers:
            return
        while self._unparsed and self._open and not (self.pipeline or self.flow.read_paused or self._ends):
            self._parse(self._next_piece())
        if not self._open:
            self._forget_input()
            return
        held_up = bool(self._unparsed or self.pipeline) or self.flow.read_paused or self._ends
        if held_up is not self._held_up:
            self._held_up = held_up
            if held_up:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def on_message_begin(self) -> None:
        """Begin the next request of the connection."""
        super().on_message_begin()
        extensions: dict[str, Any] = {ABORT: {"abort": self._abort_connection}}
        if self._certificate is not None:
            extensions[CERTIFICATE] = self._certificate
        self.scope["extensions"] = extensions
        if not self._in_headers:
            self._expect_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. A trailer, which follows a body, is only counted."""
        if self._in_headers and len(self.headers) <= HEADERS_LIMIT:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the answer."""
        self._stop_clock()
        self._in_headers = False
        if len(self.headers) > HEADERS_LIMIT:
            self._refuse_request(TOO_MUCH_HEAD)
            return
        if self.url.startswith(b"//"):  # Otherwise the text after it would be read as a host.
            self.url = b"/." + self.url
        super().on_headers_complete()
        self._asked = self._in_body = True
        self._body_bytes = self._framing_bytes = 0
        lengths = [value for name, value in self.headers if name == b"content-length"]
        self._length = int(lengths[0]) if lengths else None
        self._start_clock(BODY_PATIENCE_S)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        if self._in_body:
            self._body_bytes += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._stop_clock()
        self._header_bytes = 0
        if self._in_body:
            self._in_body = False
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP."""
        self._refuse_request(b"400 Bad Request", msg.encode())

    def check_reader(self, now: float) -> None:
        """Drops the connection if its client reads too little of its answer. *now*: the time of the event loop."""
        left = self.transport.get_write_buffer_size()
        taken = self._sent - left
        if not left or taken - self._taken >= LEAST_TAKEN:
            self._taken, self._taken_at = taken, now
        elif now - self._taken_at >= READER_PATIENCE_S:
            self._abort_connection()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, _Counted(self, cycle, app))  # type: ignore[arg-type]

    def prepare_answer(self, cycle: RequestResponseCycle, message: Message) -> Message:
        """Returns *message*, a part of an answer, with the headers to be sent."""
        if message["type"] == "http.response.body":
            self._sent += len(message.get("body", b""))
        elif cycle.more_body and cycle is self.cycle and self._is_more_than_drained():
            return {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        return message

    def _is_more_than_drained(self) -> bool:
        """Tells whether much of an unwanted body is still to come, or an unknown amount."""
        return self._length is None or self._length - self._body_bytes > DRAINED

    @property
    def _open(self) -> bool:
        return not self._lost and not self.transport.is_closing()

    def _next_piece(self) -> bytes:
        """Returns the next bytes to be parsed: the head of one request, or a part of one body."""
        data, start = self._unparsed[0], self._parsed
        if not self._in_body:
            found = data.find(_END_OF_HEADERS, start, start + PARSED_AT_ONCE)
            end = start + PARSED_AT_ONCE if found < 0 else found + len(_END_OF_HEADERS)
        elif self._length is None:
            end = start + CHUNKS_PARSED_AT_ONCE
        else:
            end = start + min(PARSED_AT_ONCE, max(1, self._length - self._body_bytes))
        if end < len(data):
            self._parsed = end
            return data[start:end]
        self._parsed = 0
        self._unparsed.popleft()
        return data[start:] if start else data

    def _parse(self, data: bytes) -> None:
        in_body, body_bytes = self._in_body, self._body_bytes
        if not in_body:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_LIMIT:
                self._refuse_request(TOO_MUCH_HEAD)
                return
        super().data_received(data)
        if not self._open or self._ends or self._lingers:
            return
        if self._in_body and in_body:
            self._framing_bytes += len(data) - (self._body_bytes - body_bytes)
            if self._framing_bytes > FRAMING_LIMIT + FRAMING_PER_BYTE * self._body_bytes:
                self._refuse_request(b"400 Bad Request")
            elif self._body_bytes > BODY_LIMIT:
                self._refuse_request(b"413 Content Too Large")

    def _forget_input(self) -> None:
        self._unparsed.clear()
        self._parsed = 0

    def _expect_headers(self) -> None:
        self._in_headers = True
        self._start_clock(HEADER_PATIENCE_S)

    def _start_clock(self, patience_s: float) -> None:
        self._stop_clock()
        if not self._lost:  # An answer may be finished after its connection has gone.
            self._late = self.loop.call_later(patience_s, self._too_late, patience_s)

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self, patience_s: float) -> None:
        if not self._open:
            return  # The client is gone.
        if self._held_up:
            self._start_clock(patience_s)  # The core does not read at present, so the client is not to blame.
        else:
            self._refuse_request(b"408 Request Timeout")

    def _abort_connection(self) -> None:
        self._forget_input()
        self.transport.abort()

    def _refuse_request(self, status: bytes, text: bytes = b"") -> None:
        if self._may_answer() and self._open:
            head = b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            self.transport.write(head % (status, len(text)) + b"connection: close\r\n\r\n" + text)
            self.start_lingering()

    def start_lingering(self) -> None:
        """Ends the connection so that a client that is still sending does not lose its answer."""
        if not self._open:
            return
        self._lingers = True
        self._stop_clock()
        waiting = sum(map(len, self._unparsed)) - self._parsed
        self._forget_input()
        if self._held_up:
            self._held_up = False
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._late = self.loop.call_later(LINGER_S, self._linger_on, LONGEST_LINGER)
        self._throw_away(waiting)

    def _linger_on(self, looks_left: int) -> None:
        """Go on waiting while the client still sends much, within bounds."""
        if self._thrown_away - self._thrown_before >= LEAST_LINGERED and looks_left:
            self._thrown_before = self._thrown_away
            self._late = self.loop.call_later(LINGER_S, self._linger_on, looks_left - 1)
        else:
            self.transport.close()

    def _throw_away(self, count: int) -> None:
        """Count unwanted input. After the last byte of a body the connection can end at once."""
        self._thrown_away += count
        if self._thrown_away > LINGER_BYTES:
            self._abort_connection()
        elif self._in_body and self._length is not None and self._body_bytes + self._thrown_away >= self._length:
            self._stop_clock()
            self.transport.close()

    def _may_answer(self) -> bool:
        """Tells whether a refusal of the present input may be written now. If not, the connection ends without one.

        The answers to earlier requests come first, and answers are never mixed.
        """
        self._stop_clock()
        self._forget_input()
        if self.transport.is_closing():
            return False
        if self.waiting:
            return True
        if not self._in_body:
            self.cycle.keep_alive = False
            self._ends = True
            return False
        if self.pipeline or self.cycle.response_started:
            self._abort_connection()
            return False
        # The handler of a request that has arrived only in part is notified that its client is gone.
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        return True


def _do_nothing() -> None:
    """Does nothing."""


class _Counted:
    """Runs *app*, and shows *protocol* each part of its answers."""

    def __init__(self, protocol: PatientProtocol, cycle: RequestResponseCycle, app: ASGIApp) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            cycle = self._cycle
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            lingers = last and cycle.more_body and not cycle.keep_alive
            if lingers:
                cycle.keep_alive = True  # The connection ends, but not at once.
            await send(self._protocol.prepare_answer(cycle, message))
            if lingers and cycle.response_complete:
                self._protocol.start_lingering()

        await self._app(scope, receive, counted)
