"""Whether control groups can be made, and with which limits, on trees that only look like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.shim_local.machine.cgroups import Cgroups, count_oom_kills, find_cgroups, join_group, kill_group


def make_tree(root: Path, group: str, controllers: str, *, mounted_below: str = "/") -> tuple[Path, Path]:
    """Returns a folder like /proc/self, and that of the group, as the kernel would show them."""
    proc, mount = root / "proc", root / "cgroup"
    folder = mount / group.lstrip("/").removeprefix(mounted_below.lstrip("/")).lstrip("/")
    folder.mkdir(parents=True)
    proc.mkdir()
    (proc / "cgroup").write_text(f"4:memory:/elsewhere\n0::{group}\n")
    (proc / "mountinfo").write_text(
        f"24 1 0:22 / /sys rw,nosuid - sysfs sysfs rw\n30 24 0:26 {mounted_below} {mount} rw - cgroup2 cgroup2 rw\n"
    )
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.type").write_text("domain\n")
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        (folder / name).write_text("")
    return proc, folder


def test_everything_is_limited_where_everything_is_delegated(tmp_path: Path) -> None:
    """The agent moves out of the way, and the limits are those of the job."""
    proc, folder = make_tree(tmp_path, "/user.slice/app.scope", "cpuset cpu io memory pids\n")
    cgroups = find_cgroups("jobs", proc=proc, pid=4711)
    assert cgroups == Cgroups(folder / "jobs", frozenset({"cpu", "memory"}))
    assert (folder / "agent" / "cgroup.procs").read_text() == "4711"
    assert (folder / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert (folder / "jobs" / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert cgroups.shown == "limits of cores and memory are enforced by cgroups"
    group = Path(cgroups.create_group("1-1", 1500, 2**30))
    assert (group / "memory.max").read_text() == str(2**30)
    assert (group / "cpu.max").read_text() == "150000 100000"


def test_what_has_no_controller_is_said(tmp_path: Path) -> None:
    proc, folder = make_tree(tmp_path, "/", "memory\n")
    cgroups = find_cgroups("jobs", proc=proc)
    assert cgroups.controllers == {"memory"}
    assert cgroups.shown == f"only memory is enforced: the cgroup {folder} does not have the controllers cpu"
    assert not (Path(cgroups.create_group("1-1", 1500, 2**30)) / "cpu.max").exists()


def test_a_container_sees_its_part_of_the_tree(tmp_path: Path) -> None:
    proc, folder = make_tree(tmp_path, "/pod/box", "cpu memory\n", mounted_below="/pod")
    assert folder == tmp_path / "cgroup" / "box"
    assert find_cgroups("jobs", proc=proc).folder == folder / "jobs"


def test_a_group_of_somebody_else_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an ordinary session, whose group belongs to root."""
    proc, folder = make_tree(tmp_path, "/user.slice", "cpu memory\n")
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    cgroups = find_cgroups("jobs", proc=proc)
    assert cgroups.folder is None
    assert cgroups.shown == f"limits are not enforced: the cgroup {folder} is not delegated to this user"
    assert cgroups.create_group("1-1", 1, 1) == ""


def test_a_group_with_others_in_it_cannot_be_divided(tmp_path: Path) -> None:
    """The kernel answers EBUSY then; here a folder is in the way of writing."""
    proc, folder = make_tree(tmp_path, "/session", "cpu memory\n")
    (folder / "cgroup.subtree_control").unlink()
    (folder / "cgroup.subtree_control").mkdir()
    cgroups = find_cgroups("jobs", proc=proc, pid=1)
    assert not cgroups.controllers
    assert cgroups.reason == f"Is a directory at {folder / 'cgroup.subtree_control'}"


def test_a_machine_without_groups(tmp_path: Path) -> None:
    cgroups = find_cgroups("jobs", proc=tmp_path)
    assert cgroups == Cgroups(None, reason="this machine has no cgroup version 2")


def test_a_group_tells_of_memory_that_ran_out(tmp_path: Path) -> None:
    assert count_oom_kills(str(tmp_path)) == 0
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
    assert count_oom_kills(str(tmp_path)) == 2


def test_groups_are_joined_and_killed_by_writing(tmp_path: Path) -> None:
    join_group(str(tmp_path))
    assert (tmp_path / "cgroup.procs").read_text() == "0"
    assert kill_group(str(tmp_path))
    assert (tmp_path / "cgroup.kill").read_text() == "1"
    assert not kill_group(str(tmp_path / "gone"))
