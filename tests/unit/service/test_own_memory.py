"""Freed memory goes back to the system: when much has been freed, and when somebody asks for it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from kornel.core.process.allocator import OWN_SETTINGS
from kornel.core.service.machine.own_memory import FREED_PAUSE_S, MUCH_FREED_BYTES, FreedMemory, OwnMemory

ROOT = Path(__file__).resolve().parents[3]


class Memory:
    """The memory of a process, as a test sets it."""

    def __init__(self) -> None:
        self.free = 0
        self.given_back = 0

    def free_bytes(self) -> int:
        return self.free

    def give_back(self) -> None:
        self.given_back += 1


class Freeing:
    """A process that is looked at once a second."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.freed = FreedMemory(cast(OwnMemory, self.memory))
        self.now_s = 100.0

    def gives_back(self, free_bytes: int) -> bool:
        """Whether memory is given back with so much that is free."""
        self.memory.free = free_bytes
        self.now_s += FREED_PAUSE_S
        before = self.memory.given_back
        assert self.freed.look(self.now_s) is (self.memory.given_back > before)
        return self.memory.given_back > before


def test_much_that_was_freed_goes_back_once() -> None:
    """What went back still counts as free, and only more of it is worth another turn."""
    freeing = Freeing()
    assert not freeing.gives_back(MUCH_FREED_BYTES - 1)
    assert freeing.gives_back(MUCH_FREED_BYTES)
    assert not freeing.gives_back(2 * MUCH_FREED_BYTES - 1)
    assert freeing.gives_back(2 * MUCH_FREED_BYTES)


def test_what_was_used_again_and_freed_again_goes_back_again() -> None:
    freeing = Freeing()
    assert freeing.gives_back(5 * MUCH_FREED_BYTES)
    assert not freeing.gives_back(MUCH_FREED_BYTES)
    assert freeing.gives_back(2 * MUCH_FREED_BYTES)


def test_a_little_goes_back_when_somebody_asks() -> None:
    freeing = Freeing()
    freeing.freed.give_back_at(freeing.now_s + 2 * FREED_PAUSE_S)
    assert freeing.freed.is_due
    assert not freeing.gives_back(1_000)
    assert freeing.gives_back(1_000)
    assert not freeing.freed.is_due
    assert not freeing.gives_back(1_000)


def test_it_is_counted_once_a_second() -> None:
    freeing = Freeing()
    assert not freeing.gives_back(0)
    freeing.memory.free = 10 * MUCH_FREED_BYTES
    assert not freeing.freed.look(freeing.now_s + FREED_PAUSE_S / 2)
    assert freeing.gives_back(10 * MUCH_FREED_BYTES)


# Every other block stays in use, as those of other calls do after an attack.
HOLES = """
import ctypes
from kornel.core.process.allocator import bound_kept_memory
from kornel.core.service.machine.own_memory import FreedMemory, OwnMemory
assert bound_kept_memory(1 << 20, {})
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
memory = OwnMemory()
freed = FreedMemory(memory)
freed.look(0.0)
before = memory.held_bytes()
blocks = [libc.malloc(60_000) for _ in range(1_000)]
for block in blocks:
    ctypes.memset(block, 1, 60_000)
for block in blocks[::2]:
    libc.free(block)
held = memory.held_bytes()
assert freed.look(10.0)
print(held - before, memory.held_bytes() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps it")
def test_holes_between_blocks_go_back() -> None:
    """30 MB of 60 MB: what lies at no end of an arena stays with the process until it is told."""
    environment = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", HOLES],
        env={**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept, left = map(int, done.stdout.split())
    assert kept > 55_000_000
    assert left < 40_000_000
