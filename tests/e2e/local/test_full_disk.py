"""A disk without space below the state directory: nothing is lost, nothing new is started, and somebody is told."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kornel.shim_local.client import RequestRefused
from tests.e2e.local.harness import running_local
from tests.waiting import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "kornel-test", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill_disk(path: Path) -> None:
    """Writes until there is no space left."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_full_disk_delays_and_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    """The end of a job is written into space that it has had from the beginning, and read from there later."""
    go = tmp_path / "go"
    with running_local(small_disk / "s", "--vcore", "2") as local:
        job = local.shell(f"while [ ! -e {go} ]; do sleep 0.05; done; yes | head -c 9000000; exit 5")
        local.wait_for_state(job, "running")
        fill_disk(small_disk / "filled")
        with pytest.raises(RequestRefused, match="cannot be written: database or disk is full"):
            local.shell("true")
        go.touch()
        wait_until(lambda: local.request("status")["trouble"], "the server to notice")
        assert local.request("status")["trouble"].endswith("disk is full")
        (small_disk / "filled").unlink()
        (task,) = local.wait(job)
        assert (task["state"], task["status"], task["attempt"]) == ("failed", 5, 1)
        wait_until(lambda: not local.request("status")["trouble"], "the server to recover")
        assert local.wait(local.shell("true"))[0]["state"] == "done"
