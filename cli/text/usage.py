"""Writes the usage of a queue over time as text for a terminal: first a summary, then a row for each point in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kornel.cli.text.cluster import BARS, describe_use
from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import Strokes, format_percent, format_quantity, types_in_order
from kornel.cli.text.tables import Rows, fit_table, wrap_text
from kornel.shared.readable_amounts import format_time
from kornel.v1.history_pb2 import UsagePoint

_NOTHING: Final = "nothing in this range: usage is stored once a minute, by a core that has a history"


def render_usage(
    queue: str, points: Sequence[UsagePoint], cluster: Sequence[UsagePoint], strokes: Strokes, types: Sequence[str]
) -> str:
    """Returns *points* of *queue*, with a bar for each of *types*, by default the first two that the cluster has.

    *cluster* holds the points of the root at the same times; they are the scale of the bars if the queue has no max.
    """
    if not points:
        return _NOTHING
    limits = {point.at_ns: point.max for point in cluster}
    whole = [{**limits.get(point.at_ns, {}), **point.max} for point in points]
    shown = list(types) or types_in_order([*whole, *(point.used for point in points)])[:2]

    def make_rows(bar: int) -> Rows:
        rows: list[tuple[str, ...]] = [("from", "running", *shown)]
        rows += [
            (
                format_time(point.at_ns),
                str(point.application_count),
                *(describe_use(point, most, name, strokes, bar) for name in shown),
            )
            for point, most in zip(points, whole, strict=True)
        ]
        return rows

    sums = [line for name in shown for line in _sum_up(queue, name, points, whole)]
    return join_lines([*sums, "", *fit_table(make_rows, BARS, ("running",))])


def _sum_up(queue: str, name: str, points: Sequence[UsagePoint], whole: Sequence[Mapping[str, int]]) -> Iterator[str]:
    """Yields a sentence about how much of *name* the queue used, on average and at most."""
    samples = sum(point.sample_count for point in points)
    used = sum(point.used.get(name, 0) * point.sample_count for point in points) // max(samples, 1)
    most = sum(limit.get(name, 0) * point.sample_count for point, limit in zip(points, whole, strict=True))
    fullest = max(range(len(points)), key=lambda at: points[at].used.get(name, 0))
    peak, limit = points[fullest].used.get(name, 0), whole[fullest].get(name, 0)
    average = f"{format_quantity(name, used)} ({format_percent(used, most // max(samples, 1))})"
    at_most = f"{format_quantity(name, peak)} ({format_percent(peak, limit)})"
    yield from wrap_text(
        f"{queue} used {average} of {name} on average, at most {at_most} from {format_time(points[fullest].at_ns)}"
    )
