"""A TCP proxy that can be slow, or fall silent: connections stay open and take everything, and nothing is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class SilentProxy:
    """Stands between a client and a server at a port of this machine. ``port``: where the client connects."""

    def __init__(self, to_port: int) -> None:
        self.to_port = to_port
        """The port that new connections lead to; 0: they are closed at once."""
        self.silent = False
        """Tells whether everything is taken and nothing passed on, on connections old and new."""
        self.muted: set[int] = set()
        """The ports from which the server sees connections come on which nothing is passed on either."""
        self.delay_s = 0.0
        """The time that everything takes each way."""
        self.held_until_s = 0.0
        """The time of the event loop before which nothing arrives."""
        self.port = 0
        self._clients: list[asyncio.StreamWriter] = []
        self._servers: list[asyncio.StreamWriter] = []

    async def pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, seen_port: int) -> None:
        """Passes bytes on until *source* ends, of the connection that the server sees come from *seen_port*."""
        due_s = 0.0
        with suppress(OSError):
            while data := await source.read(65_536):
                if not (self.silent or seen_port in self.muted):
                    now_s = asyncio.get_running_loop().time()
                    # Never before what came earlier, also when the delay has just become shorter.
                    due_s = max(now_s + self.delay_s, self.held_until_s, due_s + 1e-6)
                    asyncio.get_running_loop().call_at(due_s, sink.write, data)
            if not self.silent:
                asyncio.get_running_loop().call_later(2 * self.delay_s, sink.close)

    def close_far_ends(self) -> None:
        """Falls silent, and closes the connections to the server: the client notices nothing."""
        self.silent = True
        for writer in self._servers:
            writer.transport.abort()

    async def mend(self) -> None:
        """Closes all connections, and passes on what comes over new ones."""
        await self.close()
        self.silent = False
        self.muted.clear()
        self._clients.clear()
        self._servers.clear()

    async def close(self) -> None:
        """Closes all connections."""
        writers = [*self._clients, *self._servers]
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        self._clients.append(writer)
        if not self.to_port:
            writer.close()
            return
        with suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self.to_port)
            self._servers.append(back)
            seen_port = back.get_extra_info("sockname")[1]
            await asyncio.gather(self.pump(reader, back, seen_port), self.pump(there, writer, seen_port))
            return
        writer.close()


@asynccontextmanager
async def silent_proxy(to_port: int) -> AsyncIterator[SilentProxy]:
    """A proxy that listens."""
    proxy = SilentProxy(to_port)

    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.close()
