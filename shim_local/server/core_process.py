"""The local cluster's own core. It is started if none runs, started again when it ends, and found again by the next
server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from kornel.shim_local.machine.launcher import program_environment
from kornel.shim_local.machine.processes import is_alive, start_ticks

READY_S: Final = 60.0
STOP_S: Final = 15.0
POLL_S: Final = 0.02
PEER_S: Final = 1.0
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
_LOGGER: Final = logging.getLogger(__name__)


class OwnCore:
    """The core that belongs to a state directory. It listens on a socket there, so only its owner can reach it.

    With *page*, its web page is served on loopback, where every user of this machine sees the jobs and may change
    queues.
    """

    def __init__(self, folder: Path, *, page: bool = False) -> None:
        self._socket = folder / "core.sock"
        self.address: Final = f"unix:{self._socket}"
        self.log: Final = folder / "core.log"
        self.trouble = ""
        """The reason why no core serves, in words; empty while a core serves."""
        self._folder = folder
        self._page = page
        self._record = folder / "core.pid"
        self._ready = folder / "core.ready"
        self._serving = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    async def find_core(self) -> str:
        """Returns the address once the core serves."""
        await self._serving.wait()
        return self.address

    async def keep_running(self) -> None:
        """Keep the core running until this call is cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            began = asyncio.get_running_loop().time()
            pid, ticks = self.find_process()
            if not pid:
                pid, ticks = await self._start()
            if await self._wait_until_ready(pid, ticks):
                self.trouble = ""
                self._serving.set()
                await self._wait_for_end(pid, ticks)
                self._serving.clear()
                _LOGGER.error("the core has ended; it is started again")
                pause_s = FIRST_PAUSE_S
            else:
                self.trouble = f"the core does not start; see {self.log}"
                _LOGGER.error("%s", self.trouble)
                await asyncio.sleep(max(0.0, began + pause_s - asyncio.get_running_loop().time()))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def stop(self) -> None:
        """Stop the core and wait for its end."""
        pid, ticks = self.find_process()
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wait_for_end(pid, ticks), STOP_S)

    def read_record(self) -> tuple[int, int]:
        """Returns the process ID of the core that was started last and its start in ticks; zeros if there is none."""
        try:
            pid, ticks = self._record.read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return 0, 0
        return int(pid), int(ticks)

    def find_process(self) -> tuple[int, int]:
        """Returns the process ID of the core that runs and its start in ticks; zeros if none does.

        A server that was killed between starting a core and recording its process leaves a core without a record. The
        process that listens on the core's socket is found all the same, because a second core could not listen there.
        """
        pid, ticks = self.read_record()
        if is_alive(pid, ticks):
            return pid, ticks
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.settimeout(PEER_S)
            connection.connect(str(self._socket))
            pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            ticks = start_ticks(pid)
            self._record.write_text(f"{pid} {ticks}", encoding="ascii")
            return pid, ticks
        return 0, 0

    def page_address(self) -> str:
        """Returns the address of the core's web page, or an empty text if it has none."""
        with suppress(OSError):
            for line in reversed(self.log.read_text(encoding="utf-8", errors="replace").splitlines()):
                with suppress(ValueError):
                    entry = json.loads(line)
                    if isinstance(entry, dict) and entry.get("event") == "serving":
                        rest = str(entry.get("rest", "off"))
                        return "" if rest == "off" else f"http://{rest}/"
        return ""

    def make_arguments(self) -> list[str]:
        """Returns the options with which the core is started; other settings come from the environment."""
        arguments = ["--grpc", self.address, "--log-format", "json", "--ready-file", str(self._ready)]
        if "KORNEL_REST_ADDRESS" not in os.environ:
            arguments += ["--rest-address", "127.0.0.1:0" if self._page else "off"]
        if "KORNEL_HISTORY" not in os.environ:
            arguments += ["--history", str(self._folder / "history.db")]
        return arguments

    async def _start(self) -> tuple[int, int]:
        self._ready.unlink(missing_ok=True)
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", "kornel", "serve", *self.make_arguments()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=program_environment(),
                start_new_session=True,
            )
        pid = self._process.pid
        ticks = start_ticks(pid)
        self._record.write_text(f"{pid} {ticks}", encoding="ascii")
        return pid, ticks

    async def _wait_until_ready(self, pid: int, ticks: int) -> bool:
        try:
            async with asyncio.timeout(READY_S):
                while not self._ready.exists():
                    if not is_alive(pid, ticks):
                        return False
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True

    async def _wait_for_end(self, pid: int, ticks: int) -> None:
        if self._process is not None and self._process.pid == pid:
            await self._process.wait()
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        try:
            watched = os.pidfd_open(pid)
        except OSError:
            return
        try:
            loop.add_reader(watched, ended.set)
            if is_alive(pid, ticks):
                await ended.wait()
        finally:
            loop.remove_reader(watched)
            os.close(watched)
