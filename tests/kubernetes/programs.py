"""The programs of these tests: built once from ordinary Go modules, started and ended as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.go.toolchain import ROOT, SHIM, find_go

KUBE: Final = Path(__file__).parent / "kube"
BUILT: Final = ROOT / "build/kubernetes"
BUILD_S: Final = 3600
"""The most that the API server takes to build where nothing of it is cached, on a machine with other work."""
PATIENCE_S: Final = 120.0
"""What only something broken takes that long for."""


class Condition(Protocol):
    """Something to wait for: true once it has come, else false or a text that says how far it is."""

    def __call__(self) -> object: ...


def wait_for(condition: Condition, what: str, patience_s: float = PATIENCE_S) -> None:
    """Returns once *condition* is ``True``, and fails with *what* and the last answer if it never is."""
    limit = time.monotonic() + patience_s
    pause_s = 0.02
    while (answer := condition()) is not True:
        if time.monotonic() > limit:
            pytest.fail(f"waited {patience_s:.0f} s for {what}: {answer}", pytrace=False)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, 0.25)


def build_program(module: Path, package: str, name: str) -> Path:
    """Returns the path of a program, built from what Go has cached as far as that goes.

    Skips the test where Go is missing, and where modules that are not cached cannot be had.
    """

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
        return subprocess.run(
            command, cwd=module, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )

    # Asked apart from the build, so that a registry that cannot be reached is not taken for a program that is broken.
    done = run(find_go(), "list", "-deps", package)
    if done.returncode != 0:
        pytest.skip(f"the Go modules of {name} cannot be had: {done.stderr.strip()[-300:]}")
    target = BUILT / name
    done = run("nice", find_go(), "build", "-ldflags", "-s -w", "-o", str(target), package)
    if done.returncode != 0:
        pytest.fail(f"{name} does not build:\n{done.stderr[-4000:]}", pytrace=False)
    return target


@cache
def build_kube() -> Path:
    """Returns the program that serves the API of Kubernetes, or plays kubelet."""
    return build_program(KUBE, ".", "kube")


@cache
def build_shim() -> Path:
    """Returns the Kubernetes shim."""
    return build_program(SHIM, "./cmd/kornel-shim-k8s", "kornel-shim-k8s")


class Program:
    """One program that may be started, killed and started again. What it prints goes to one file."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = command
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert not self.is_running()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self._environment)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Waits for *ready*, and fails with what the program printed if it ends before."""

        def judge() -> bool:
            if not self.is_running():
                pytest.fail(f"it ended instead of {what}:\n{self.printed()[-3000:]}", pytrace=False)
            return ready()

        wait_for(judge, what)

    def kill(self) -> None:
        """Ends the program at once, as ``kill -9`` does."""
        self.signal(signal.SIGKILL)
        self.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Returns the status with which the program ends."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Asks the program to end, as a Deployment does, and returns its status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """Leaves nothing running."""
        if self.is_running():
            self.kill()

    def printed(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""
