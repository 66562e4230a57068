"""Reads logs while they are written: the log of one task, or the logs of an array with the names of its tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kornel.shim_local.client import ServerConnection

FOLLOW_S: Final = 0.2


def follow_log(server: ServerConnection, name: str, attempt: int, *, follow: bool) -> Iterator[bytes]:
    """Yields the log of a task piece by piece, of its last attempt if *attempt* is 0.

    With *follow*, this goes on until the task has ended, and includes all later attempts.
    """
    offset = 0
    current = attempt
    while True:
        answer = server.request({"do": "logs", "name": name, "offset": offset, "attempt": current})
        data = str(answer["data"]).encode("latin-1")
        offset += len(data)
        if data:
            yield data
            continue
        if not follow or (answer["over"] and answer["attempt"] == answer["current"]):
            return
        if not attempt and answer["current"] > answer["attempt"]:
            current, offset = answer["current"], 0
        elif answer["node"]:
            # The rest of this attempt is read before the beginning of the next one.
            current = answer["attempt"]
        time.sleep(FOLLOW_S)


@dataclass(slots=True)
class _Position:
    """The position up to which the log of a task was read."""

    attempt: int
    offset: int = 0
    rest: bytes = b""
    """The beginning of a line that has not ended."""


def follow_array(server: ServerConnection, name: str, attempt: int, *, follow: bool) -> Iterator[bytes]:
    """Yields whole lines of all tasks of an array, each with the name of its task in front."""
    positions: dict[str, _Position] = {}
    while True:
        # The states are asked before the logs are read, so the logs of ended tasks are complete.
        tasks = server.request({"do": "show", "name": name})["tasks"]
        for task in tasks:
            yield from _read_lines(server, task, attempt, positions)
        if not follow or all(task["ended_s"] for task in tasks):
            return
        time.sleep(FOLLOW_S)


def _read_lines(
    server: ServerConnection, task: dict[str, Any], attempt: int, positions: dict[str, _Position]
) -> Iterator[bytes]:
    """Yields the new lines in the log of a task, including the unfinished last line if the task has ended."""
    name = str(task["task"])
    wanted = attempt or int(task["attempt"])
    position = positions.setdefault(name, _Position(wanted))
    if position.attempt != wanted:
        positions[name] = position = _Position(wanted)
    if position.offset < 0 or not task["node"]:
        return
    front = f"{name}: ".encode()
    while data := _read_piece(server, name, position):
        *lines, position.rest = (position.rest + data).split(b"\n")
        for line in lines:
            yield front + line + b"\n"
    if task["ended_s"]:
        if position.rest:
            yield front + position.rest + b"\n"
        position.offset = -1


def _read_piece(server: ServerConnection, name: str, position: _Position) -> bytes:
    request = {"do": "logs", "name": name, "offset": position.offset, "attempt": position.attempt}
    data = str(server.request(request)["data"]).encode("latin-1")
    position.offset += len(data)
    return data
