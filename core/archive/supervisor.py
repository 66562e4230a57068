"""The core's side of the committing process: starts it, notifies it, and starts it again when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kornel.core.archive.link import CLOSE, Assignment, Report
from kornel.core.service.machine.helpers import Helper, HelperEnded

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
        assignment: Callable[[], Assignment],
        *,
        on_report: Callable[[Report], None],
        on_death: Callable[[str], None],
        longest_pause_s: float,
    ) -> None:
        self._assignment = assignment
        self._on_report = on_report
        self._on_death = on_death
        self._longest_pause_s = longest_pause_s
        self._helper: Helper | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name="history-committer", daemon=True)

    @property
    def pid(self) -> int | None:
        """The ID of the process; ``None``: there is none now."""
        return self._helper.pid if self._helper is not None else None

    def start(self) -> None:
        """Starts the process, and keeps one running from now on."""
        self._thread.start()

    def notify_process(self, message: int | None) -> None:
        """Notifies the process that something was added to the spool, or that nothing more will be. It never waits: a
        process that does not read needs no further messages."""
        if self._helper is not None:
            self._helper.notify_process(message)

    def close(self, deadline: float) -> None:
        """Lets the process finish until *deadline* on the monotonic clock, then ends it.

        Nothing more must be added to the spool.
        """
        self._closing.set()
        self.notify_process(CLOSE)
        if self._thread.ident is None:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            if self._helper is not None:
                self._helper.kill_process()
            self._thread.join(1.0)

    def _keep_running(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            worked, end = self._run_one()
            if self._closing.is_set():
                return
            pause_s = FIRST_PAUSE_S if worked else pause_s
            self._on_death(f"the process that writes the database {end}")
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, self._longest_pause_s)

    def _run_one(self) -> tuple[bool, str]:
        """Runs one process until it ends. Returns whether it began to work, and how it ended."""
        worked = False
        try:
            with Helper(MODULE, self._assignment()) as self._helper:
                if self._closing.is_set():
                    self.notify_process(CLOSE)
                while True:
                    report: Report = self._helper.receive()
                    worked = worked or not report.problem
                    self._on_report(report)
        except HelperEnded as end:
            return worked, str(end)
        except OSError as error:
            return False, f"cannot be started: {error.strerror or error}"
        except Exception as error:  # noqa: BLE001 - without this thread nothing reaches the database any more
            return False, f"cannot be understood: {type(error).__name__}: {error}"
