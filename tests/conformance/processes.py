"""Starts programs of this repository as users start them, from a process that is prepared."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.prepared import kill_program, python
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """Returns what programs see: nothing of the machine, and no port or history of cores beside them."""
    off = {"KORNEL_REST_ADDRESS": "off", "KORNEL_HISTORY": "off"}
    return {"PYTHONPATH": str(ROOT), "PATH": "", "COLUMNS": "200", **off}


def finished(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [python(), "-m", module, *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def running(module: str, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs meanwhile; afterwards it must end with status 0 when it is told to, unless it has ended."""
    with log.open("wb") as output:
        program = subprocess.Popen(
            [python(), "-m", module, *arguments], cwd=ROOT, env=environment(), stdout=output, stderr=output
        )
        try:
            yield program
            if program.poll() is None:
                program.send_signal(signal.SIGTERM)
                assert program.wait(PATIENCE_S) == 0, log.read_text()
        finally:
            kill_program(program)


@contextmanager
def served_process(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """``kornel serve`` in a process of its own; its address, and the process."""
    ready = folder / "ready"
    serve = ("serve", "--grpc", "127.0.0.1:0", "--ready-file", str(ready))
    with running("kornel", *serve, log=folder / "core.log") as core:
        wait_until(lambda: ready.exists() or core.poll() is not None, "the core to start")
        yield ready.read_text().strip(), core


@contextmanager
def served_core(folder: Path) -> Iterator[str]:
    """``kornel serve`` in a process of its own; its address."""
    with served_process(folder) as (address, _):
        yield address
