"""Processes as ``/proc`` shows them. It tells whether a process is still the same, and finds its descendants and the
processes with a mark."""

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
"""The environment variable by which a job's processes are found, even if they have left its session."""


def allow_open_files() -> tuple[int, int]:
    """Raises the number of files that this process may open to the maximum. Returns the old and the new number."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return before, resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@cache
def read_boot_id() -> str:
    """Returns the ID that the kernel generated when the machine was started."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_stat(pid: int) -> tuple[str, int, int] | None:
    """Returns the state of a process, its parent, and its start in ticks since boot, or ``None`` if there is no such
    process."""
    if (text := _read_file(pid, "stat")) is None:
        return None
    # The name of the program is in parentheses, and may contain parentheses itself.
    words = text[text.rfind(b")") + 2 :].split()
    return words[0].decode(), int(words[1]), int(words[19])


def _read_file(pid: int, name: str) -> bytes | None:
    """Returns the content of a file of the kernel about a process, or ``None`` if the process does not exist or the
    file may not be read."""
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            # The caller would conclude that there is no such process.
            raise
        return None


def start_ticks(pid: int) -> int:
    """Returns the start of a process in ticks since boot, or 0 if there is no such process."""
    stat = read_stat(pid)
    return stat[2] if stat is not None else 0


def is_alive(pid: int, ticks: int) -> bool:
    """Tells whether the process *pid* that was started at *ticks* still runs. Another process with the same ID, or a
    zombie, does not count."""
    stat = read_stat(pid)
    return stat is not None and stat[2] == ticks and stat[0] not in ("Z", "X")


def list_processes() -> list[int]:
    """Returns the IDs of all processes."""
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208 - it makes no objects


def find_descendants(ancestor: int) -> list[int]:
    """Returns the running descendants of *ancestor*, parents before children."""
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
    """Returns the processes in whose environment :data:`MARK` is *mark*, as far as their environment may be read."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for pid in list_processes():
        variables = _read_file(pid, "environ")
        if variables is not None and wanted in variables.split(b"\0") and pid != os.getpid():
            found.append(pid)
    return found


def handles_signal(pid: int, number: int) -> bool:
    """Tells whether a process has a handler for a signal. Without one, most signals end the process."""
    try:
        text = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    for line in text.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def send_signal(pids: Iterable[int], number: int) -> None:
    """Send a signal to each of *pids* that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def find_session(leader: int, ticks: int) -> list[int]:
    """Returns the processes of the session of *leader*, a process that was started at *ticks* and may have ended."""
    stat = read_stat(leader)
    if stat is not None and stat[2] != ticks:
        # The ID belongs to another process by now, so no process of the session can be left.
        return []
    found = []
    for pid in list_processes():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader and pid != os.getpid():
                found.append(pid)
    return found


def kill_found(find: Callable[[], Iterable[int]]) -> int:
    """Kill the processes that *find* returns, and those that they start meanwhile. Returns the number of processes
    found."""
    seen: set[int] = set()
    while running := [pid for pid in find() if (stat := read_stat(pid)) is not None and stat[0] not in ("Z", "X")]:
        seen.update(running)
        send_signal(running, signal.SIGKILL)
    return len(seen)


def kill_marked(mark: str) -> int:
    """Kill the processes that carry *mark*, and those that they start meanwhile. Returns the number of processes
    found."""
    return kill_found(lambda: find_marked(mark))
