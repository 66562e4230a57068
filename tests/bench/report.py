"""How figures are printed: median, spread, target, and the cost in steps of a loop that was timed beside them.

The machines that run this drift by half. Steps divide that out: compare steps of two runs, never seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, one value per run.

    *each_s*: seconds per item, for figures in another unit than items per second; absent: *values* are rates.
    *target*: the least median, or with *at_most* the greatest; absent: nothing is demanded.
    """

    label: str
    unit: str
    values: Sequence[float]
    target: float | None = None
    at_most: bool = False
    each_s: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def reached(self) -> bool:
        if self.target is None:
            return True
        return self.median <= self.target if self.at_most else self.median >= self.target


class _Counter:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, amount: int) -> int:
        self.count += amount
        return self.count


def pace() -> float:
    """Steps per second now: a step is one call, one push and one pop of a short heap, and two look-ups."""
    rates = []
    for _ in range(3):
        counter, heap, known = _Counter(), [(number, str(number)) for number in range(32)], {}
        began = time.process_time()
        for number in range(_STEPS):
            total = counter.add(number & 7)
            heappush(heap, (total, "step"))
            _, name = heappop(heap)
            known[name] = known.get(name, 0) + 1
        rates.append(_STEPS / (time.process_time() - began))
    return max(rates)


def show(title: str, figures: Sequence[Figure], expected: str) -> bool:
    """Print *figures* below *title*, with what was *expected*. Whether every target was reached."""
    steps_per_s = pace()
    print(f"{title}\n  expected: {expected}")
    for figure in figures:
        median = figure.median
        spread = f"({_number(min(figure.values))} to {_number(max(figure.values))})"
        line = f"  {figure.label:<44}{_number(median):>9} {figure.unit:<4}{spread:<20}"
        each_s = figure.each_s if figure.each_s is not None else 1 / median
        if each_s:
            line += f"{_number(each_s * steps_per_s):>7} steps"
        if figure.target is not None:
            bound = "at most" if figure.at_most else "at least"
            line += f"   {bound} {figure.target:,g}: {'reached' if figure.reached else 'MISSED'}"
        print(line, flush=True)
    return all(figure.reached for figure in figures)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
