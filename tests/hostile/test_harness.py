"""The judge of attacks finds what it is there to find."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.hostile.attacked import HEALTH_S, AttackedCore


def test_nothing_costs_nothing(core: AttackedCore) -> None:
    with core.attack(memory_mib=8, processor_s=1.0):
        time.sleep(0.5)


def test_a_core_that_stands_still_is_found(core: AttackedCore) -> None:
    def stop_for_a_while() -> None:
        with core.attack():
            os.kill(core.pid, signal.SIGSTOP)
            time.sleep(HEALTH_S * 2)
            os.kill(core.pid, signal.SIGCONT)

    with pytest.raises(AssertionError, match="at most"):
        stop_for_a_while()
