"""Starts the server in the background, reports whether it runs, and waits for its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kornel.shim_local.client import NoServer, RequestRefused, ServerConnection
from kornel.shim_local.machine.launcher import program_environment
from kornel.shim_local.tables import format_nodes

UP_S: Final = 60.0
BUSY_S: Final = 2.0
EXIT_BUSY: Final = 4
"""The exit status of a server if another server or agent uses the state directory, or is just starting in it."""
POLL_S: Final = 0.05
SOCKET: Final = "server.sock"
LOG: Final = "server.log"


class NotStarted(Exception):
    """The server did not come up; the message says why."""


def check_folder(folder: Path) -> None:
    """Raises NotStarted if *folder*, the state directory, is there and not private: it holds tokens, and programs that
    this user runs."""
    try:
        found = folder.stat()
    except OSError:
        return
    if found.st_uid != os.geteuid():
        raise NotStarted(f"{folder} belongs to another user")
    if found.st_mode & 0o022:
        raise NotStarted(f"{folder} can be written by other users; take that away with chmod go-w")


def start_server(folder: Path, arguments: Sequence[str]) -> list[str]:
    """Starts a server in the background with *arguments*, unless one serves in *folder* already. Returns lines about
    it.

    Raises NotStarted.
    """
    with suppress(NoServer, RequestRefused), ServerConnection(folder / SOCKET) as server:
        return ["already up", *describe_state(read_state(server))]
    log = folder / LOG
    end = time.monotonic() + UP_S
    while True:
        process, began = _start_process(folder, arguments)
        _wait_for_server(process, folder, end - time.monotonic())
        if process.poll() == EXIT_BUSY and time.monotonic() < end:
            # Another command is just starting a server, or the previous server has not ended yet.
            if not wait_until(lambda: _is_working(folder), BUSY_S):
                continue
        elif process.returncode is not None:
            lines = log.read_bytes()[began:].decode("utf-8", "replace").strip().splitlines()
            raise NotStarted(lines[-1].removeprefix("kornel-local: ") if lines else "the server has ended")
        try:
            with ServerConnection(folder / SOCKET) as server:
                state = read_state(server)
        except (NoServer, RequestRefused) as error:
            raise NotStarted(f"{error}; see {log}") from None
        if state["core_state"]:
            raise NotStarted(
                f"the server does not come up within {UP_S:g} s: {state['core_state']}; it keeps trying, see {log}"
            )
        if state["pid"] == process.pid:
            return ["up", *describe_state(state)]
        # It serves nobody here, and would do so again as soon as the other server goes down.
        process.terminate()
        process.wait()
        return ["already up", *describe_state(state)]


def _start_process(folder: Path, arguments: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a server. Returns its process, and the offset at which its part of the log begins. Raises NotStarted."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / LOG).open("ab") as output:
            began = output.tell()
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kornel.shim_local", *arguments, "--foreground"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=program_environment(),
                start_new_session=True,
                umask=0o077,
            )
    except OSError as error:
        raise NotStarted(f"{error.filename or folder}: {error.strerror}") from None
    return process, began


def _wait_for_server(process: subprocess.Popen[bytes], folder: Path, seconds: float) -> None:
    """Waits until a server works in *folder*, *process* has ended, or *seconds* are over."""
    wait_until(lambda: process.poll() is not None or _is_working(folder), seconds)


def _is_working(folder: Path) -> bool:
    """Tells whether a server works in *folder* and has a connection to its core."""
    with suppress(NoServer, RequestRefused), ServerConnection(folder / SOCKET) as server:
        return not read_state(server)["core_state"]
    return False


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Tells whether *condition* becomes true within *seconds*."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def read_state(server: ServerConnection) -> dict[str, Any]:
    """Returns the status of a server, or of the agent of a machine that has joined one."""
    try:
        return server.request({"do": "joined"})
    except RequestRefused:
        return server.request({"do": "status"})


def describe_state(state: dict[str, Any]) -> list[str]:
    """Returns lines about a server or a joined agent."""
    if "join" in state:
        said = state["core_state"]
        return [f"agent of the server at {state['join']}" + (f": {said}" if said else "")]
    return describe_server(state)


def describe_server(status: dict[str, Any]) -> list[str]:
    """Returns lines about the server, its core and its machines."""
    lines = [f"core     {status['core']}" + (f": {status['core_state']}" if status["core_state"] else "")]
    if status["page"]:
        lines.append(f"page     {status['page']}")
    if status["listen"]:
        lines.append(f"agents   may connect to {status['listen']} with a copy of {status['token_file']}")
    if status["trouble"]:
        lines.append(f"trouble  {status['trouble']}; nothing is started until it can")
    return [*lines, "", *format_nodes(status["nodes"])]
