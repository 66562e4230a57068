"""A demonstration: it starts a core, fills a cluster with over-quota work, and then submits latency work that claims
its guarantee."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

_REST = ("--rest-address", "127.0.0.1:0")
SERVE = ("-P", "-m", "kornel", "serve", "--grpc", "127.0.0.1:0", "--log-format", "json", *_REST)
READY_S: Final = 120.0
STOP_S: Final = 15.0
# The file system does not notify readers, so the start may be noticed this much late.
LOOK_S: Final = 0.05


class CoreFailed(Exception):
    """The core did not start, or did not stop as it should."""


@asynccontextmanager
async def running_core(log: Path) -> AsyncIterator[str]:
    """Yields the address of a core that runs as a child process, logging to *log*.

    When the block ends without an exception, the core is asked to stop and has to exit with status 0; otherwise
    CoreFailed is raised.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kornel-demo-") as scratch, log.open("wb") as output:
        ready = Path(scratch) / "ready"
        arguments = [*SERVE, "--history", str(Path(scratch) / "history.db"), "--ready-file", str(ready)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            yield await wait_for_address(process, ready, log)
            await stop_core(process, log)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def page_address(log: Path) -> str:
    """Returns the address of the web page of the core that logs to *log*, or an empty text if it serves none."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("event") == "serving":
            rest = str(entry.get("rest", "off"))
            return "" if rest == "off" else f"http://{rest}/"
    return ""


async def wait_for_interrupt() -> None:
    """Wait for Ctrl-C, which then ends the wait and not this process."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    try:
        await interrupted.wait()
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def wait_for_address(process: asyncio.subprocess.Process, ready: Path, log: Path) -> str:
    """Returns the address that the core *process* writes into *ready* when it starts to serve. Raises
    :class:`CoreFailed`."""
    try:
        async with asyncio.timeout(READY_S):
            while (address := _read_address(ready)) is None:
                if process.returncode is not None:
                    raise CoreFailed(f"the core ended with status {process.returncode} before it served; see {log}")
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise CoreFailed(f"the core did not serve within {READY_S:g} s; see {log}") from None
    return address


def _read_address(ready: Path) -> str | None:
    """Returns the address that the core wrote into *ready*, or None as long as there is none."""
    try:
        return ready.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


async def stop_core(process: asyncio.subprocess.Process, log: Path) -> None:
    """Ask the core *process* to stop, and wait for it. Raises :class:`CoreFailed` if it does not stop, or stops with an
    error."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    try:
        status = await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        raise CoreFailed(f"the core did not stop within {STOP_S:g} s of SIGTERM; see {log}") from None
    if status != 0:
        raise CoreFailed(f"the core stopped with status {status}; see {log}")
