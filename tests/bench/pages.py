"""The tables of the pages about performance, written from a record: ``python -m tests.bench.pages [FILE ...]``.

Without FILE the latest full record is used. Of several, each workload is taken from the last one that has it, for what
was measured at another time; the page names the first. The text around the tables stays as it is: what it says about
single figures has to be read again when they change. A row whose figure the record does not have stays as well.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench import record
from tests.bench.table import number

PAGE: Final = record.ROOT / "docs" / "performance.md"
JOURNAL: Final = record.ROOT / "docs" / "performance-journal.md"
Recorded = Mapping[str, Any]


def write_pages(found: Recorded, name: str) -> None:
    """Writes the tables of both pages from *found*, which is the record called *name*."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found, name), encoding="utf-8")
    JOURNAL.write_text(journal(JOURNAL.read_text(encoding="utf-8"), found), encoding="utf-8")


def journal(text: str, found: Recorded) -> str:
    """*text* of the journal with the whole table of *found*."""
    return _replace_table(text, "| # | Workload |", lambda _: record.markdown(found).splitlines())


def page(text: str, found: Recorded, name: str) -> str:
    """*text* of the page for users with the figures of *found*, which is the record called *name*."""
    before, start, after = text.partition("complete record is `docs/bench/")
    if start:
        text = before + start + name + after[after.index("`") :]
    text = _replace_table(text, "| What | Measured |", lambda lines: _update(lines, _measured(found)))
    return _replace_table(text, "| With | The cost", lambda lines: _update(lines, _grown(found)))


def _measured(found: Recorded) -> dict[str, str]:
    """What was measured, by the beginning of its row."""
    rates = [_value(found, "P1", "equal asks", at) for at in (0, 1)]
    p50, p99 = _value(found, "P6", "p50"), _value(found, "P6", "p99")
    texts = {
        "equal asks": _say("{} and {} placed a second", *map(_rounded, rates)),
        "asks of 128 sizes": _say("{} placed a second", _rounded(_value(found, "P2", "leaves flat, over gRPC"))),
        "a trace of GPU clusters": _say("{} placed a second", _rounded(_value(found, "P9", "trace x 10"))),
        "a full cluster": _say("{} allocations a second", _rounded(_value(found, "P7", "600 s"))),
        "one ask": _say("{} ms; 99 of 100 within {} ms", _short(p50), _short(p99)),
        "health check": _say("99 of 100 within {} ms", _short(_value(found, "P2", "health check"), 0)),
        "1,000 asks that preempt": _say(
            "all placed after {} s", _short(_value(found, "P10", "10,000 victims: all placed"))
        ),
        "an idle core": _say("{} % of one processor core", _short(_value(found, "P5", "idle core"))),
    }
    return {beginning: text for beginning, text in texts.items() if text is not None}


def _grown(found: Recorded) -> dict[str, str]:
    flat, nested = (
        _value(found, "P2", "leaves flat, engine alone"),
        _value(found, "P2", "leaves nested 10 x 10, engine alone"),
    )
    texts = {
        "100,000 nodes": _value(found, "P4", "100,000 nodes"),
        "1,000,000 waiting asks": _value(found, "P4", "1,000,000 asks"),
        "queues nested": flat / nested if flat and nested else None,
        "100,000 applications": _value(found, "P15", "100,000 applications to 1,000"),
        "10,000 queues": _value(found, "P15", "10,000 queues to 100"),
    }
    return {beginning: f"{times:.2f} times" for beginning, times in texts.items() if times is not None}


def _value(found: Recorded, workload: str, part: str, at: int = 0) -> float | None:
    """Returns the figure of row number *at* of *workload* whose description contains *part*; ``None``: there is
    none."""
    values = [row["value"] for row in found["rows"] if row["number"] == workload and part in row["what"]]
    return float(values[at]) if at < len(values) else None


def _rounded(value: float | None) -> str | None:
    """A rate as a page says it, in hundreds."""
    return None if value is None else number(round(value, -2))


def _short(value: float | None, digits: int = 1) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _say(text: str, *figures: str | None) -> str | None:
    return None if None in figures else text.format(*figures)


def _update(lines: list[str], texts: Mapping[str, str]) -> list[str]:
    """Table *lines* of two columns with the second one of *texts*, where the first begins with its key."""
    updated = []
    for line in lines:
        first = line.split("|")[1].strip()
        text = next((text for beginning, text in texts.items() if first.startswith(beginning)), None)
        updated.append(line if text is None else f"| {first} | {text} |")
    return updated


def _replace_table(text: str, head: str, renew: Callable[[list[str]], list[str]]) -> str:
    """*text* with the table whose first line begins with *head* renewed. Raises ``ValueError`` without one."""
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if line.startswith(head)), None)
    if start is None:
        raise ValueError(f"no table begins with {head!r}")
    end = start
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return "\n".join(lines[:start] + renew(lines[start:end]) + lines[end:])


def latest() -> Path:
    """The latest full record."""
    full = [path for path in sorted(record.FOLDER.glob("*.json")) if not json.loads(path.read_text())["quick"]]
    return full[-1]


def join(records: Sequence[Recorded]) -> dict[str, Any]:
    """The first of *records*, with each workload from the last one that has it."""
    rows: dict[str, list[Any]] = {}
    for found in records:
        for workload in {row["number"]: None for row in found["rows"]}:
            rows[workload] = [row for row in found["rows"] if row["number"] == workload]
    return {**records[0], "rows": [row for those in rows.values() for row in those]}


if __name__ == "__main__":
    chosen = [Path(name) for name in sys.argv[1:]] or [latest()]
    write_pages(join([json.loads(path.read_text(encoding="utf-8")) for path in chosen]), chosen[0].name)
    print(f"wrote the tables of {', '.join(path.name for path in chosen)} into {PAGE.name} and {JOURNAL.name}")
