"""A real PostgreSQL server from the distribution, with a directory of its own and nothing else of the machine."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.patience import PATIENCE_S
from tests.ports import reserve_port

_USER = "kornel"


def programs() -> Path | None:
    """Where the newest server is installed; ``None``: nowhere."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: [int(d) for d in p.parts if d.isdecimal()]
    )
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb is not None else None


@dataclass
class Postgres:
    """A server that can be stopped and started. ``url``: of its database."""

    home: Path
    bin: Path
    port: int
    as_user: dict[str, Any]
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.bin / "postgres", "-D", self.home / "data", "-p", str(self.port), "-k", self.home,
                    "-c", "listen_addresses=127.0.0.1",
                ],
                stdout=log, stderr=log, cwd=self.home, **self.as_user,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                running = self.process.poll() is None and time.monotonic() < deadline
                assert running, (self.home / "log").read_text(errors="replace")
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Cut everybody off."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE_S)
            self.process = None

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, connect_timeout=int(PATIENCE_S))

    def clear(self) -> None:
        """Forget all tables."""
        with self.connect() as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")


@contextmanager
def server(template: Path | None = None) -> Iterator[Postgres]:
    """A server that runs. It refuses to be root, so as root it is somebody else in a directory that he can reach.

    *template* is a folder for the files of a new server, which those who name it make once and copy, in a twentieth of
    the time. The first of them that ends removes it.
    """
    found = programs()
    assert found is not None
    home = Path(tempfile.mkdtemp(prefix="kornel-pg-"))
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        names = [user.pw_name for user in pwd.getpwall()]
        name = "postgres" if "postgres" in names else "nobody"
        who = pwd.getpwnam(name)
        os.chown(home, who.pw_uid, who.pw_gid)
        as_user = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    postgres = Postgres(home, found, reserve_port(), as_user)
    try:
        _make_data(home, found, as_user, template)
        postgres.start()
        yield postgres
    finally:
        postgres.stop()
        shutil.rmtree(home)
        if template is not None:
            with _locked(template):
                shutil.rmtree(template, ignore_errors=True)


def _make_data(home: Path, found: Path, as_user: dict[str, Any], template: Path | None) -> None:
    """Makes the files of a server below *home*, or copies those of *template*."""
    data = home / "data"
    make = [found / "initdb", "-D", data, "-A", "trust", "-U", _USER, "-E", "UTF8", "--locale=C", "--no-sync"]
    if template is None:
        subprocess.run(make, check=True, capture_output=True, cwd=home, timeout=PATIENCE_S, **as_user)
        return
    with _locked(template):
        if template.exists():
            _copy(template, data)
            return
        _make_data(home, found, as_user, None)
        unfinished = template.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        _copy(data, unfinished)
        unfinished.rename(template)


@contextmanager
def _locked(template: Path) -> Iterator[None]:
    """Keeps others from *template* meanwhile."""
    with template.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _copy(folder: Path, to: Path) -> None:
    """Copies *folder* with its owners."""
    subprocess.run(["cp", "-a", folder, to], check=True, timeout=PATIENCE_S)
