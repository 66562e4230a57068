"""Control groups (version 2) of jobs, if the kernel and the environment permit them.

Limits need the controllers cpu and memory, delegated to this process: by ``systemd-run --user --scope -p
Delegate=yes``, a service with ``Delegate=yes``, or root. Without controllers, groups still serve to kill all processes
of a job at once.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PERIOD_US: Final = 100_000
WANTED: Final = ("cpu", "memory")
_MOUNT: Final = re.compile(r"[0-9]+ [0-9]+ [0-9:]+ (\S+) (\S+) .* - cgroup2 ")


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The folder in which groups for jobs are made, and the controllers that are enabled there."""

    folder: Path | None
    """The parent of the groups of all jobs; ``None``: there are no groups."""
    controllers: frozenset[str] = frozenset()
    reason: str = ""
    """The reason why an amount cannot be limited; empty if all can."""

    @property
    def shown(self) -> str:
        """A sentence about what is enforced."""
        if not self.reason:
            return "limits of cores and memory are enforced by cgroups"
        enforced = " and ".join(sorted(self.controllers))
        return f"{f'only {enforced} is enforced' if enforced else 'limits are not enforced'}: {self.reason}"

    def find_group(self, name: str) -> str:
        """Returns the path of a job's group, which need not exist, or an empty text if there are no groups."""
        return str(self.folder / name) if self.folder is not None else ""

    def create_group(self, name: str, vcore: int, memory: int) -> str:
        """Makes a group with limits. Returns its path, or an empty text if none can be made."""
        if self.folder is None:
            return ""
        group = self.folder / name
        try:
            group.mkdir(exist_ok=True)
            if "memory" in self.controllers and memory:
                (group / "memory.max").write_text(str(memory))
                _write_if_there(group / "memory.swap.max", "0")
                # A job that lost one process seldom recovers, so the kernel ends it as a whole, which makes the reason
                # clear.
                _write_if_there(group / "memory.oom.group", "1")
            if "cpu" in self.controllers and vcore:
                (group / "cpu.max").write_text(f"{max(vcore * PERIOD_US // 1000, 1000)} {PERIOD_US}")
        except OSError:
            with suppress(OSError):
                group.rmdir()
            return ""
        return str(group)


def _write_if_there(path: Path, text: str) -> None:
    if path.exists():
        path.write_text(text)


def join_group(group: str) -> None:
    """Move the calling process into *group*. Raises OSError."""
    (Path(group) / "cgroup.procs").write_text("0")


def kill_group(group: str) -> bool:
    """Kill all processes of *group* at once. Returns whether the kernel can do that."""
    try:
        (Path(group) / "cgroup.kill").write_text("1")
    except OSError:
        return False
    return True


def count_oom_kills(group: str) -> int:
    """Returns the number of processes that were killed because *group* had used up its memory."""
    try:
        for line in (Path(group) / "memory.events").read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    except (OSError, ValueError):
        pass
    return 0


def remove_group(group: str) -> None:
    """Remove *group* once it is empty."""
    with suppress(OSError):
        Path(group).rmdir()


def remove_empty_groups(folder: Path) -> None:
    """Remove *folder* and the groups of jobs in it, except those with running processes."""
    with suppress(OSError):
        for group in folder.iterdir():
            if group.is_dir():
                remove_group(str(group))
    remove_group(str(folder))


def find_cgroups(name: str, *, proc: Path = Path("/proc/self"), pid: int | None = None) -> Cgroups:
    """Finds the place for groups of jobs and makes a folder *name* for them there.

    If the kernel demands it, the process *pid*, by default the calling one, is moved into a group beside that folder,
    because a group that limits its subgroups must not contain processes itself.
    """
    own = find_own_group(proc)
    if own is None:
        return Cgroups(None, reason="this machine has no cgroup version 2")
    if not os.access(own, os.W_OK) or not os.access(own / "cgroup.procs", os.W_OK):
        return Cgroups(None, reason=f"the cgroup {own} is not delegated to this user")
    offered = _read_words(own / "cgroup.controllers")
    jobs = own / name
    try:
        jobs.mkdir(exist_ok=True)
        usable = _enable_controllers(
            own, [each for each in WANTED if each in offered], os.getpid() if pid is None else pid
        )
        if usable:
            (jobs / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in usable))
    except OSError as error:
        return Cgroups(jobs if jobs.is_dir() else None, reason=f"{error.strerror} at {error.filename or own}")
    missing = [each for each in WANTED if each not in usable]
    reason = f"the cgroup {own} does not have the controllers {' and '.join(missing)}" if missing else ""
    return Cgroups(jobs, frozenset(usable), reason)


def _enable_controllers(own: Path, controllers: list[str], pid: int) -> list[str]:
    """Enables *controllers* for groups below *own*. Returns the controllers that are enabled now."""
    control = own / "cgroup.subtree_control"
    wanted = [each for each in controllers if each not in _read_words(control)]
    if wanted:
        # The root of all groups has no such file, and may contain processes.
        if (own / "cgroup.type").exists():
            agent = own / "agent"
            agent.mkdir(exist_ok=True)
            (agent / "cgroup.procs").write_text(str(pid))
        control.write_text(" ".join(f"+{each}" for each in wanted))
    return controllers


def find_own_group(proc: Path = Path("/proc/self")) -> Path | None:
    """Returns the folder of the version 2 group of a process; ``None`` if there are no such groups."""
    try:
        groups = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (proc / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    mount = next((found for found in map(_MOUNT.match, mounts) if found is not None), None)
    if path is None or mount is None:
        return None
    root = mount[1] if mount[1] != "/" else ""
    if path.startswith("/..") or not path.startswith(root):
        return None
    folder = Path(mount[2]) / path[len(root) :].lstrip("/")
    return folder if folder.is_dir() else None


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []
