"""The capacity of this machine: the cores, memory and GPUs that jobs may use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NVIDIA: Final = "nvidia-smi"
NVIDIA_TIMEOUT_S: Final = 10.0
GPU_RESOURCE: Final = "nvidia.com/gpu"
MOST_GPUS: Final = 256
_LISTED: Final = re.compile(r"^GPU ([0-9]{1,4}): ([^(\n]{1,200})", re.MULTILINE)
_FILE: Final = re.compile(r"nvidia([0-9]{1,4})")
_WORDS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._]*")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of a machine, by the number under which CUDA knows it. *memory* is in bytes; 0: unknown."""

    number: str
    type: str = ""
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """The amounts that a machine offers. *vcore* is in thousandths of a core, *memory* in bytes."""

    vcore: int
    memory: int
    gpus: int
    devices: tuple[Gpu, ...] = ()
    """The GPUs, which are *gpus* many."""

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
    devices = find_gpus() if gpus != 0 else ()
    if gpus is not None:
        devices = (*devices, *(Gpu(str(number)) for number in range(len(devices), gpus)))[:gpus]
    return Capacity(
        len(os.sched_getaffinity(0)) * 1000 if vcore is None else vcore,
        _read_memory(meminfo) if memory is None else memory,
        len(devices),
        devices,
    )


def _read_memory(meminfo: Path) -> int:
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def find_gpus(run: Callable[[Sequence[str]], str] | None = None, folder: Path = Path("/dev")) -> tuple[Gpu, ...]:
    """Returns the GPUs of this machine as ``nvidia-smi`` lists them. If there is no such program or it fails, returns
    those for which *folder* has a file. *run* takes the place of the program."""
    ask = run or _run_nvidia
    listed = _read_table(ask(["--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]))
    if not listed:
        listed = [Gpu(found[1], _write_type(found[2])) for found in _LISTED.finditer(ask(["--list-gpus"]))]
    if not listed:
        numbers = (found[1] for path in folder.glob("nvidia*") if (found := _FILE.fullmatch(path.name)))
        listed = [Gpu(number) for number in sorted(numbers, key=int)]
    return tuple(listed[:MOST_GPUS])


def _run_nvidia(arguments: Sequence[str]) -> str:
    program = shutil.which(NVIDIA)
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=NVIDIA_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout


def _read_table(text: str) -> list[Gpu]:
    """Returns the GPUs in rows such as ``0, NVIDIA A100, 81920``. Some GPUs do not say how much memory they have."""
    found: list[Gpu] = []
    for line in text.splitlines():
        number, _, rest = line.partition(",")
        name, _, mebibytes = rest.rpartition(",")
        if number.strip().isdecimal() and name.strip():
            memory = int(mebibytes) * 2**20 if mebibytes.strip().isdecimal() else 0
            found.append(Gpu(number.strip(), _write_type(name), memory))
    return found


def _write_type(name: str) -> str:
    """Returns *name* as the type of a device: without spaces."""
    return "-".join(_WORDS.findall(name))[:128]
