"""A server of kornel-local as a real process, requests to it, and jobs that leave traces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from kornel.shim_local.background import read_state
from kornel.shim_local.client import NoServer, RequestRefused, ServerConnection
from kornel.shim_local.jobs.spec import JobSpec
from kornel.shim_local.machine.cgroups import find_cgroups, remove_empty_groups
from kornel.shim_local.machine.processes import is_alive, kill_marked
from tests.prepared import kill_program, python
from tests.waiting import wait_until

ROOT: Final = Path(__file__).parents[3]


class Local:
    """A state directory, and the server in it."""

    def __init__(self, folder: Path, *options: str, real: bool = False) -> None:
        """*real*: started as a Python of its own, so that signals to it, and to its core, hit nothing else."""
        self.folder = folder
        self.options = options
        self._python = sys.executable if real else python()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder.parent / f"{folder.name}.log"

    def start(self) -> None:
        """Start the server, without waiting for it."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    self._python,
                    *("-m", "kornel.shim_local", "--state", str(self.folder), "up", "--foreground"),
                    *self.options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def up(self) -> Local:
        """Start the server, and wait until it works."""
        self.start()
        wait_until(self.works, lambda: f"the server:\n{self.log.read_text()}")
        return self

    def works(self) -> bool:
        """Tells whether the server is registered with its core."""
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        with suppress(NoServer, RequestRefused), ServerConnection(self.folder / "server.sock") as server:
            return not read_state(server)["core_state"]
        return False

    def request(self, do: str, **values: object) -> dict[str, Any]:
        """Returns the answer to a request."""
        with ServerConnection(self.folder / "server.sock") as server:
            return server.request({"do": do, **values})

    def submit(self, *command: str, **values: Any) -> str:
        """Returns the number of a new job."""
        spec = JobSpec(
            **{
                "command": command,
                "directory": str(self.folder.parent),
                "environment": {"PATH": os.environ["PATH"]},
                "user": "somebody",
                "vcore": 1000,
                **values,
            }
        )
        return str(self.request("submit", spec=spec.to_json())["job"])

    def shell(self, script: str, **values: Any) -> str:
        """Returns the number of a new job that runs *script*."""
        return self.submit("sh", "-c", script, **values)

    def wait(self, *names: str) -> list[dict[str, Any]]:
        """Returns the tasks of jobs once all are over."""
        tasks: list[dict[str, Any]] = self.request("wait", names=list(names))["tasks"]
        return tasks

    def task(self, name: str) -> dict[str, Any]:
        """Returns the first task of a job as it is now."""
        task: dict[str, Any] = self.request("show", name=name)["tasks"][0]
        return task

    def read_log(self, name: str, attempt: int = 0) -> str:
        """Returns the whole log of a task."""
        data = ""
        while piece := self.request("logs", name=name, offset=len(data), attempt=attempt)["data"]:
            data += piece
        return data

    def wait_for_state(self, name: str, state: str) -> dict[str, Any]:
        """Returns the task of a job once it is in *state*, and its process started if that is ``running``."""

        def reached() -> Mapping[str, Any] | None:
            task = self.task(name)
            return task if task["state"] == state and (state != "running" or task["started_s"]) else None

        return dict(wait_until(reached, f"{name} to be {state}"))

    def kill_server(self) -> None:
        """End the server as a crash would."""
        assert self.process is not None
        kill_program(self.process)

    def core_process(self) -> tuple[int, int]:
        """Returns the process ID of the core, and when it was started."""
        pid, ticks = wait_until((self.folder / "core.pid").read_text, "the record of the core").split()
        return int(pid), int(ticks)

    def kill_core(self) -> None:
        """End the core as a crash would."""
        pid, ticks = self.core_process()
        if is_alive(pid, ticks):
            os.kill(pid, signal.SIGKILL)

    def down(self) -> None:
        """End the server, its core, and everything that it has started, whatever state they are in."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        if self.process is not None and self.process.poll() is None:
            self.kill_server()
        with suppress(OSError, ValueError):
            self.kill_core()
        self._kill_attempts()
        if self.folder.is_dir():
            cgroups = find_cgroups(f"kornel-local-{os.getuid()}-{self.folder.stat().st_ino}")
            if cgroups.folder is not None:
                remove_empty_groups(cgroups.folder)

    def _kill_attempts(self) -> None:
        identity = self.folder / "agent" / "identity"
        live = self.folder / "agent" / "live"
        if live.is_dir():
            for attempt in live.iterdir():
                with suppress(OSError, ValueError):
                    kill_marked(f"{identity.read_text()}/{attempt.name}")


@contextmanager
def running_local(folder: Path, *options: str, real: bool = False) -> Iterator[Local]:
    """Yields a server that works, and leaves nothing of it behind."""
    local = Local(folder, *options, real=real)
    try:
        yield local.up()
    finally:
        local.down()
