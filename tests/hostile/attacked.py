"""A core in a process of its own, and what an attack on it may cost.

An attack is whatever happens within :meth:`AttackedCore.attack`. Meanwhile a third process asks for health over gRPC
and HTTP all the time, and a bystander's streams stay open. Judged at the end: the highest memory, the longest answer
about health, the processor time for each byte that was refused, and whether the bystander is still served.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from tests.e2e.bystander import Bystander
from tests.e2e.test_command import environment
from tests.patience import PATIENCE_S

MEMORY_MIB: Final = 64.0
"""How much more memory than before a core may hold at any moment of an attack."""
HEALTH_S: Final = 0.25
"""How long an answer about health may take beside an attack."""
PROCESSOR_NS_PER_BYTE: Final = 50.0
"""Processor time for each byte that is refused: a core refuses 20 MB a second on one processor, or more."""
PROCESSOR_S: Final = 2.0
"""Processor time that an attack may cost however small it is: connections, log lines, the bystander's own calls."""
URGENT: Final = -10
"""Niceness of core and probe, where the system lets us: what is judged is the core, not who wins the machine."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an attack cost: memory above that before in MiB, the longest answer in s, processor time in s."""

    memory_mib: float
    health_s: float
    processor_s: float


@dataclass
class AttackedCore:
    """A core that serves gRPC and plain HTTP, a bystander and a probe."""

    address: str
    http: str
    """``host:port``, or ``-`` where HTTP is not served."""
    process: subprocess.Popen[bytes]
    bystander: Bystander | None
    probes: list[tuple[float, float]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def memory_mib(self) -> float:
        return self._kib("VmRSS") / 1024

    def processor_s(self) -> float:
        user, system = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def attack(
        self,
        *,
        refused_bytes: int = 0,
        memory_mib: float = MEMORY_MIB,
        health_s: float = HEALTH_S,
        processor_s: float | None = None,
    ) -> Iterator[None]:
        """Judge what happens within against the bounds.

        *refused_bytes*: how many bytes the attack sends that must be refused; they may cost processor time.
        *processor_s*: the bound instead of that.
        """
        self.serves_bystander()
        # The kernel forgets the highest memory so far, and counts anew.
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")
        memory, spent, began = self.memory_mib(), self.processor_s(), time.monotonic()
        yield
        self._await_probe(time.monotonic())
        ended = time.monotonic()
        cost = Cost(
            memory_mib=self._kib("VmHWM") / 1024 - memory,
            health_s=max(took for asked, took in list(self.probes) if asked + took >= began and asked <= ended),
            processor_s=self.processor_s() - spent,
        )
        print(f"\n{cost}")
        self.serves_bystander()
        allowed_s = PROCESSOR_S + refused_bytes * PROCESSOR_NS_PER_BYTE / 1e9 if processor_s is None else processor_s
        assert cost.memory_mib <= memory_mib, f"{cost}: at most {memory_mib:g} MiB"
        assert cost.health_s <= health_s, f"{cost}: at most {health_s:g} s"
        assert cost.processor_s <= allowed_s, f"{cost}: at most {allowed_s:.2f} s"

    def serves_bystander(self, *, allocations: bool = True) -> None:
        assert self.process.poll() is None, "the core has ended"
        if self.bystander is not None:
            self.bystander.works(allocations=allocations)

    def _await_probe(self, moment: float) -> None:
        """Wait until a question that was asked after *moment* is answered: whatever still waits counts."""
        deadline = moment + PATIENCE_S + 10
        while not self.probes or self.probes[-1][0] < moment:
            assert time.monotonic() < deadline, "the probe has stopped"
            time.sleep(0.01)

    def _kib(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name + ":"))


GRPC_ON_CUT_CONNECTIONS: Final = re.compile(
    r'Traceback \(most recent call last\):\n(?:  File "src/python/grpcio/[^\n]*\n)+'
    r"grpc\._cython\.cygrpc\.ExecuteBatchError: [^\n]*\n"
)
"""gRPC prints this when a connection is cut just as it refuses a call there. Nothing of ours is in it."""


@contextmanager
def attacked_core(
    directory: Path, *arguments: str, rest: str = "127.0.0.1:0", channel: grpc.Channel | None = None, open_: bool = True
) -> Iterator[AttackedCore]:
    """A core with *arguments* after ``kornel serve``, its files in *directory*.

    *channel*: how the bystander connects where that takes credentials. Without *open_* nobody watches: no bystander
    and no probe, for cores that demand a client certificate; set them up there.
    """
    ready, logged = directory / "ready", directory / "log"
    # A file: a pipe that nobody reads while the attack goes on would fill up and hold the core.
    with logged.open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kornel", "serve", "--grpc", "127.0.0.1:0", "--log-format", "json"),
                *("--ready-file", str(ready), "--rest-address", rest, *arguments),
            ],
            env=environment(),
            stdout=log,
            stderr=log,
        )
    _hurry(process.pid)
    probe: subprocess.Popen[str] | None = None
    bystander: Bystander | None = None
    try:
        address = _written_to(ready, process)
        http = "-" if rest == "off" else _http_address(logged)
        if open_:
            bystander = Bystander(address, process.pid, channel)
            probe = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.probe", address, http],
                env=environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
            _hurry(probe.pid)
        core = AttackedCore(address, http, process, bystander)
        if probe is not None:
            threading.Thread(target=_listen, args=(probe, core.probes), daemon=True).start()
            core._await_probe(time.monotonic())
        yield core
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, logged.read_text(encoding="utf-8")[-4_000:]
        said = GRPC_ON_CUT_CONNECTIONS.sub("", logged.read_text(encoding="utf-8"))
        before, traceback, after = said.partition("Traceback")
        assert not traceback, before[-1_000:] + traceback + after[:4_000]
    finally:
        if bystander is not None:
            bystander.close()
        children: list[subprocess.Popen[Any]] = [each for each in (probe, process) if each is not None]
        for child in children:
            child.kill()
            child.wait()


def _hurry(pid: int) -> None:
    """Raise the priority of *pid*, which has just begun: threads have that of the one that made them.

    Whoever has made the whole run nice wants others on the machine to come first.
    """
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        return
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, URGENT)


def _listen(probe: subprocess.Popen[str], probes: list[tuple[float, float]]) -> None:
    assert probe.stdout is not None
    with probe.stdout as lines:
        for line in lines:
            if not line.endswith("\n"):
                return  # It was killed in the middle of a line.
            began, took = line.split()
            probes.append((float(began), float(took)))


def _http_address(logged: Path) -> str:
    """Where the core serves HTTP, which it says as it begins to serve."""
    for line in logged.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["event"] == "serving":
            return str(record["rest"])
    raise AssertionError("the core does not say where it serves")


def _written_to(path: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE_S * 2
    while not (path.exists() and path.read_text(encoding="utf-8").strip()):
        assert process.poll() is None, "the core ended before it served"
        assert time.monotonic() < deadline, "the core did not get ready"
        time.sleep(0.02)
    return path.read_text(encoding="utf-8").strip()
