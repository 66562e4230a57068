"""The process that forks supervisors. It has imported everything that they need and has no threads, so each fork takes
a millisecond.

``python -m kornel.shim_local.machine.launching_process LOCK SOCKET FILES`` is started by the agent, and ends with it
because the socket is then closed. It holds the lock, and so does each fork until the fork can be found by its record. A
process that gets the lock next can therefore tell for every attempt whether it was begun.
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
    # No process waits for supervisors, and a signal from the agent's terminal must not reach them.
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
    """Read, import and compute everything once that each supervisor would otherwise have to read, import and compute
    again."""
    read_boot_id()
    start_ticks(os.getpid())
    json.loads(json.dumps({"ticks": 0}))


def main() -> None:
    """Serve with the lock and the socket that the agent has opened, and with the number of files that jobs may open."""
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
