"""Starts the server in the background, says what came of it, and waits for its end."""

from __future__ import annotations

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
POLL_S: Final = 0.05
SOCKET: Final = "server.sock"
LOG: Final = "server.log"


class NotStarted(Exception):
    """The server did not come up; the message says why."""


def start_server(folder: Path, arguments: Sequence[str]) -> list[str]:
    """Returns lines about a server in the background, started with *arguments* unless one serves in *folder* already.

    Raises NotStarted.
    """
    with suppress(NoServer, RequestRefused), ServerConnection(folder / SOCKET) as server:
        return ["already up", *describe_state(read_state(server))]
    log = folder / LOG
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log.open("ab") as output:
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

    def is_working() -> bool:
        if process.poll() is not None:
            lines = log.read_bytes()[began:].decode("utf-8", "replace").strip().splitlines()
            raise NotStarted(lines[-1].removeprefix("kornel-local: ") if lines else "the server has ended")
        with suppress(NoServer, RequestRefused), ServerConnection(folder / SOCKET) as server:
            return not read_state(server)["core_state"]
        return False

    if not wait_until(is_working, UP_S):
        raise NotStarted(f"the server does not come up within {UP_S:g} s; it is tried on, see {log}")
    with ServerConnection(folder / SOCKET) as server:
        return ["up", *describe_state(read_state(server))]


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Tells whether *condition* comes to hold within *seconds*."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def read_state(server: ServerConnection) -> dict[str, Any]:
    """Returns what a server says of itself, or the agent of a machine that has joined one."""
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
