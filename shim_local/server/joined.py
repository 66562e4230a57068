"""The program behind ``kornel-local up --join``: the agent of a machine whose server runs on another machine.

Commands that are given on this machine are passed on to the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from typing import Any, Final

from kornel.shim_local.machine.agent import Agent
from kornel.shim_local.machine.cgroups import find_cgroups
from kornel.shim_local.server.agent_links import read_timely, send_pings
from kornel.shim_local.server.settings import Settings, SettingsError, read_token, split_address
from kornel.shim_local.server.wire import MOST_BYTES, WireError, prove_token, read_message, write_message

AGAIN_S: Final = 2.0
CONNECT_S: Final = 10.0
_LOGGER: Final = logging.getLogger(__name__)


class JoinedAgent:
    """An agent, and its connection to the server, which is made again whenever it breaks."""

    def __init__(self, settings: Settings) -> None:
        """Reads the token. Raises SettingsError."""
        settings.check()
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if settings.token_file is None:
            raise SettingsError("--join needs --agent-token: a copy of the file `token` of the server")
        self._settings = settings
        self._address = split_address(settings.join)
        self._token = read_token(settings.token_path)
        self._tls = settings.client_tls()
        self._agent = Agent(
            settings.folder / "agent",
            settings.name,
            settings.capacity,
            find_cgroups(f"kornel-local-{os.getuid()}-{settings.folder.stat().st_ino}"),
            self._send_report,
        )
        self._state = "not connected yet"
        self._writer: asyncio.StreamWriter | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or ``down``. Raises an error if it cannot start."""
        await self._agent.open()
        path = self._settings.socket
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve_command, path, limit=MOST_BYTES)
        path.chmod(0o600)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        tasks = [asyncio.create_task(self._stopping.wait()), asyncio.create_task(self._stay_connected())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            path.unlink(missing_ok=True)
            await self._agent.close()

    async def _connect(self, role: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Returns a connection over which both sides have proved that they know the token. Raises OSError, TimeoutError
        or WireError."""
        async with asyncio.timeout(CONNECT_S):
            host, port = self._address
            reader, writer = await asyncio.open_connection(host, port, limit=MOST_BYTES, ssl=self._tls)
        try:
            await prove_token(reader, writer, self._token, role)
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _stay_connected(self) -> None:
        while True:
            try:
                reader, writer = await self._connect("agent")
            except (OSError, TimeoutError, WireError) as error:
                self._note_state(f"cannot connect to {self._settings.join}: {str(error) or 'it does not answer'}")
            else:
                pinging = asyncio.create_task(send_pings(writer))
                try:
                    await self._follow_server(reader, writer)
                except (OSError, WireError) as error:
                    self._note_state(f"the connection to {self._settings.join} broke: {error}")
                finally:
                    self._writer = None
                    pinging.cancel()
                    writer.close()
            await asyncio.sleep(AGAIN_S)

    async def _follow_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        write_message(writer, self._agent.describe_machine())
        self._writer = writer
        while (message := await read_timely(reader)) is not None:
            match message["do"]:
                case "welcome":
                    self._note_state("")
                case "refused":
                    self._note_state(f"{self._settings.join} refuses this machine: {message['reason']}")
                    return
                case "ping":
                    pass
                case _:
                    self._agent.handle(message)
        self._note_state(f"the server at {self._settings.join} is away")

    def _send_report(self, message: dict[str, Any]) -> None:
        # Messages that are lost without a connection are contained in the next introduction.
        if self._writer is not None:
            write_message(self._writer, message)

    def _note_state(self, state: str) -> None:
        if state != self._state:
            _LOGGER.log(logging.WARNING if state else logging.INFO, "%s", state or "connected to the server")
        self._state = state

    async def _serve_command(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers requests about this machine, and passes all others on to the server."""
        upstream: asyncio.StreamWriter | None = None
        try:
            while (request := await read_message(reader)) is not None:
                if request.get("do") == "down":
                    write_message(writer, {"running": len(self._agent.describe_machine()["attempts"])})
                    await writer.drain()
                    self._stopping.set()
                    return
                if request.get("do") == "joined":
                    write_message(writer, {"join": self._settings.join, "core_state": self._state, "pid": os.getpid()})
                    continue
                if upstream is None:
                    answers, upstream = await self._connect("command")
                write_message(upstream, request)
                answer = await read_message(answers)
                write_message(writer, answer or {"error": "the server ended the connection"})
                await writer.drain()
        except (OSError, TimeoutError, WireError) as error:
            reason = f"the server at {self._settings.join} cannot be reached: {str(error) or 'it does not answer'}"
            with suppress(OSError):
                write_message(writer, {"error": reason})
        finally:
            for each in (upstream, writer):
                if each is not None:
                    each.close()
