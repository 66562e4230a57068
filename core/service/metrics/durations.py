"""Counts durations by their length, for histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Durations:
    """Durations, counted by bounds. ``total``: the sum in seconds. ``counts``: the numbers of durations up to each
    bound, then of the longer ones."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Makes an empty histogram. *bounds*: seconds, ascending."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count *times* events that took *seconds* each."""
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times

    def cumulated_counts(self) -> Iterator[tuple[str, int]]:
        """Yields each bound as text, with the number of durations up to it; ``+Inf`` comes last."""
        return zip((*(f"{bound:g}" for bound in self.bounds), "+Inf"), accumulate(self.counts), strict=True)
