"""Writes a comparison: tables as CSV, everything as JSON, and a summary in words."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from kornel.shared.visible import write_visibly
from kornel.simulate.comparing import Comparison, Difference, QueueRow

QUEUES, REPORT, SUMMARY = "queues.csv", "report.json", "summary.txt"
_NAMES: Final = {
    "wait_p50_s": ("the median wait", "s"),
    "wait_p95_s": ("the wait that 95 % do not exceed", "s"),
    "wait_p99_s": ("the wait that 99 % do not exceed", "s"),
    "slowdown_p95": ("the slowdown that 95 % do not exceed", ""),
    "preempted": ("the number of preempted tasks", ""),
    "lost_core_hours": ("the work lost", " core hours"),
}


def write_report(folder: Path, comparison: Comparison) -> None:
    """Write all files of *comparison* into *folder*, which has to exist. The same runs give the same bytes. Raises
    OSError."""
    for name, text in (
        (QUEUES, make_table(comparison)),
        (REPORT, json.dumps(comparison.as_document(), indent=1) + "\n"),
        (SUMMARY, describe_comparison(comparison)),
    ):
        # An interrupted run leaves the last file that was whole.
        part = folder / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(folder / name)


def make_table(comparison: Comparison) -> str:
    """Returns the figures of each queue in each run as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(QueueRow.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in comparison.queues)
    return text.getvalue()


def describe_comparison(comparison: Comparison) -> str:
    """Returns a summary in words: a table for each configuration, then a sentence for each clear difference."""
    lines: list[str] = []
    if not comparison.complete:
        lines += [f"INTERRUPTED: {len(comparison.runs)} of {comparison.wanted} runs.", ""]
    for name in comparison.configurations:
        lines += [*_describe_configuration(comparison, name), ""]
    differences = list(comparison.find_differences())
    if differences:
        clear = [each for each in differences if each.is_clear]
        lines += [_describe_difference(each) for each in clear]
        if not clear:
            single = all(each.margin is None for each in differences)
            lines.append(
                "No queue has figures of two seeds, so no difference can be told from chance: give more --seeds."
                if single
                else "No difference is clear: each may be due to chance."
            )
    return "\n".join(lines).rstrip() + "\n"


def _describe_configuration(comparison: Comparison, name: str) -> Iterator[str]:
    runs = [row for row in comparison.runs if row.configuration == name]
    victims: dict[str, int] = {}
    for run in runs:
        for kind, number in run.victims.items():
            victims[kind] = victims.get(kind, 0) + number
    taken = ", ".join(f"{kind} {number}" for kind, number in sorted(victims.items())) or "none"
    yield f"{write_visibly(name)}: {len(runs)} runs; victims by kind of preemption: {taken}"
    anomalies = sum(run.anomalies for run in runs)
    if anomalies:
        first = next(run.first_anomaly for run in runs if run.anomalies)
        yield f"  {anomalies} times something was refused or made no sense, at first: {write_visibly(first)}"
    titles = ("queue", "started", "waiting", "p50 s", "p95 s", "p99 s", "slowdown p95", "cores used", "preempted",
              "lost core h")  # fmt: skip
    table: list[tuple[str, ...]] = [titles]
    for queue in dict.fromkeys(row.queue for row in comparison.queues):
        rows = [row for row in comparison.queues if row.queue == queue and row.configuration == name]
        if rows:
            table.append((write_visibly(queue), *_average_rows(rows)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        first, *others = (cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in
                          enumerate(zip(cells, widths, strict=True)))  # fmt: skip
        yield "  " + "  ".join((first, *others))


def _average_rows(rows: list[QueueRow]) -> tuple[str, ...]:
    def average(figure: str) -> float:
        return sum(float(getattr(row, figure)) for row in rows) / len(rows)

    return (
        f"{average('started'):.0f}",
        f"{average('waiting'):.0f}",
        f"{average('wait_p50_s'):.1f}",
        f"{average('wait_p95_s'):.1f}",
        f"{average('wait_p99_s'):.1f}",
        f"{average('slowdown_p95'):.2f}",
        f"{100 * average('utilisation'):.1f} %",
        f"{average('preempted'):.1f}",
        f"{average('lost_core_hours'):.1f}",
    )


def _describe_difference(found: Difference) -> str:
    what, unit = _NAMES[found.figure]
    assert found.margin is not None
    low, high = found.difference - found.margin, found.difference + found.margin
    return (
        f"{write_visibly(found.queue)}, {write_visibly(found.configuration)}: {what} is {found.other:.1f}{unit}"
        f" and not {found.first:.1f}{unit},"
        f" a difference of {found.difference:+.1f} (95 % confidence: {low:+.1f} to {high:+.1f}, {found.seeds} seeds)."
    )
