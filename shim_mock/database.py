"""A PostgreSQL server for a demonstration: it runs the installed programs in a temporary directory."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

START_S: Final = 60.0
LOOK_S: Final = 0.05
_USER: Final = "kornel"


class DatabaseFailed(Exception):
    """The installed server did not start."""


def find_programs() -> Path | None:
    """Returns the folder with the programs of the newest installed server, or ``None`` if there is none."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin/initdb") if path.parts[-3].isdecimal()]
    if found:
        return max(found, key=lambda path: int(path.parts[-3])).parent
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb is not None else None


@asynccontextmanager
async def running_database(programs: Path) -> AsyncIterator[str]:
    """Yields the URL of a server that runs until the block ends. Raises :class:`DatabaseFailed`."""
    home = Path(tempfile.mkdtemp(prefix="kornel-demo-pg-"))
    server: asyncio.subprocess.Process | None = None
    try:
        as_user = _choose_user(home)
        await _run(home, as_user, programs / "initdb", "-D", home / "data", "-A", "trust", "-U", _USER, "--no-sync")
        port = _find_port()
        arguments = ("-D", home / "data", "-p", str(port), "-k", home, "-c", "listen_addresses=127.0.0.1")
        with (home / "log").open("ab") as log:
            server = await asyncio.create_subprocess_exec(
                programs / "postgres", *arguments, stdout=log, stderr=log, cwd=home, **as_user
            )
        await _wait_until_ready(server, port, home / "log")
        yield f"postgresql+psycopg://{_USER}@127.0.0.1:{port}/postgres"
    finally:
        if server is not None and server.returncode is None:
            server.terminate()
            await server.wait()
        shutil.rmtree(home, ignore_errors=True)


def _choose_user(home: Path) -> dict[str, Any]:
    """Returns the user settings for the server process. PostgreSQL refuses to run as root, so root runs it as another
    user and gives *home* to that user."""
    if os.geteuid() != 0:
        return {}
    names = {user.pw_name for user in pwd.getpwall()}
    who = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(home, who.pw_uid, who.pw_gid)
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


async def _run(home: Path, as_user: dict[str, Any], *command: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=home, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, **as_user
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise DatabaseFailed(f"{command[0]} ended with status {process.returncode}: {said.decode(errors='replace')}")


async def _wait_until_ready(server: asyncio.subprocess.Process, port: int, log: Path) -> None:
    try:
        async with asyncio.timeout(START_S):
            while "ready to accept connections" not in (said := _read_text(log)):
                if server.returncode is not None:
                    raise DatabaseFailed(f"PostgreSQL ended with status {server.returncode}: {said}")
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise DatabaseFailed(f"PostgreSQL was not ready on port {port} within {START_S:g} s") from None


def _read_text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
