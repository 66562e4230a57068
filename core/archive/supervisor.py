"""The core's side of the committing process: starts it, sends it messages, and starts it again when it ends."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Final

from kornel.core.archive.link import CLOSE, Report
from kornel.core.service.machine.subprocesses import command_of

MODULE: Final = "kornel.core.archive.committer"
FIRST_PAUSE_S: Final = 0.2


class Supervisor:
    """Owns the committing process. Use: ``start()``, ``notify_process()``, ``close()``; its callbacks run in its own
    thread.

    *assignment* returns the first message to a new process. *on_report* gets the reports of the process. *on_death*
    gets the reason why there is no process. *longest_pause_s*: the longest pause between two attempts to start one; the
    pause doubles until a process begins to work.
    """

    def __init__(
        self,
        assignment: Callable[[], bytes],
        *,
        on_report: Callable[[Report], None],
        on_death: Callable[[str], None],
        longest_pause_s: float,
    ) -> None:
        self._assignment = assignment
        self._on_report = on_report
        self._on_death = on_death
        self._longest_pause_s = longest_pause_s
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        """Held while a process is being started or written to."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name="history-committer", daemon=True)

    @property
    def pid(self) -> int | None:
        """The ID of the process; ``None``: there is none now."""
        process = self._process
        return process.pid if process is not None else None

    def start(self) -> None:
        """Starts the process, and keeps one running from now on."""
        self._thread.start()

    def notify_process(self, now_ns: int) -> None:
        """Notifies the process that something was added to the spool. It never waits: a process that does not read
        needs no further messages."""
        with self._guard:
            self._write(b"%d\n" % now_ns)

    def close(self, deadline: float) -> None:
        """Lets the process finish until *deadline* on the monotonic clock, then ends it.

        Nothing more must be added to the spool.
        """
        self._closing.set()
        with self._guard:
            self._write(CLOSE)
        if self._thread.ident is None:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            with self._guard:
                if self._process is not None:
                    self._process.kill()
            self._thread.join(1.0)

    def _keep_running(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                worked, end = self._run_one()
            except OSError as error:
                worked, end = False, f"cannot be started: {error.strerror or error}"
            except Exception as error:  # noqa: BLE001 - without this thread nothing reaches the database any more
                self._end_process()
                worked, end = False, f"cannot be understood: {type(error).__name__}: {error}"
            if self._closing.is_set():
                return
            pause_s = FIRST_PAUSE_S if worked else pause_s
            self._on_death(f"the process that writes the database {end}")
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, self._longest_pause_s)

    def _run_one(self) -> tuple[bool, str]:
        """Runs one process until it ends. Returns whether it began to work, and how it ended."""
        with self._guard:
            process = subprocess.Popen(command_of(MODULE), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdin is not None
            assert process.stdout is not None
            os.set_blocking(process.stdin.fileno(), False)
            self._process = process
            self._write(self._assignment())
            if self._closing.is_set():
                self._write(CLOSE)
        worked = False
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # It ended in the middle of a message.
            report = Report.from_line(line)
            worked = worked or not report.problem
            self._on_report(report)
        status = process.wait()
        with self._guard:
            self._process = None
            process.stdin.close()
            process.stdout.close()
        return worked, f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"

    def _end_process(self) -> None:
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _write(self, data: bytes) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            os.write(self._process.stdin.fileno(), data)
        except OSError:
            return  # It has ended, which its other pipe shows as well, or its pipe is full of equal messages.
