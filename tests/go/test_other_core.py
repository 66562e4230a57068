"""The kit against a core that is not Kornel's: YuniKorn's, unmodified, which a small program serves over si.v1."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest

from kornel.conformance.gaps import load_gaps
from tests.bench.served_ends import GO_CORE
from tests.go.toolchain import BUILD_S, ROOT, run_go
from tests.ports import reserve_port

pytestmark = pytest.mark.long

GAPS: Final = Path(__file__).with_name("other_core_gaps.toml")
"""What YuniKorn's core v1.8.0 does otherwise, with the row of protocol.md that says so."""
CRASHING: Final = 55
"""A case that ends that core."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("go") / "serve"
    run_go(GO_CORE, "build", "-o", str(built), "./serve")
    return built


@contextmanager
def serving(program: Path, log: Path, *, again: bool) -> Iterator[str]:
    """Yields the address of a core that is started, and with *again* also whenever it has ended."""
    address = f"127.0.0.1:{reserve_port()}"
    stopping = Event()
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with log.open("ab") as printed:
            running[:] = [subprocess.Popen([program, "-address", address], stdout=printed, stderr=printed)]

    def keep() -> None:
        while not stopping.wait(0.05):
            if again and running[0].poll() is not None:
                start()

    start()
    keeper = Thread(target=keep)
    keeper.start()
    try:
        yield address
    finally:
        stopping.set()
        keeper.join()
        running[0].kill()
        running[0].wait()


def run_kit(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kornel.conformance", "core", "--address", address, "--any-reason", "--json"]
    patience = ["--deadline", "10", "--settle", "0.5", "--patience", "3"]
    return subprocess.run(
        [*command, *patience, *options], cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S, check=False
    )


def test_the_kit_finds_what_another_core_does_otherwise_and_nothing_else(program: Path, tmp_path: Path) -> None:
    """Each case that fails is one where the contract says itself that YuniKorn's core does otherwise.

    Case 127 is left out: that core tells again that a placeholder has timed out, soon enough on a slow machine.
    """
    with serving(program, tmp_path / "core.log", again=True) as address:
        done = run_kit(address, "--gaps", str(GAPS), "--case", "1-126", "--case", "128-183")
    results: list[dict[str, Any]] = json.loads(done.stdout)
    failed = {each["id"]: each["reason"] for each in results if each["verdict"] == "fail"}
    assert (done.returncode, failed) == (0, {}), done.stderr[-4000:]
    passed = {each["id"] for each in results if each["verdict"] == "pass"}
    print(f"{len(passed)} of {len(results)} cases pass, {len(load_gaps(str(GAPS)))} are known to fail")
    assert len(passed) > len(results) / 2


def test_the_kit_stops_where_a_case_ends_the_core(program: Path, tmp_path: Path) -> None:
    with serving(program, tmp_path / "core.log", again=False) as address:
        done = run_kit(address, "--case", f"{CRASHING - 1}-{CRASHING + 1}")
    assert done.returncode == 3
    assert f"stopped after case {CRASHING} " in done.stderr
    assert [each["id"] for each in json.loads(done.stdout)] == [str(CRASHING - 1), str(CRASHING)]
