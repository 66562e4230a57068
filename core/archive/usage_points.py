"""Reads the usage of a queue over time, averaged to as many points as a client wants.

The root has a row for each time when usage was sampled; another queue has one only if it was in use. So a queue without
a row at such a time used nothing, and if the root has no row either, the core was not running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy.sql.elements import ColumnElement

from kornel.core.archive.reader import LARGEST_PAGE, HistoryReader, Page, match_column, match_partition, token_of

ROOT: Final = "root"
DEFAULT_POINTS: Final = 300
MOST_POINTS: Final = 2_000
MOST_READ: Final = 60_000
"""The most rows that one answer reads of each of the two queues, the newest ones: six weeks with a sample per
minute."""


class UsagePoint(NamedTuple):
    """The use of a queue, averaged over some samples."""

    at_ns: int
    samples: int
    applications: int
    used: Mapping[str, int]
    pending: Mapping[str, int]
    guaranteed: Mapping[str, int]
    max: Mapping[str, int]


@dataclass(slots=True)
class _Bucket:
    """The samples of one point, as sums."""

    at_ns: int
    samples: int = 0
    applications: int = 0
    used: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    last: Any = None

    def add(self, row: Any) -> None:
        self.applications += row.applications
        for sums, text in ((self.used, row.used), (self.pending, row.pending)):
            for name, amount in orjson.loads(text).items():
                sums[name] = sums.get(name, 0) + amount
        self.last = row

    def make_point(self) -> UsagePoint:
        def divide_sums(sums: Mapping[str, int]) -> dict[str, int]:
            return {name: round(amount / self.samples) for name, amount in sums.items()}

        last = self.last
        return UsagePoint(
            self.at_ns,
            self.samples,
            round(self.applications / self.samples),
            divide_sums(self.used),
            divide_sums(self.pending),
            orjson.loads(last.guaranteed) if last is not None else {},
            orjson.loads(last.max) if last is not None else {},
        )


def read_usage(reader: HistoryReader, page: Page, partition: str, queue: str, points: int) -> list[UsagePoint]:
    """Returns the use of *queue*, the oldest first, in at most *points* points; 0: the usual number."""
    queue = queue.lower() or ROOT
    looked = list(_read_rows(reader, page, partition, ROOT))
    rows = looked if queue == ROOT else list(_read_rows(reader, page, partition, queue))
    if not looked:
        return []
    first, last = looked[-1].at_ns, looked[0].at_ns
    most = min(points or DEFAULT_POINTS, MOST_POINTS)
    width = max((last - first) // most + 1, 1)
    buckets: dict[int, _Bucket] = {}
    for row in reversed(looked):
        bucket = buckets.setdefault((row.at_ns - first) // width, _Bucket(row.at_ns))
        bucket.samples += 1
    for row in reversed(rows):
        found = buckets.get((row.at_ns - first) // width)
        if found is not None:
            found.add(row)
    return [bucket.make_point() for _, bucket in sorted(buckets.items())]


def _read_rows(reader: HistoryReader, page: Page, partition: str, queue: str) -> Iterator[Any]:
    """Yields rows of one queue, the newest first."""
    conditions: Sequence[ColumnElement[bool]] = [
        *match_partition("usage", partition),
        *match_column("usage", queue=queue),
    ]
    page = replaced(page, size=LARGEST_PAGE, after=None)
    read = 0
    while read < MOST_READ:
        rows, more = reader.read_rows("usage", page, conditions)
        yield from rows
        read += len(rows)
        if not more:
            return
        page = replaced(page, after=Page.page_for(0, 0, 0, token_of(rows[-1])).after)
