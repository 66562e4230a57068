"""Runs Go in the modules of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
CLIENT: Final = ROOT / "clients/go"
SHIM: Final = ROOT / "shim_k8s"
BUILD_S: Final = 900
"""The most that a cold build on a busy machine takes, with the modules it has to fetch."""


def find_go() -> str:
    """Returns the path of the program ``go``, and skips the test where there is none."""
    found = shutil.which("go")
    if found is None:
        pytest.skip("Go is not installed")
    return found


def run_go(module: Path, *arguments: str) -> None:
    """Runs ``go`` with *arguments* in *module*, and fails the test with what it printed unless it succeeds."""
    # A workspace of the machine must not decide what is built, and no folder here is a repository in a container.
    # Without paths in what is built, the test of the module need not compile everything again.
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath"}
    done = subprocess.run(
        [find_go(), *arguments],
        cwd=module,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"go {' '.join(arguments)}:\n{done.stdout[-4000:]}", pytrace=False)


def list_unformatted(module: Path) -> list[str]:
    """Returns the files in *module* that ``gofmt`` would change."""
    gofmt = Path(find_go()).resolve().with_name("gofmt")
    done = subprocess.run([gofmt, "-l", "."], cwd=module, capture_output=True, text=True, timeout=BUILD_S, check=True)
    return done.stdout.splitlines()
