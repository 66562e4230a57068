"""A machine without memory, or a job that wants more than it asked for: the job ends, and nobody else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.local.harness import Local, running_local
from tests.waiting import wait_until

LIMIT = 256 * 2**20
EATER = "held = [bytearray(2**20) for _ in range(2**11)]"
"""Wants two gigabytes, each page of which is touched."""


def find_memory_folder() -> tuple[Path, str] | None:
    """Returns where groups with a limit of memory can be made, and the name of the limit, in either version."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    if (first / "memory.limit_in_bytes").exists():
        return first, "memory.limit_in_bytes"
    enabled = second / "cgroup.subtree_control"
    if enabled.exists() and "memory" in enabled.read_text().split():
        return second, "memory.max"
    return None


@contextmanager
def small_memory() -> Iterator[Path]:
    """Yields a group whose processes have :data:`LIMIT` together, as on a small machine. Skips where none can be
    made."""
    found = find_memory_folder()
    if found is None:
        pytest.skip("no control groups for memory here")
    group = found[0] / f"kornel-test-memory-{os.getpid()}"
    try:
        group.mkdir()
        (group / found[1]).write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"no control group for memory can be made here: {error}")
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the processes of the group to end")
        group.rmdir()


def list_tree(root: int) -> list[int]:
    """Returns a process and all that descend from it."""
    tree = [root]
    for pid in tree:
        for task in Path(f"/proc/{pid}/task").iterdir():
            tree += map(int, (task / "children").read_text().split())
    return tree


def move_server(local: Local, group: Path) -> None:
    """Moves the server with its core and its launching process; what these start from now on is there as well."""
    assert local.process is not None
    for pid in {*list_tree(local.process.pid), local.core_process()[0]}:
        (group / "cgroup.procs").write_text(str(pid))


def test_the_kernel_takes_the_job_and_not_the_server(tmp_path: Path) -> None:
    """Server, core and jobs share what memory there is, and a job takes more than that."""
    with small_memory() as group, running_local(tmp_path / "s", "--vcore", "2", real=True) as local:
        move_server(local, group)
        bystander = local.shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 3")
        local.wait_for_state(bystander, "running")
        core = local.core_process()
        (task,) = local.wait(local.submit(sys.executable, "-c", EATER))
        assert task["state"] == "failed"
        assert "killed by SIGKILL" in task["reason"]
        assert "ran out of memory" in task["reason"]
        (tmp_path / "go").touch()
        (task,) = local.wait(bystander)
        assert (task["status"], task["attempt"]) == (3, 1)
        assert local.works()
        assert local.core_process() == core, "the core was killed, too"
        assert local.wait(local.shell("true", vcore=2000))[0]["state"] == "done"


def test_a_job_gets_no_more_memory_than_it_asked_for(local: Local) -> None:
    """Where limits are enforced it ends as a whole, and the reason names its own limit."""
    limits = local.request("status")["nodes"][0]["limits"]
    if "memory" not in limits or "not enforced" in limits:
        pytest.skip(f"memory is not enforced here: {limits}")
    (task,) = local.wait(local.submit(sys.executable, "-c", EATER, memory=2**26))
    assert (task["state"], task["reason"]) == ("failed", "ran out of its 64Mi of memory")
