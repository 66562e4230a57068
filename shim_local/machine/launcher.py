"""The agent's side of the launching process: it starts the process, sends it requests, and reads its notices."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = Path(__file__).resolve().parents[2]
"""The folder above the package: that of the repository, or the package ``kornel`` of an installation."""
LOCK_POLL_S: Final = 0.005
AGAIN_S: Final = 1.0
MOST_BYTES: Final = 16 * 1024


def program_environment() -> dict[str, str]:
    """Returns an environment in which our own programs find the same packages as this one, and gRPC writes no lines of
    its own to their logs. Jobs get the environment of their submission instead."""
    # In an installation Python finds the packages anyway; in a checkout it finds them through the links below kornel/.
    root = PACKAGES if (PACKAGES / "kornel").is_dir() else PACKAGES.parent
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"GRPC_VERBOSITY": "ERROR", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class Launcher:
    """A launching process, started again when it ends."""

    def __init__(
        self,
        lock: Path,
        receive: Callable[[Mapping[str, Any]], None],
        restarted: Callable[[], None],
        open_files: int,
    ) -> None:
        """Prepares a launcher. *receive* is called with each notice, *restarted* when a new process has replaced one
        that ended.

        *open_files* is the number of files that a job may have open.
        """
        self._lock = lock
        self._open_files = open_files
        self._receive = receive
        self._restarted = restarted
        self._socket: socket.socket | None = None
        self._requests: deque[bytes] = deque()
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process once the process of an earlier agent is gone."""
        process = await self._start_process()
        self._keeper = asyncio.create_task(self._keep_running(process), name="launcher")

    async def close(self) -> None:
        """End the process after it has launched every requested attempt."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._close_socket()
        if self._process is not None:
            await self._process.wait()

    def launch_attempt(self, folder: Path) -> None:
        """Request a supervisor for the attempt in *folder*. The request is lost if the process ends before it has read
        it."""
        self._requests.append(json.dumps({"launch": str(folder)}).encode())
        self._send_requests()

    async def _keep_running(self, process: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        while True:
            again = loop.time() + AGAIN_S
            await process.wait()
            self._close_socket()
            # A process that ends as soon as it starts, for instance because its files are gone, is not started again at
            # once.
            await asyncio.sleep(again - loop.time())
            process = await self._start_process()
            self._restarted()

    async def _start_process(self) -> asyncio.subprocess.Process:
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(LOCK_POLL_S)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-P", "-m", "kornel.shim_local.machine.launching_process"),
                    *map(str, (lock, theirs.fileno(), self._open_files)),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(lock, theirs.fileno()),
                    env=program_environment(),
                )
        finally:
            os.close(lock)
        ours.setblocking(False)
        self._socket, self._process = ours, process
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read_notices)
        return process

    def _read_notices(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(MOST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close_socket()
                return
            self._receive(json.loads(data))

    def _send_requests(self) -> None:
        """Sends the waiting requests. Requests that do not fit into the socket are sent once the process has read
        some."""
        if self._socket is None:
            return
        loop = asyncio.get_running_loop()
        while self._requests:
            try:
                self._socket.send(self._requests[0])
            except BlockingIOError:
                loop.add_writer(self._socket.fileno(), self._send_requests)
                return
            except OSError:
                return
            self._requests.popleft()
        loop.remove_writer(self._socket.fileno())

    def _close_socket(self) -> None:
        if self._socket is not None:
            with suppress(ValueError):
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
                asyncio.get_running_loop().remove_writer(self._socket.fileno())
            self._requests.clear()
            self._socket.close()
            self._socket = None
