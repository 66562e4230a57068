"""Jobs that want GPUs, on a machine whose ``nvidia-smi`` is a program of the test: real processes, which see the GPUs
that the core has chosen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.local.harness import Local, running_local
from tests.waiting import wait_until

TABLE = "0, NVIDIA A100-SXM4-80GB, 81920\n1, NVIDIA A100-SXM4-80GB, 81920\n"
SHOW = 'echo "<$CUDA_VISIBLE_DEVICES> $KORNEL_GPU_SHARE"; sleep 300'


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    """A server on a machine with two GPUs."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<END\n{TABLE}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with running_local(tmp_path / "s", "--name", "here", "--vcore", "8", "--memory", "8Gi") as local:
        yield local


def seen(local: Local, job: str) -> str:
    """Returns what the process of a running *job* has written about its GPUs."""
    local.wait_for_state(job, "running")
    return str(wait_until(lambda: local.read_log(job), f"the output of {job}")).strip()


def test_parts_share_a_gpu_and_whole_ones_are_shared_with_nobody(machine: Local) -> None:
    """Nor does a restart of the server change who has which."""
    parts = [machine.shell(SHOW, gpu=0.5) for _ in range(2)]
    whole = machine.shell(SHOW, gpu=1)
    assert [seen(machine, job) for job in parts] == ["<0> 0.5", "<0> 0.5"]
    assert seen(machine, whole) == "<1>"
    other = machine.shell(SHOW, gpu=0.25)  # It comes first, because whoever wants a whole one saves that once it waits.
    waiting = machine.shell(SHOW, gpu=1)

    machine.kill_server()
    machine.kill_core()
    machine.up()
    assert [machine.task(job)["gpus"] for job in (*parts, whole)] == [["0"], ["0"], ["1"]]
    assert machine.task(waiting)["state"] == machine.task(other)["state"] == "queued"

    machine.request("cancel", names=[parts[0]])
    assert seen(machine, other) == "<0> 0.25"
    assert machine.task(waiting)["state"] == "queued"
    machine.request("cancel", names=[whole])
    assert seen(machine, waiting) == "<1>"
    machine.request("cancel", names=[*parts, waiting, other])
    machine.wait(*parts, waiting, other)
