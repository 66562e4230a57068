"""A copy of the core with one kind of preemption more: a folder of its own, and the lines of :data:`LINES`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio
import pytest
import pytest_asyncio

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.e2e.harness import Conversation, allocation_request, application_request, ask, create, node_request
from tests.e2e.web.conftest import browser
from tests.patience import PATIENCE_S
from tests.waiting import wait_until

__all__ = ["browser"]

ROOT: Final = Path(__file__).parents[3]
LEASE: Final = Path(__file__).parent / "lease"
LINES: Final = {
    "core/preemption/registry.py": {
        "from kornel.core.preemption.kind import ": "from kornel.core.preemption.lease.kind import LEASE",
        "    MONITOR,": "    LEASE,",
    },
    "core/domain/preemption_kinds.py": {
        "    MONITOR,": '    KindKeys("lease", section={"longest_ms": Setting(60_000, least=1)}),',
    },
}
"""What each file gets, after which of its lines: all that a new kind takes outside its own folder."""

CONFIG: Final = """
partitions:
  - name: default
    preemption:
      cycle: {interval_ms: 20}
      lease: {longest_ms: 1}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
"""
ENDED: Final = "-- ended --"
IN_TURN: Final = f"""
import json, sys
from kornel.cli.entry import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["kornel", *arguments]
    try:
        main()
    except SystemExit:
        pass
    print({ENDED!r}, flush=True)
"""
"""Runs commands one after the other: to import the copy takes longer than to answer."""


@dataclass
class ToyCore:
    """A core with the toy kind. ``grpc``, ``rest``: where it serves; ``folder``: what it runs from."""

    folder: Path
    grpc: str
    rest: str
    log: Path

    def logged(self, event: str) -> list[dict[str, object]]:
        """The lines of its log that tell of *event*."""
        entries = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines() if line[:1] == "{"]
        return [entry for entry in entries if entry["event"] == event]


def environment(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(folder), "COLUMNS": "200", "PATH": os.defpath, "HOME": str(folder)}


def run_commands(folder: Path, *commands: Sequence[str]) -> list[str]:
    """Returns what the command line of the copy in *folder* says to each of *commands*, from one Python."""
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(commands)],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    said = done.stdout.split(ENDED)
    assert len(said) == len(commands) + 1, done.stdout
    return said[:-1]


def with_lease(folder: Path) -> Path:
    """Returns *folder*, which holds a copy of the core with the toy kind now."""
    shutil.copytree(ROOT / "kornel", folder / "kornel", symlinks=True)
    for name in {path.readlink().parts[1] for path in (ROOT / "kornel").iterdir() if path.is_symlink()}:
        # With what is compiled, which is as old as its source there too, and without what is just being written.
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copytree(LEASE, folder / "core" / "preemption" / "lease")
    for name, added in LINES.items():
        lines: list[str] = []
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            lines += [line, *(new for after, new in added.items() if line.startswith(after))]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the copy is."""
    return with_lease(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def core(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyCore]:
    """A served core of which nothing but the kind is made up."""
    own = tmp_path_factory.mktemp("core")
    ready, log = own / "ready", own / "log"
    command = [sys.executable, "-m", "kornel", "serve", "--grpc", "127.0.0.1:0", "--rest-address", "127.0.0.1:0"]
    command += ["--log-format", "json", "--ready-file", str(ready), "--history", str(own / "history.db")]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=output, stderr=output) as process,
    ):
        try:
            wait_until(lambda: ready.exists() or process.poll() is not None, "the core to serve")
            assert ready.exists(), log.read_text(encoding="utf-8")
            toy = ToyCore(folder, ready.read_text(encoding="utf-8").strip(), "", log)
            toy.rest = f"http://{toy.logged('serving')[0]['rest']}"
            yield toy
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=PATIENCE_S) == 0
        finally:
            process.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def evicted(core: ToyCore) -> AsyncIterator[str]:
    """The key of an allocation that was told to leave because its lease is over; it does not leave.

    Another ask, ``large``, is larger than the node and waits.
    """
    async with grpc.aio.insecure_channel(core.grpc) as channel:
        shim = si_pb2_grpc.SchedulerStub(channel)
        await shim.RegisterResourceManager(
            si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), timeout=PATIENCE_S
        )
        async with (
            Conversation.open(shim.UpdateNode()) as nodes,
            Conversation.open(shim.UpdateApplication()) as applications,
            Conversation.open(shim.UpdateAllocation()) as allocations,
        ):
            await nodes.send(node_request(create("n1")))
            await nodes.receive()
            await applications.send(application_request("app"))
            await applications.receive()
            await allocations.send(allocation_request(ask("large", vcore=20_000), ask("k")))
            while not any(response.released for response in allocations.got):
                await allocations.receive()
            (release,) = [entry for response in allocations.got for entry in response.released]
            assert release.allocationKey == "k"
            assert release.terminationType == si.PREEMPTED_BY_SCHEDULER
            yield "k"
