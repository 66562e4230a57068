"""The process that forks supervisors: it has imported what they need, has no threads, and takes a millisecond for each.

``python -m kornel.shim_local.machine.launching_process LOCK SOCKET FILES`` is started by the agent, and ends with it
because the socket does. The lock is held by it, and by each fork of it until that can be found by its record, so that
whoever gets the lock next knows of every attempt whether it was begun.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from kornel.shim_local.machine.attempt_folder import AttemptFolder
from kornel.shim_local.machine.processes import read_boot_id, start_ticks
from kornel.shim_local.machine.supervisor import supervise_attempt

MOST_BYTES: Final = 16 * 1024


def serve(lock: int, requests: socket.socket) -> None:
    """Fork a supervisor for each request until the agent has gone."""
    # Nobody waits for supervisors, and a signal to the agent's terminal is none to them.
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while data := requests.recv(MOST_BYTES):
        path = Path(json.loads(data)["launch"])
        try:
            pid = os.fork()
        except OSError as error:
            answer: dict[str, object] = {"failed": path.name, "reason": str(error.strerror)}
        else:
            if pid == 0:
                supervise_attempt(AttemptFolder(path), requests, lock)
            answer = {"forked": path.name, "pid": pid}
        with suppress(OSError):
            requests.send(json.dumps(answer).encode())


def rehearse_supervision() -> None:
    """Have read, imported and computed once what each supervisor would otherwise read, import and compute by itself."""
    read_boot_id()
    start_ticks(os.getpid())
    json.loads(json.dumps({"ticks": 0}))


def main() -> None:
    """Serve with the lock and the socket that the agent has opened; jobs may open so many files."""
    os.setsid()
    lock, requests, open_files = (int(word) for word in sys.argv[1:4])
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.set_inheritable(lock, False)
    os.set_inheritable(requests, False)
    rehearse_supervision()
    gc.collect()
    gc.freeze()
    serve(lock, socket.socket(fileno=requests))


if __name__ == "__main__":
    main()
