"""Runs helpers, which are programs of Kornel beside the core: starts them, exchanges messages with them, and ends them.

``python -m kornel.core.service.machine.helpers MODULE`` runs the function ``work_for_core`` of a module. Messages are
pickled values; they pass through a pair of sockets, of which the helper's is its standard input. A helper may be killed
at any time, and ends with the core, however the core ends.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final

MODULE: Final = "kornel.core.service.machine.helpers"

ForkingPickler.register(MappingProxyType, lambda proxy: (_restore_proxy, (dict(proxy),)))


def _restore_proxy(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)  # Pickle does not find this class by its name.


class HelperEnded(Exception):
    """The helper runs no more. The text says how it ended."""


class Helper:
    """A process that runs *module* and gets *greeting* first, as long as the context.

    One thread sends and receives. Any thread may notify the process, or kill it.
    """

    def __init__(self, module: str, greeting: object) -> None:
        self._module = module
        self._greeting = ForkingPickler.dumps(greeting)
        self._guard = threading.Lock()
        """Held while the process is started, notified or killed."""
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection[Any, Any]

    @property
    def pid(self) -> int | None:
        """The ID of the process; ``None``: it is not running."""
        process = self._process
        return process.pid if process is not None else None

    def __enter__(self) -> Helper:
        # The process searches modules only where this one does.
        safe = [] if {"", str(Path.cwd())} & set(sys.path) else ["-P"]
        command = [sys.executable, *safe, "-m", MODULE, self._module]
        with self._guard:
            if self._killed:
                raise HelperEnded("was not started")
            self._link, theirs = Pipe()
            with theirs:
                self._process = subprocess.Popen(command, stdin=theirs.fileno())
            with suppress(OSError):  # If it has ended already, receive() says how.
                self._link.send_bytes(self._greeting)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_process()
        self._wait()

    def send(self, messages: Iterable[object]) -> None:
        """Sends *messages*, and waits until the process takes them. Says nothing if it has ended."""
        with suppress(OSError):
            for message in messages:
                self._link.send(message)

    def notify_process(self, message: object) -> None:
        """Sends *message*, which is short, unless the process does not read. It never waits."""
        with self._guard:
            if self._process is None:
                return
            writable = select.poll()
            writable.register(self._link, select.POLLOUT)
            with suppress(OSError):
                if writable.poll(0):
                    self._link.send(message)

    def receive(self) -> Any:
        """Returns the next message of the process. Raises :class:`HelperEnded`."""
        try:
            return self._link.recv()
        except (EOFError, OSError):
            raise HelperEnded(self._wait()) from None

    def kill_process(self) -> None:
        """Kills the process, which is not started any more."""
        with self._guard:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def _wait(self) -> str:
        """Waits for the end of the process, and returns how it ended."""
        process = self._process
        if process is None:
            return "was not started"
        status = process.wait()
        with self._guard:
            self._process = None
            self._link.close()
        return describe_end(status)


class Core:
    """The core, as a helper sees it."""

    def __init__(self, link: Connection[Any, Any]) -> None:
        self._link = link

    def receive(self) -> Any:
        """Returns the next message of the core. Ends this process if the core has ended."""
        try:
            return self._link.recv()
        except (EOFError, OSError):
            os._exit(0)

    def send(self, message: object) -> None:
        """Sends *message* to the core."""
        with suppress(BrokenPipeError):
            self._link.send(message)

    def watch(self, on_message: Callable[[Any], None] = lambda _: None) -> None:
        """Receives further messages in a thread from now on, so that this process ends as soon as the core does."""
        threading.Thread(target=self._keep_receiving, args=(on_message,), name="core", daemon=True).start()

    def _keep_receiving(self, on_message: Callable[[Any], None]) -> None:
        while True:
            on_message(self.receive())


def describe_end(status: int) -> str:
    """Returns how a process ended: *status* is its exit status, or a signal's number below 0."""
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def lower_priority(niceness: int) -> None:
    """Lets the engine get the processor first. A sandbox may forbid this; the process then runs at full priority."""
    with suppress(OSError):
        os.nice(niceness)


def main() -> None:
    """Runs the helper that the arguments name."""
    # Signals to the whole group are meant for the core; this process ends when the core does.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Standard output belongs to the core, whatever a library prints.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import_module(sys.argv[1]).work_for_core(Core(Connection(os.dup(sys.stdin.fileno()))))
    # A thread that receives would delay an orderly exit, and there is nothing to clean up.
    os._exit(0)


if __name__ == "__main__":
    main()
