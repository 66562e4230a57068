"""Samples the numbers of running applications and containers once a minute, and keeps a day of them (rest.md 4.8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from kornel.core.domain.application_states import AppState
from kornel.core.service.machine.clock import SECOND_NS, Clock, Timer
from kornel.core.telling.core_reader import CoreReader


class UsageSample(NamedTuple):
    """A sample: the running applications, and the allocations."""

    at_ns: int
    applications: int
    allocations: int


INTERVAL_NS: Final = 60 * SECOND_NS
SAMPLES_KEPT: Final = 1_440


def count_running(reader: CoreReader) -> tuple[int, int]:
    """Returns how many applications run now, and how many allocations there are, in all partitions."""
    found = [views.partition() for views in reader.partitions()]
    return sum(each.applications.get(AppState.RUNNING, 0) for each in found), sum(each.allocations for each in found)


class UsageHistory:
    """Takes samples. *running* returns how many applications run now, and how many allocations there are. *kept* 0:
    there is no history."""

    def __init__(self, running: Callable[[], tuple[int, int]], *, clock: Clock, kept: int = SAMPLES_KEPT) -> None:
        self._running = running
        self._clock = clock
        self._timer: Timer | None = None
        self._samples: deque[UsageSample] = deque(maxlen=kept)
        self.enabled: Final = kept > 0

    def kept_samples(self) -> tuple[UsageSample, ...]:
        """Returns the kept samples, the oldest first."""
        return tuple(self._samples)

    def start(self) -> None:
        """Take a sample every minute from now on."""
        if self.enabled and self._timer is None:
            self._wait()

    def stop(self) -> None:
        """Stops taking samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._due_ns = self._clock.now_ns() + INTERVAL_NS
        self._timer = self._clock.call_at(self._due_ns, self._take_sample)

    def _take_sample(self) -> None:
        now_ns = self._clock.now_ns()
        if now_ns < self._due_ns:  # A timer may come early.
            self._timer = self._clock.call_at(self._due_ns, self._take_sample)
            return
        self._samples.append(UsageSample(now_ns, *self._running()))
        self._wait()
