"""The table of the workloads P1 to P21: value, target, ratio, and what a bare echo of the same messages gives."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WHAT_WIDTH = 68


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of workload *number*, one value per run.

    *target*: the least median, or with *at_most* the greatest; absent: nothing is demanded.
    *ceilings*: the same figure of the echo server, one per run; empty: nothing is sent.
    *points*: size to value, for figures that show growth.
    """

    number: str
    what: str
    unit: str
    values: Sequence[float]
    target: float | None = None
    at_most: bool = False
    ceilings: Sequence[float] = ()
    points: Mapping[int, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """Median of the runs."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        """Value to target; more is better unless *at_most*."""
        return None if self.target is None else self.value / self.target

    @property
    def met(self) -> bool:
        """Whether the target was reached; true without one."""
        if self.target is None:
            return True
        return self.value <= self.target if self.at_most else self.value >= self.target

    @property
    def of_ceiling(self) -> float | None:
        """Value to what the echo server gave in the same runs: does not depend on the machine."""
        if not self.ceilings:
            return None
        return statistics.median([value / ceiling for value, ceiling in zip(self.values, self.ceilings, strict=True)])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "number": self.number,
            "what": self.what,
            "unit": self.unit,
            "value": self.value,
            "values": list(self.values),
            "target": self.target,
            "at_most": self.at_most,
            "ratio": self.ratio,
            "met": self.met,
            "ceiling": statistics.median(self.ceilings) if self.ceilings else None,
            "of_ceiling": self.of_ceiling,
            "points": {str(size): value for size, value in self.points.items()},
        }


HEADER = (
    f"{'':5}{'workload':{WHAT_WIDTH}}{'value':>9}       {'target':>11}{'ratio':>7}{'echo':>10}{'of it':>7}{'pace':>8}"
)


def line(row: Row, steps_per_s: float) -> str:
    """*row* of the table below ``HEADER``. *steps_per_s*: how fast the machine was beside it."""
    target = ratio = ceiling = share = ""
    if row.target is not None and row.ratio is not None:
        target = f"{'<=' if row.at_most else '>='} {number(row.target)}"
        ratio = f"{row.ratio:.2f}"
    if row.of_ceiling is not None:
        ceiling = number(statistics.median(row.ceilings))
        share = f"{row.of_ceiling:.0%}" if row.of_ceiling < 10 else f"{row.of_ceiling:.1f}x"
    verdict = "" if row.target is None else "met" if row.met else "MISSED"
    spread = f"({number(min(row.values))} to {number(max(row.values))})" if len(row.values) > 1 else ""
    start = f"{row.number:5}{row.what:{WHAT_WIDTH}}{number(row.value):>9} {row.unit:6}{target:>11}{ratio:>7}"
    return f"{start}{ceiling:>10}{share:>7}{steps_per_s / 1e3:>7.0f}k  {verdict:7}{spread}".rstrip()


def number(value: float) -> str:
    """*value* as people write it: whole from 100 on, three digits below."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the value that this *share* of *values* does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
