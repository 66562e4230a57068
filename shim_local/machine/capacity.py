"""The capacity of this machine: the cores, memory and GPUs that jobs may use."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NVIDIA: Final = "nvidia-smi"
NVIDIA_TIMEOUT_S: Final = 10.0
GPU_RESOURCE: Final = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The amounts that a machine offers. *vcore* is in thousandths of a core, *memory* in bytes."""

    vcore: int
    memory: int
    gpus: int

    def to_resources(self) -> dict[str, int]:
        """Returns the amounts by the resource types of ``si.v1``."""
        amounts = {"vcore": self.vcore, "memory": self.memory}
        return amounts | {GPU_RESOURCE: self.gpus} if self.gpus else amounts


def find_capacity(
    vcore: int | None = None,
    memory: int | None = None,
    gpus: int | None = None,
    *,
    meminfo: Path = Path("/proc/meminfo"),
) -> Capacity:
    """Returns the capacity of this machine. A given amount replaces the detected one."""
    return Capacity(
        len(os.sched_getaffinity(0)) * 1000 if vcore is None else vcore,
        _read_memory(meminfo) if memory is None else memory,
        count_gpus() if gpus is None else gpus,
    )


def _read_memory(meminfo: Path) -> int:
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def count_gpus() -> int:
    """Returns the number of GPUs that ``nvidia-smi`` lists, or 0 if that program is missing or fails."""
    program = shutil.which(NVIDIA)
    if program is None:
        return 0
    try:
        listed = subprocess.run(
            [program, "--list-gpus"], capture_output=True, text=True, timeout=NVIDIA_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
