"""Processes as ``/proc`` shows them: whether one is still the same, what descends from it, and what carries a mark."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
MARK: Final = "KORNEL_MARK"
"""The variable in the environment of a job's processes by which they are found wherever they went."""


def allow_open_files() -> tuple[int, int]:
    """Returns how many files this process might open so far, and how many now: as many as the kernel lets it."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return before, resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@cache
def read_boot_id() -> str:
    """Returns the ID that the kernel made up when the machine was started."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_stat(pid: int) -> tuple[str, int, int] | None:
    """Returns the state of a process, its parent, and its start in ticks since boot; ``None`` if there is none."""
    if (text := _read_file(pid, "stat")) is None:
        return None
    # The name of the program stands in parentheses, and may hold some itself.
    words = text[text.rfind(b")") + 2 :].split()
    return words[0].decode(), int(words[1]), int(words[19])


def _read_file(pid: int, name: str) -> bytes | None:
    """Returns what the kernel says of a process; ``None`` if there is none, or it is nobody's business."""
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            # Whoever asks would take it that there is no such process.
            raise
        return None


def start_ticks(pid: int) -> int:
    """Returns when a process was started, in ticks since boot; 0 if there is none."""
    stat = read_stat(pid)
    return stat[2] if stat is not None else 0


def is_alive(pid: int, ticks: int) -> bool:
    """Tells whether the process *pid* that was started at *ticks* still runs: not another one, and no zombie."""
    stat = read_stat(pid)
    return stat is not None and stat[2] == ticks and stat[0] not in ("Z", "X")


def list_processes() -> list[int]:
    """Returns the IDs of all processes."""
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208 - it makes no objects


def find_descendants(ancestor: int) -> list[int]:
    """Returns the processes below *ancestor* that run, parents before children."""
    children: dict[int, list[int]] = defaultdict(list)
    zombies = set()
    for pid in list_processes():
        if (stat := read_stat(pid)) is not None:
            children[stat[1]].append(pid)
            if stat[0] in ("Z", "X"):
                zombies.add(pid)
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += [pid for pid in below if pid not in zombies]
        waiting += below
    return found


def find_marked(mark: str) -> list[int]:
    """Returns the processes in whose environment :data:`MARK` is *mark*, as far as they may be looked at."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for pid in list_processes():
        variables = _read_file(pid, "environ")
        if variables is not None and wanted in variables.split(b"\0") and pid != os.getpid():
            found.append(pid)
    return found


def handles_signal(pid: int, number: int) -> bool:
    """Tells whether a process has a handler for a signal; without one most signals end it."""
    try:
        text = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    for line in text.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def send_signal(pids: Iterable[int], number: int) -> None:
    """Send a signal to each of *pids* that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def find_session(leader: int, ticks: int) -> list[int]:
    """Returns the processes of the session that *leader* began, which was started at *ticks*, and may have ended."""
    stat = read_stat(leader)
    if stat is not None and stat[2] != ticks:
        # The number belongs to another process by now, so that nobody can have been left of the session.
        return []
    found = []
    for pid in list_processes():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader and pid != os.getpid():
                found.append(pid)
    return found


def kill_found(find: Callable[[], Iterable[int]]) -> int:
    """Kill the processes that *find* returns, and those that they start meanwhile. Returns how many were seen."""
    seen: set[int] = set()
    while running := [pid for pid in find() if (stat := read_stat(pid)) is not None and stat[0] not in ("Z", "X")]:
        seen.update(running)
        send_signal(running, signal.SIGKILL)
    return len(seen)


def kill_marked(mark: str) -> int:
    """Kill the processes that carry *mark*, and those that they start meanwhile. Returns how many were seen."""
    return kill_found(lambda: find_marked(mark))
