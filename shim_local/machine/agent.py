"""The agent of one machine: it starts attempts, takes over those of the previous agent, stops them, and reports their
ends.

It decides nothing: the server tells it what to start and what to stop. It keeps an attempt whose end it has reported
until the server has stored the end. Agent and server may be killed at any time, because the folder of an attempt shows
its progress.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from kornel.shim_local.machine.attempt_folder import AttemptFolder, Slot
from kornel.shim_local.machine.capacity import Capacity
from kornel.shim_local.machine.cgroups import Cgroups, kill_group, remove_empty_groups, remove_group
from kornel.shim_local.machine.launcher import Launcher
from kornel.shim_local.machine.processes import (
    MARK,
    allow_open_files,
    find_marked,
    find_session,
    is_alive,
    kill_found,
    read_boot_id,
)

Message: TypeAlias = Mapping[str, Any]

CONTROL_AGAIN_S: Final = 0.02
START_AGAIN_S: Final = 1.0
ROUNDING: Final = 1e-6
LOG_PIECE_BYTES: Final = 256 * 1024
LOCK_WAIT_S: Final = 1.0
"""A process that a killed agent was about to start keeps the agent's lock until it runs its program."""
LOCK_POLL_S: Final = 0.01
_LOGGER: Final = logging.getLogger(__name__)


class AgentBusy(Exception):
    """Another agent works in the folder."""


def _try_lock(file: int) -> bool:
    """Returns false if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(slots=True)
class _Attempt:
    """An attempt whose end the server has not confirmed."""

    folder: AttemptFolder
    gpus: tuple[str, ...] = ()
    share: float = 0.0
    """The number of whole GPUs, or the part of one that is below 1."""
    group: str = ""
    pid: int = 0
    """The process ID of the supervisor; 0 as long as it is not known."""
    watched: int = -1
    """A file that becomes readable when the supervisor ends."""
    started: bool = False
    """Tells whether the start of the command was reported."""
    end: dict[str, Any] | None = None
    commands: list[bytes] = field(default_factory=list)
    """Commands that the supervisor has not read yet."""


class Agent:
    """The agent of this machine."""

    def __init__(
        self,
        folder: Path,
        name: str,
        capacity: Capacity,
        cgroups: Cgroups,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        """Prepares the agent. *report* is called with each message for the server; while there is no connection, it may
        drop them."""
        self.name: Final = name
        self.capacity: Final = capacity
        self.cgroups: Final = cgroups
        self._folder = folder
        self._live = folder / "live"
        self._done = folder / "done"
        self._report = report
        self._attempts: dict[str, _Attempt] = {}
        files_of_jobs, open_files = allow_open_files()
        # Each attempt needs one open file; the other files are for commands, connections and short reads.
        self._most_attempts = open_files // 2
        self._launcher = Launcher(folder / "launcher.lock", self._receive_notice, self._launch_again, files_of_jobs)
        self._boot = read_boot_id()
        self._identity = ""
        self._lock = -1

    async def open(self) -> None:
        """Take over the attempts of the previous agent. Raises AgentBusy."""
        for folder in (self._live, self._done):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + LOCK_WAIT_S
        while not _try_lock(self._lock):
            if time.monotonic() > until:
                os.close(self._lock)
                raise AgentBusy(f"another agent works in {self._folder}")
            await asyncio.sleep(LOCK_POLL_S)
        identity = self._folder / "identity"
        if not identity.exists():
            identity.write_text(uuid.uuid4().hex, encoding="ascii")
        self._identity = identity.read_text(encoding="ascii")
        # The lock of the launching process is free once every requested attempt has begun or never will.
        await self._launcher.start()
        for path in sorted(self._live.iterdir()):
            self._adopt_attempt(AttemptFolder(path))

    async def close(self) -> None:
        """Close everything. The running attempts go on under their supervisors."""
        await self._launcher.close()
        for attempt in self._attempts.values():
            self._stop_watching(attempt)
        if self.cgroups.folder is not None:
            remove_empty_groups(self.cgroups.folder)
        os.close(self._lock)

    def describe_machine(self) -> dict[str, Any]:
        """Returns the first message for the server: it describes the machine, and every attempt whose end the server
        has not confirmed."""
        return {
            "do": "hello",
            "node": self.name,
            "identity": self._identity,
            "boot": self._boot,
            "capacity": {"vcore": self.capacity.vcore, "memory": self.capacity.memory, "gpus": self.capacity.gpus},
            "devices": [asdict(gpu) for gpu in self.capacity.devices],
            "limits": self.cgroups.shown,
            "attempts": {
                key: {"start": attempt.folder.read_slot(Slot.START), "end": attempt.end}
                for key, attempt in self._attempts.items()
            },
        }

    def handle(self, message: Message) -> None:
        """Carry out a message of the server."""
        match message["do"]:
            case "start":
                self.start_attempt(message["key"], message["spec"])
            case "stop":
                self.stop_attempt(message["key"], message["reason"], message["grace_s"])
            case "confirm":
                self.confirm_end(message["key"])
            case "read":
                self._report(self.read_log(message))
            case "usage":
                self._report({"do": "answer", "id": message["id"], "load": list(os.getloadavg())})
            case "clean":
                self.remove_old(message["before_s"])
            case _:
                _LOGGER.warning("unknown message %s", message["do"])

    def start_attempt(self, key: str, spec: Message) -> None:
        """Start an attempt, unless it was started before."""
        if (known := self._attempts.get(key)) is not None:
            self._report_state(known)
            return
        if (self._done / key).exists():
            self._report({"do": "ended", "key": key, "end": AttemptFolder(self._done / key).read_slot(Slot.END)})
            return
        folder = AttemptFolder(self._live / key)
        attempt = _Attempt(folder)
        try:
            self._check_spec(spec)
            if len(self._attempts) >= self._most_attempts:
                raise OSError(f"{len(self._attempts)} tasks are there, and the limit of open files allows no more")
            attempt.share = float(spec["gpu"])
            attempt.gpus = self._take_gpus(attempt.share, tuple(spec.get("devices", ())))
            attempt.group = self.cgroups.find_group(key)
            folder.create(self._complete_spec(attempt, spec))
        except OSError as error:
            shutil.rmtree(folder.path, ignore_errors=True)
            reason = error.strerror or str(error)
            self._report({"do": "ended", "key": key, "end": {"at": time.time(), "unready": reason}})
            return
        self._attempts[key] = attempt
        self._launcher.launch_attempt(folder.path)

    def stop_attempt(self, key: str, reason: str, grace_s: float) -> None:
        """Make the supervisor stop an attempt. With *grace_s*, the attempt is warned first."""
        attempt = self._attempts.get(key)
        if attempt is None:
            # The attempt was never started here, or the server has confirmed its end.
            self._report({"do": "ended", "key": key, "end": {"at": time.time(), "stopped": reason, "never": True}})
        elif attempt.end is not None:
            self._report_state(attempt)
        else:
            attempt.commands.append(json.dumps({"stop": reason, "grace_s": grace_s}).encode() + b"\n")
            self._send_commands(attempt)

    def confirm_end(self, key: str) -> None:
        """Archive an attempt, because the server has stored its end."""
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.end is not None:
            del self._attempts[key]
            with suppress(OSError):
                attempt.folder.path.rename(self._done / key)

    def read_log(self, message: Message) -> dict[str, Any]:
        """Returns a piece of the log of an attempt from an offset, as the answer to *message*."""
        answer: dict[str, Any] = {"do": "answer", "id": message["id"]}
        key = str(message["key"])
        for folder in (self._live, self._done):
            path = folder / key / "log"
            try:
                with path.open("rb") as file:
                    file.seek(int(message["offset"]))
                    return answer | {"data": file.read(LOG_PIECE_BYTES).decode("latin-1")}
            except FileNotFoundError:
                continue
            except OSError as error:
                return answer | {"data": "", "error": error.strerror}
        return answer | {"data": ""}

    def remove_old(self, before_s: float) -> None:
        """Remove the logs of attempts that ended before *before_s*."""
        for path in self._done.iterdir():
            with suppress(OSError):
                # The record is written when the attempt ends; the time of the folder is that of its last new file.
                if (path / "record").stat().st_mtime < before_s:
                    shutil.rmtree(path, ignore_errors=True)

    def _check_spec(self, spec: Message) -> None:
        if not Path(str(spec["directory"])).is_absolute():
            raise OSError(f"the directory {spec['directory']} is not absolute")

    def _take_gpus(self, share: float, named: Sequence[str]) -> tuple[str, ...]:
        """Returns the GPUs of an attempt that wants *share*: those that the core has *named*, or, if it names none,
        whole ones that are free.

        Raises OSError if there are too few, or if a named one is in use.
        """
        used: dict[str, float] = {}
        for attempt in self._attempts.values():
            if attempt.end is None:
                for gpu in attempt.gpus:
                    used[gpu] = used.get(gpu, 0.0) + min(attempt.share, 1.0)
        present = [gpu.number for gpu in self.capacity.devices]
        if named:
            for gpu in named:
                if gpu not in present:
                    raise OSError(f"there is no GPU {gpu}")
                if used.get(gpu, 0.0) + min(share, 1.0) > 1.0 + ROUNDING:
                    raise OSError(f"GPU {gpu} is in use")
            return tuple(named)
        if 0 < share < 1:
            raise OSError("a part of a GPU is asked for, and the core says of none which one")
        free = [gpu for gpu in present if gpu not in used]
        wanted = int(share)
        if wanted > len(free):
            raise OSError(f"{wanted} GPUs are asked for, {len(free)} are free")
        return tuple(free[:wanted])

    def _complete_spec(self, attempt: _Attempt, spec: Message) -> dict[str, Any]:
        """Returns everything that the supervisor needs: *spec*, with the environment variables that every job gets."""
        folder = attempt.folder
        environment = {
            **spec["environment"],
            "KORNEL_NODE": self.name,
            "KORNEL_PREEMPT_AT": str(folder.preempt_at),
            MARK: f"{self._identity}/{folder.key}",
        }
        if self.capacity.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(attempt.gpus)
        if 0 < attempt.share < 1:
            environment["KORNEL_GPU_SHARE"] = f"{attempt.share:g}"
        return {
            **spec,
            "environment": environment,
            "gpus": list(attempt.gpus),
            "group": attempt.group,
            "controllers": sorted(self.cgroups.controllers),
        }

    def _adopt_attempt(self, folder: AttemptFolder) -> None:
        """Takes over an attempt in the state that its folder shows."""
        begin, end = folder.read_slot(Slot.BEGIN), folder.read_slot(Slot.END)
        try:
            spec = folder.read_spec()
        except (OSError, ValueError):
            spec = {}
        if begin is None:
            # It never began and never will; the server requests it again.
            shutil.rmtree(folder.path, ignore_errors=True)
            return
        gpus = tuple(map(str, spec.get("gpus", ())))
        attempt = _Attempt(folder, gpus, float(spec.get("gpu", len(gpus))), spec.get("group", ""), end=end)
        self._attempts[folder.key] = attempt
        if end is not None:
            return
        if begin["boot"] != self._boot:
            self._write_lost(attempt, "the machine was restarted")
        elif not self._watch(attempt, begin["pid"], begin["ticks"]):
            self._find_end(attempt)

    def _watch(self, attempt: _Attempt, pid: int, ticks: int = 0) -> bool:
        """Begins to watch the supervisor *pid*, which was started at *ticks*. Returns whether it still runs."""
        watched = -1
        try:
            watched = os.pidfd_open(pid)
            # From here on, the ID cannot be given to another process.
            alive = not ticks or is_alive(pid, ticks)
        except ProcessLookupError:
            return False
        except OSError:
            # Too many files are open. This does not tell whether the supervisor runs.
            if watched >= 0:
                os.close(watched)
            asyncio.get_running_loop().call_later(START_AGAIN_S, self._watch_again, attempt)
            return True
        if not alive:
            os.close(watched)
            return False
        attempt.pid, attempt.watched = pid, watched
        asyncio.get_running_loop().add_reader(watched, self._find_end, attempt)
        if attempt.commands:
            self._send_commands(attempt)
        asyncio.get_running_loop().call_later(START_AGAIN_S, self._find_start, attempt)
        return True

    def _watch_again(self, attempt: _Attempt) -> None:
        """Begins to watch the supervisor of an attempt, for which no file could be opened before."""
        if attempt.end is not None or attempt.watched >= 0:
            return
        try:
            begin = attempt.folder.read_slot(Slot.BEGIN)
        except OSError:
            begin = None
        if begin is None:
            asyncio.get_running_loop().call_later(START_AGAIN_S, self._watch_again, attempt)
        elif not self._watch(attempt, begin["pid"], begin["ticks"]):
            self._find_end(attempt)

    def _find_start(self, attempt: _Attempt) -> None:
        """Reports the start of a command if the notice of its supervisor was lost because the socket was full."""
        if attempt.end is None and not attempt.started and attempt.watched >= 0:
            self._report_state(attempt)
            if not attempt.started:
                asyncio.get_running_loop().call_later(START_AGAIN_S, self._find_start, attempt)

    def _stop_watching(self, attempt: _Attempt) -> None:
        if attempt.watched >= 0:
            asyncio.get_running_loop().remove_reader(attempt.watched)
            os.close(attempt.watched)
            attempt.watched = -1

    def _find_end(self, attempt: _Attempt) -> None:
        """Reports the end of an attempt whose supervisor has ended."""
        self._stop_watching(attempt)
        try:
            attempt.end = attempt.folder.read_slot(Slot.END)
            if attempt.end is None:
                if attempt.group:
                    kill_group(attempt.group)
                self._kill_processes(attempt)
        except OSError as error:
            _LOGGER.warning("%s: cannot be looked at: %s", attempt.folder.key, error.strerror)
            asyncio.get_running_loop().call_later(START_AGAIN_S, self._find_end, attempt)
            return
        if attempt.end is None:
            if attempt.group:
                remove_group(attempt.group)
            self._write_lost(attempt, "its supervisor was killed")
        self._report_state(attempt)

    def _kill_processes(self, attempt: _Attempt) -> None:
        """Kills the remaining processes of an attempt without a supervisor: those with its mark, and those of its
        session without a mark."""
        mark = f"{self._identity}/{attempt.folder.key}"
        start = attempt.folder.read_slot(Slot.START)
        leader, ticks = (int(start["pid"]), int(start.get("ticks", 0))) if start is not None else (0, 0)
        kill_found(lambda: [*find_marked(mark), *(find_session(leader, ticks) if ticks else [])])

    def _write_lost(self, attempt: _Attempt, reason: str) -> None:
        attempt.end = {"at": time.time(), "lost": reason}
        with suppress(OSError):
            attempt.folder.write_slot(Slot.END, attempt.end)

    def _report_state(self, attempt: _Attempt) -> None:
        key = attempt.folder.key
        if attempt.end is not None:
            self._report({"do": "ended", "key": key, "start": attempt.folder.read_slot(Slot.START), "end": attempt.end})
        elif (start := attempt.folder.read_slot(Slot.START)) is not None:
            attempt.started = True
            self._report({"do": "started", "key": key, "at": start["at"]})

    def _receive_notice(self, notice: Message) -> None:
        key = str(notice.get("forked") or notice.get("started") or notice.get("failed"))
        attempt = self._attempts.get(key)
        if attempt is None or attempt.end is not None:
            return
        if "started" in notice:
            self._report_state(attempt)
        elif "failed" in notice:
            del self._attempts[key]
            shutil.rmtree(attempt.folder.path, ignore_errors=True)
            self._report({"do": "ended", "key": key, "end": {"at": time.time(), "unready": notice["reason"]}})
        elif attempt.watched < 0:
            begin = attempt.folder.read_slot(Slot.BEGIN) or {"ticks": 0}
            if not self._watch(attempt, int(notice["pid"]), begin["ticks"]):
                self._find_end(attempt)

    def _launch_again(self) -> None:
        """Finds out which attempts that were requested from the last launching process have begun."""
        for attempt in list(self._attempts.values()):
            if attempt.end is not None or attempt.watched >= 0:
                continue
            begin = attempt.folder.read_slot(Slot.BEGIN)
            if begin is None:
                self._launcher.launch_attempt(attempt.folder.path)
            elif not self._watch(attempt, begin["pid"], begin["ticks"]):
                self._find_end(attempt)

    def _send_commands(self, attempt: _Attempt) -> None:
        """Writes commands to the supervisor, or keeps them for later if it is not ready yet."""
        if attempt.end is not None or not attempt.commands:
            return
        try:
            file = os.open(attempt.folder.control, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            asyncio.get_running_loop().call_later(CONTROL_AGAIN_S, self._send_commands, attempt)
            return
        try:
            os.write(file, b"".join(attempt.commands))
            attempt.commands.clear()
        except OSError:
            asyncio.get_running_loop().call_later(CONTROL_AGAIN_S, self._send_commands, attempt)
        finally:
            os.close(file)
