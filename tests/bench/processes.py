"""Servers in processes of their own, and what a process has used of the machine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

READY_S = 120.0

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@asynccontextmanager
async def serving(module: str, *arguments: str) -> AsyncIterator[tuple[str, int]]:
    """``python -m module arguments``, which writes its address to ``{scratch}/ready``: the address and process ID."""
    with tempfile.TemporaryDirectory() as scratch:
        ready = Path(scratch, "ready")
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *(argument.format(scratch=scratch) for argument in arguments),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield await _address(server, module, ready), server.pid
        finally:
            if server.returncode is None:
                server.send_signal(signal.SIGTERM)
                await server.wait()


async def _address(server: asyncio.subprocess.Process, module: str, ready: Path) -> str:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if server.returncode is not None:
            raise RuntimeError(f"{module} ended with status {server.returncode} before it served")
        if address := _written_to(ready):
            return address
        await asyncio.sleep(0.02)
    raise TimeoutError(f"{module} did not get ready within {READY_S:g} s")


def _written_to(ready: Path) -> str:
    """What the server wrote once it served; empty before."""
    return ready.read_text().strip() if ready.exists() else ""


def write_whole(path: Path, text: str) -> None:
    """Write *text* so that whoever sees the file sees all of it."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(text + "\n", encoding="utf-8")
    scratch.replace(path)


def resident_bytes(pid: int) -> int:
    """Resident memory of *pid*; 0 where the system does not tell."""
    return _status_kib(pid, "VmRSS") << 10


def peak_mib(pid: int) -> float:
    """Peak resident memory of *pid*; 0 where the system does not tell."""
    return _status_kib(pid, "VmHWM") / 1024


def _status_kib(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(field))


def processor_s(pid: int) -> float:
    """Processor time that *pid* has used; 0 where the system does not tell."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def apart(function: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
    """What *function* returns in a fresh interpreter: its memory and collector are those of nobody before it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **options).result()
