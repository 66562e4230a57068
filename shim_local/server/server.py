"""The program behind ``kornel-local up``: the store, the dispatcher, the link to the core, and this machine's agent in
one process."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from kornel.shim_local.jobs.dispatcher import Dispatcher
from kornel.shim_local.jobs.store import JobStore, StoreUnwritable
from kornel.shim_local.machine.agent import Agent
from kornel.shim_local.machine.cgroups import find_cgroups
from kornel.shim_local.server.agent_links import AgentLinks
from kornel.shim_local.server.commands import Commands
from kornel.shim_local.server.core_link import CoreLink
from kornel.shim_local.server.core_process import OwnCore
from kornel.shim_local.server.queues import BUILT_IN_DEFAULT, DEFAULT, build_queues
from kornel.shim_local.server.settings import Settings, SettingsError, read_token, split_address
from kornel.shim_local.server.wire import MOST_BYTES, WireError, admit_peer, read_message, write_message

CLEAN_S: Final = 3600.0
ANSWER_S: Final = 0.05
_LOGGER: Final = logging.getLogger(__name__)


class LocalServer:
    """A server with its agent."""

    def __init__(self, settings: Settings) -> None:
        """Opens the store. Raises SettingsError, or an error of the store."""
        settings.check()
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._settings = settings
        self._own_core = None if settings.core else OwnCore(settings.folder, page=settings.page)
        self._links = AgentLinks()
        self._core_link = CoreLink(settings.rm_id, self._find_core, self._read_queues, settings.credentials)
        self._agent = Agent(
            settings.folder / "agent",
            settings.name,
            settings.capacity,
            find_cgroups(f"kornel-local-{os.getuid()}-{settings.folder.stat().st_ino}"),
            self._receive_local,
        )
        self._stopping = asyncio.Event()
        self._with_core = True
        self._connections: set[asyncio.Task[None]] = set()
        self._listening = ""
        self._read_queues()

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or ``down``. Raises an error if it cannot start."""
        await self._agent.open()
        store = JobStore(self._settings.folder / "jobs.db")
        dispatcher = Dispatcher(store, self._core_link, self._links, time.time)
        self._core_link.attach(dispatcher)
        self._links.attach(dispatcher)
        default_queue = DEFAULT if self._settings.queues is not None else BUILT_IN_DEFAULT
        commands = Commands(dispatcher, self._links, self._describe_server, self._stop, default_queue)
        hello = self._agent.describe_machine()
        if reason := dispatcher.find_stranger(hello):
            store.close()
            await self._agent.close()
            raise SettingsError(reason)
        self._links.connect(hello, self._send_local)
        dispatcher.flush()
        servers = [await self._serve_commands(commands)]
        if self._settings.listen:
            servers.append(await self._serve_machines(commands))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, True)
        link = asyncio.create_task(self._core_link.run(), name="core link")
        helpers = [asyncio.create_task(self._clean_regularly(store), name="cleaner")]
        if self._own_core is not None:
            helpers.append(asyncio.create_task(self._own_core.keep_running(), name="core keeper"))
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stopping.wait(), name="stop")
        try:
            await asyncio.wait([link, stopping, *helpers], return_when=asyncio.FIRST_COMPLETED)
            for task in (link, *helpers):
                if task.done():
                    task.result()
        finally:
            for server in servers:
                server.close()
            for task in (*helpers, link, stopping, *self._connections):
                task.cancel()
            # The streams are half-closed before the core ends.
            await asyncio.gather(*helpers, link, stopping, *self._connections, return_exceptions=True)
            self._settings.socket.unlink(missing_ok=True)
            dispatcher.flush()
            await self._agent.close()
            store.close()
            if self._own_core is not None and self._with_core:
                await self._own_core.stop()

    async def _find_core(self) -> str:
        return await self._own_core.find_core() if self._own_core is not None else self._settings.core

    def _read_queues(self) -> str:
        """Returns the configuration of queues. Raises SettingsError."""
        if self._settings.queues is None:
            nodes = self._links.dispatcher.nodes.values() if self._core_link.is_attached else ()
            return build_queues(node.record["capacity"] for node in nodes)
        try:
            return self._settings.queues.read_text(encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"{self._settings.queues}: cannot be read: {error.strerror}") from None

    def _receive_local(self, message: dict[str, Any]) -> None:
        asyncio.get_running_loop().call_soon(self._links.receive, self._settings.name, message)

    def _send_local(self, message: Mapping[str, Any]) -> None:
        # The answer is sent later, because otherwise it would arrive before the caller has finished its step.
        asyncio.get_running_loop().call_soon(self._agent.handle, message)

    async def _serve_commands(self, commands: Commands) -> asyncio.Server:
        path = self._settings.socket
        path.unlink(missing_ok=True)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answer_commands(commands, reader, writer)

        server = await asyncio.start_unix_server(self._follow_connections(serve), path, limit=MOST_BYTES)
        path.chmod(0o600)
        return server

    async def _serve_machines(self, commands: Commands) -> asyncio.Server:
        path = self._settings.token_path
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        token = read_token(path)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await admit_peer(reader, writer, token) == "agent":
                await self._links.serve_agent(reader, writer)
            else:
                await answer_commands(commands, reader, writer)

        host, port = split_address(self._settings.listen)
        try:
            server = await asyncio.start_server(
                self._follow_connections(serve), host, port, limit=MOST_BYTES, ssl=self._settings.server_tls()
            )
        except OSError as error:
            raise SettingsError(f"cannot listen on {self._settings.listen}: {error.strerror}") from None
        self._listening = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        return server

    def _follow_connections(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        """Returns *serve* as a function that closes each connection in any case, and ends it with the server."""

        async def followed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                await serve(reader, writer)
            except (WireError, TimeoutError) as error:
                _LOGGER.warning("%s", str(error) or "a peer was silent for too long")
            except (OSError, asyncio.CancelledError):
                pass
            finally:
                self._connections.discard(task)
                writer.close()

        return followed

    def _describe_server(self) -> dict[str, Any]:
        own = self._own_core
        return {
            "pid": os.getpid(),
            "name": self._settings.name,
            "core": own.address if own is not None else self._settings.core,
            "own_core": own is not None,
            "partition": self._core_link.partition,
            "page": own.page_address() if own is not None else "",
            "core_state": (own.trouble if own is not None else "") or self._core_link.state,
            "listen": self._listening,
            "token_file": str(self._settings.token_path) if self._listening else "",
        }

    def _stop(self, with_core: bool) -> None:
        self._with_core = with_core
        # This is done later, so that the command gets its answer first.
        asyncio.get_running_loop().call_later(ANSWER_S, self._stopping.set)

    async def _clean_regularly(self, store: JobStore) -> None:
        """Removes jobs and logs that ended long ago, every hour."""
        while True:
            before_s = time.time() - self._settings.keep_s
            try:
                store.remove_ended(before_s)
            except StoreUnwritable as error:
                _LOGGER.warning("%s", error)
            self._links.send_to_all({"do": "clean", "before_s": before_s})
            await asyncio.sleep(CLEAN_S)


async def answer_commands(commands: Commands, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, one after the other."""
    while (request := await read_message(reader)) is not None:
        answering = asyncio.ensure_future(commands.answer(request))
        gone = asyncio.ensure_future(reader.read(1)) if request.get("do") == "wait" else None
        if gone is not None:
            # A command that waits for a job may end before the answer is there.
            await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                answering.cancel()
                return
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
        write_message(writer, await answering)
        await writer.drain()
