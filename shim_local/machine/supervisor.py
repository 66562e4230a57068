"""The supervisor of one attempt: a small process that starts the command, keeps its log, stops it, and records its end.

It is forked by the launching process, and survives the agent. Because it is a subreaper, all descendants of the command
remain its own descendants, even if they leave the process group by ``setsid``. The attempt ends when all of them are
gone.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from kornel.shim_local.machine.attempt_folder import AttemptFolder, Slot
from kornel.shim_local.machine.cgroups import (
    Cgroups,
    count_oom_kills,
    find_own_group,
    join_group,
    kill_group,
    remove_group,
)
from kornel.shim_local.machine.processes import (
    find_descendants,
    handles_signal,
    read_boot_id,
    send_signal,
    start_ticks,
)

LEFTOVER_S: Final = 2.0
"""The time between SIGTERM and SIGKILL for background processes once the command itself has ended."""
OOM_SCORE: Final = b"500"
SCORE: Final = Path("/proc/self/oom_score_adj")
IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""The signals that the supervisor ignores. The command must not inherit this."""
KILL_AGAIN_S: Final = 0.02
READ_BYTES: Final = 64 * 1024
LONGEST_POLL_MS: Final = 3_600_000.0
"""The longest wait of one call of ``poll``, which accepts at most 2**31 ms (24 days); a deadline may be later."""
PR_SET_CHILD_SUBREAPER: Final = 36
CANCEL: Final = "cancel"
PREEMPT: Final = "preempt"
TIME: Final = "time"
# It is looked up once, in the process that forks, because a look-up in each fork would copy memory.
_control_process: Final = ctypes.CDLL(None, use_errno=True).prctl


class BoundedLog:
    """A log file with a limited size, which also works when the disk is full."""

    def __init__(self, folder: AttemptFolder, most: int) -> None:
        self._file = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._left = most
        self._most = most
        self.lost = 0
        """The number of bytes that were not written."""
        self._full_disk = False

    def write(self, data: bytes) -> None:
        """Append as much of *data* as there is room for, and count the other bytes."""
        kept = data[: self._left] if not self.lost else b""
        written = self._append(kept)
        self._left -= written
        if written < len(data):
            if not self.lost and written == len(kept):
                self._append(f"\n[kornel: the log has reached its limit of {self._most} bytes; the rest is left out]\n")
            self.lost += len(data) - written

    def close(self) -> None:
        """Close the log. If bytes were left out, write their number into it."""
        if self.lost:
            why = ": there was no space left on the disk" if self._full_disk else ""
            self._append(f"\n[kornel: {self.lost} bytes of the log were left out{why}]\n")
        os.close(self._file)

    def _append(self, data: bytes | str) -> int:
        rest = data.encode() if isinstance(data, str) else data
        whole = len(rest)
        while rest:
            try:
                rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                self._full_disk = error.errno in (errno.ENOSPC, errno.EDQUOT)
                break
        return whole - len(rest)


class Supervisor:
    """The state of one attempt while it runs."""

    def __init__(self, folder: AttemptFolder, notices: socket.socket) -> None:
        self._folder = folder
        self._notices = notices
        self._spec: dict[str, Any] = {}
        self._group = ""
        self._main = 0
        self._status: int | None = None
        self._stopped = ""
        self._deadlines: dict[str, float] = {}
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def write_begin(self) -> None:
        """Write this process into the record, so that the attempt can be found even after the agent was killed."""
        self._folder.write_slot(
            Slot.BEGIN, {"pid": os.getpid(), "ticks": start_ticks(os.getpid()), "boot": read_boot_id()}
        )

    def supervise_command(self) -> None:
        """Start the command, and return when none of its processes is left."""
        self._spec = self._folder.read_spec()
        self._group = self._create_group()
        os.mkfifo(self._folder.control, 0o600)
        output, written = os.pipe2(os.O_CLOEXEC)
        refused = self._start_command(written)
        os.close(written)
        if refused:
            self._write_end(refused=refused)
            return
        self._folder.write_slot(Slot.START, {"pid": self._main, "ticks": start_ticks(self._main), "at": time.time()})
        self._send_notice({"started": self._folder.key})
        if self._spec["time_s"]:
            self._deadlines["limit"] = time.monotonic() + self._spec["time_s"]
        log = BoundedLog(self._folder, self._spec["log_bytes"])
        control = os.open(self._folder.control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._follow_command(output, control, log)
        log.close()
        self._write_end(lost_bytes=log.lost)

    def _create_group(self) -> str:
        """Makes the control group of the attempt with its limits. Returns its path, or an empty text if there is
        none."""
        wanted = Path(self._spec["group"])
        if not self._spec["group"]:
            return ""
        cgroups = Cgroups(wanted.parent, frozenset(self._spec["controllers"]))
        return cgroups.create_group(wanted.name, self._spec["vcore"], self._spec["memory"])

    def _start_command(self, written: int) -> str:
        """Starts the command. Returns the reason if it cannot be started, otherwise an empty text.

        It is spawned and not forked, because spawning copies no memory of this process. Settings that the command has
        to inherit are made in this process, and restored after the start.
        """
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        home = find_own_group() if self._group else None
        score = SCORE.read_bytes()
        doing = f"change to {self._spec['directory']}"
        try:
            os.chdir(self._spec["directory"])
            os.umask(self._spec["umask"])
            doing = "limit"
            if home is not None:
                join_group(self._group)
            # If the machine runs out of memory, a job is killed before its supervisor and the server.
            _write_score(OOM_SCORE)
            doing = f"run {self._spec['command'][0]}"
            self._main = spawn_program(self._spec["command"], self._spec["environment"], written)
        except (OSError, ValueError) as error:
            return f"cannot {doing}: {error.strerror if isinstance(error, OSError) else error}"
        finally:
            _write_score(score)
            if home is not None:
                join_group(str(home))
            os.umask(0o077)
            os.chdir("/")
        return ""

    def _follow_command(self, output: int, control: int, log: BoundedLog) -> None:
        """Writes the log, and acts on commands and deadlines, until every process has ended."""
        os.set_blocking(output, False)
        poll = select.poll()
        for file in (output, control, self._wake):
            poll.register(file, select.POLLIN)
        while True:
            for file, _ in poll.poll(self._wait_ms()):
                if file == output:
                    data = _read_some(output)
                    if data == b"":
                        poll.unregister(output)
                    elif data is not None:
                        log.write(data)
                elif file == control:
                    self._obey_commands((_read_some(control) or b"").decode())
                else:
                    _read_some(self._wake)
            none_left = self._reap_children()
            if none_left:
                break
            self._keep_deadlines()
        while data := _read_some(output):
            log.write(data)

    def _wait_ms(self) -> float | None:
        if not self._deadlines:
            return None
        return min(max(0.0, min(self._deadlines.values()) - time.monotonic()) * 1000 + 1, LONGEST_POLL_MS)

    def _reap_children(self) -> bool:
        """Collects the processes that have ended. Returns whether none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                break
            if pid == self._main:
                self._status = os.waitstatus_to_exitcode(status)
                self._deadlines.pop("limit", None)
                self._deadlines.pop("notice", None)
        if self._status is not None and not self._deadlines:
            self._send_to_all(signal.SIGTERM)
            self._deadlines["kill"] = time.monotonic() + min(LEFTOVER_S, self._spec["kill_s"])
        return False

    def _obey_commands(self, text: str) -> None:
        for line in text.splitlines():
            try:
                command = json.loads(line)
                reason, grace_s = str(command["stop"]), float(command["grace_s"])
            except (ValueError, KeyError, TypeError):
                continue
            if self._status is None:
                self._stop(reason, grace_s)

    def _stop(self, reason: str, grace_s: float) -> None:
        """Begins to stop the command. With *grace_s*, the command first gets a warning signal, unless it has no handler
        for it."""
        if self._stopped != CANCEL:
            self._stopped = reason
        if not grace_s:
            if "kill" not in self._deadlines:
                self._send_term()
            return
        if self._deadlines.keys() & {"notice", "kill"}:
            return
        listening = [pid for pid in self._find_members() if handles_signal(pid, signal.SIGUSR1)]
        if not listening:
            self._send_term()
            return
        with suppress(OSError):
            self._folder.preempt_at.write_text(f"{time.time() + grace_s:.3f}\n", encoding="ascii")
        self._deadlines["notice"] = time.monotonic() + grace_s
        send_signal(listening, signal.SIGUSR1)

    def _send_term(self) -> None:
        self._deadlines.pop("notice", None)
        self._deadlines["kill"] = time.monotonic() + self._spec["kill_s"]
        self._send_to_all(signal.SIGTERM)

    def _keep_deadlines(self) -> None:
        now = time.monotonic()
        if self._deadlines.get("limit", now + 1) <= now:
            del self._deadlines["limit"]
            self._stopped = self._stopped or TIME
            self._send_term()
        if self._deadlines.get("notice", now + 1) <= now:
            self._send_term()
        if self._deadlines.get("kill", now + 1) <= now:
            self._kill_all()
            # The children of a process that forks while it is killed are found the next time.
            self._deadlines["kill"] = now + KILL_AGAIN_S

    def _find_members(self) -> list[int]:
        return find_descendants(os.getpid())

    def _send_to_all(self, number: int) -> None:
        # The signal goes to the whole process group at once, so that no member sees another one end first, and then to
        # the processes that have left the group.
        with suppress(ProcessLookupError, PermissionError):
            if self._status is None:
                os.killpg(self._main, number)
        send_signal(
            (pid for pid in self._find_members() if self._status is not None or _group_of(pid) != self._main), number
        )

    def _kill_all(self) -> None:
        if self._group:
            kill_group(self._group)
        self._send_to_all(signal.SIGKILL)

    def _write_end(self, *, refused: str = "", lost_bytes: int = 0) -> None:
        used, own = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
        end = {
            "at": time.time(),
            "status": self._status,
            "stopped": self._stopped,
            "refused": refused,
            "oom": bool(self._group) and count_oom_kills(self._group) > 0,
            "cpu_s": round(used.ru_utime + used.ru_stime, 4),
            "own_cpu_s": round(own.ru_utime + own.ru_stime, 4),
            "peak_bytes": used.ru_maxrss * 1024,
            "log_lost_bytes": lost_bytes,
        }
        if self._group:
            remove_group(self._group)
        self._folder.write_slot(Slot.END, end)

    def _send_notice(self, notice: dict[str, str]) -> None:
        with suppress(OSError):
            self._notices.send(json.dumps(notice).encode(), socket.MSG_DONTWAIT)


def spawn_program(command: list[str], environment: Mapping[str, str], output: int) -> int:
    """Starts *command* in a new session without input. Returns its process ID. Raises OSError or ValueError."""
    program = command[0]
    folders = [""] if "/" in program else os.get_exec_path(environment)
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in folders:
        try:
            return os.posix_spawn(
                f"{folder}/{program}" if folder else program,
                command,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                ],
                setsid=True,
                setsigdef=IGNORED,
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            # Another folder may contain a program with this name that can be run.
            failure = error
    raise failure


def _write_score(score: bytes) -> None:
    with suppress(OSError):
        SCORE.write_bytes(score)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _read_some(file: int) -> bytes | None:
    """Returns the bytes that can be read now, ``None`` if there are none, or no bytes at the end."""
    try:
        return os.read(file, READ_BYTES)
    except BlockingIOError:
        return None


def supervise_attempt(path: AttemptFolder, notices: socket.socket, lock: int) -> NoReturn:
    """Become the supervisor of the attempt at *path*. *lock* is held until the attempt can be found by its record."""
    try:
        os.setsid()
        _control_process(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        supervisor = Supervisor(path, notices)
        supervisor.write_begin()
        os.close(lock)
        supervisor.supervise_command()
    except BaseException:  # noqa: BLE001 - a fork must not go on with its parent's work
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
