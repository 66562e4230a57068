"""Measures the times that the engine takes, by slice, so that a single placement costs nothing here."""

from __future__ import annotations

from typing import Final

from kornel.core.metrics.decisions import Decisions
from kornel.core.service.metrics.metrics import Durations

UPSTREAM_BOUNDS_S: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""The bounds of all histograms that YuniKorn has as well (rest.md 6)."""

BOUNDS_S: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PLACEMENT_BOUNDS_S: Final = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1, 1.0)


class Timings:
    """The times of all engines of a core, each of which counts in a timer of its own: :meth:`of_engine`. They are in
    seconds.

    slices       each slice of scheduling, which YuniKorn calls an attempt of a partition
    cycles       from the first slice with something to do until there is nothing more to do
    commands     each command applied
    placements   each placement, as an equal part of its slice
    attempts     each attempt to preempt, as an equal part of its slice: an upper bound, because slices do more
    """

    def __init__(self, decisions: Decisions) -> None:
        self.decisions: Final = decisions
        """The decisions of the slice that was timed last."""
        self.slices = Durations(BOUNDS_S)
        self.cycles = Durations(BOUNDS_S)
        self.commands = Durations(BOUNDS_S)
        self.placements = Durations(PLACEMENT_BOUNDS_S)
        self.attempts = Durations(BOUNDS_S)
        self.upstream_slices = Durations(UPSTREAM_BOUNDS_S)
        self.upstream_cycles = Durations(UPSTREAM_BOUNDS_S)
        self.upstream_placements = Durations(UPSTREAM_BOUNDS_S)
        self.upstream_attempts = Durations(UPSTREAM_BOUNDS_S)

    def of_engine(self) -> EngineTimings:
        """Returns a timer for one more engine."""
        return EngineTimings(self)


class EngineTimings:
    """An ``EngineTimer`` of one engine; cycles are made up of the slices of this engine only."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._cycle_s = 0.0

    def command_took(self, seconds: float) -> None:
        """Count a command that was applied."""
        self._timings.commands.add(seconds)

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """Count a slice that was run, with its effects."""
        timings = self._timings
        timings.slices.add(seconds)
        timings.upstream_slices.add(seconds)
        self._cycle_s += seconds
        if not more:
            timings.cycles.add(self._cycle_s)
            timings.upstream_cycles.add(self._cycle_s)
            self._cycle_s = 0.0
        if not effects:
            return
        placed, attempts = timings.decisions.last_placed, timings.decisions.last_attempts
        if placed:
            timings.placements.add(seconds / placed, placed)
            timings.upstream_placements.add(seconds / placed, placed)
        if attempts:
            timings.attempts.add(seconds / attempts, attempts)
            timings.upstream_attempts.add(seconds / attempts, attempts)
