"""The clock of a core as it runs on a machine, whose own clocks a test moves and sets."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from kornel.core.service.machine import clock as clock_module
from kornel.core.service.machine.clock import SECOND_NS, ManualClock, SystemClock


class MachineClock(ManualClock):
    """A :class:`SystemClock` that reads a made-up machine; what it is to call is called as that time passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._wall = int(time.time()) * SECOND_NS
        self._monotonic = 1_000 * SECOND_NS
        machine = SimpleNamespace(time_ns=lambda: self._wall, monotonic_ns=lambda: self._monotonic)
        monkeypatch.setattr(clock_module, "time", machine)
        self._system = SystemClock()
        super().__init__(self._system.now_ns())

    def now_ns(self) -> int:
        return self._system.now_ns()

    def wall_ns(self) -> int:
        return self._system.wall_ns()

    @property
    def ahead_s(self) -> int:
        return self._system.ahead_s

    def set_wall(self, by_ns: int) -> None:
        self._wall += by_ns

    def advance(self, by_ns: int) -> None:
        self._wall += by_ns
        self._monotonic += by_ns
        super().advance(by_ns)
