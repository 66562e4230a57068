"""Freed memory of the C library goes back to the system, from the arenas of other threads too."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kornel.core.process.allocator import OWN_SETTINGS, bound_kept_memory

ROOT = Path(__file__).resolve().parents[3]

GLIBC = platform.libc_ver()[0] == "glibc"

# Blocks below the threshold for mapping, allocated by several threads at once and freed from the last to the first,
# so that each arena ends with what it keeps. A large block that was freed raises the thresholds, unless they are set.
FREED_BY_THREADS = """
import ctypes, sys, threading
from kornel.core.process.allocator import bound_kept_memory
from kornel.core.service.machine.own_memory import count_native
if int(sys.argv[1]):
    assert bound_kept_memory(int(sys.argv[1]), {})
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(30 << 20))
together = threading.Barrier(6)
def work():
    together.wait()
    blocks = [libc.malloc(60_000) for _ in range(400)]
    for block in blocks:
        ctypes.memset(block, 1, 60_000)
    together.wait()
    for block in reversed(blocks):
        libc.free(block)
def held_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = held_bytes()
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_trim(0)
assert count_native().used_bytes > 0
used = count_native().used_bytes
kept = [libc.malloc(60_000) for _ in range(400)]
assert count_native().used_bytes - used >= 400 * 60_000
for block in kept: libc.free(block)
libc.malloc_trim(0)
print(held_bytes() - before)
"""


def kept_after(limit_bytes: int) -> int:
    """How many bytes a process keeps of the 137 MiB that its threads have freed."""
    environment = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", FREED_BY_THREADS, str(limit_bytes)],
        env={**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not GLIBC, reason="only glibc has bounds to set")
def test_what_threads_have_freed_goes_back() -> None:
    assert kept_after(1 << 20) < 8 << 20


@pytest.mark.skipif(not GLIBC, reason="only glibc keeps it")
def test_without_a_bound_it_stays() -> None:
    """If this fails, the C library has become better, and the bound may go."""
    assert kept_after(0) > 40 << 20


@pytest.mark.parametrize("name", OWN_SETTINGS)
def test_what_the_environment_says_wins(name: str) -> None:
    assert not bound_kept_memory(1 << 20, {name: "4"})


def test_nothing_is_bounded_on_request() -> None:
    assert not bound_kept_memory(0, {})
