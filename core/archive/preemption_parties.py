"""Reads the records of preemptions together with others: the users of the applications, which victims have left, and
how much was taken from whom for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import orjson
import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kornel.core.archive.reader import LARGEST_PAGE, HistoryReader, Page, token_of
from kornel.core.archive.tables import APPLICATIONS, EVENTS, INDEXED_CHARACTERS, beginning_of
from kornel.core.domain.history.events import EventChange, EventDetail, EventType
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import clamp_int64
from kornel.core.preemption.registry import SOURCES

MOST_SUMMED: Final = 100_000
"""The most records that one sum reads, the newest ones."""
MOST_SUMS: Final = 1_000

_AT_ONCE: Final = 400
"""The most names in one query, because SQLite accepts only some thousand values."""
_LEAVING: Final = tuple(
    detail for detail in EventDetail if EventDetail.ALLOC_CANCEL <= detail <= EventDetail.ALLOC_NODEREMOVED
)

T = TypeVar("T")


class Parties(NamedTuple):
    """The facts in other records about the two sides of preemptions.

    users  by partition and application
    left   the times at which an allocation left, by application and key, in order
    """

    users: Mapping[tuple[str, str], str]
    left: Mapping[tuple[str, str], Sequence[int]]

    def user_of(self, partition: str, application_id: str) -> str:
        """Returns the user of an application; empty: not known."""
        return self.users.get((partition, application_id), "")

    def left_ns(self, row: Any) -> int:
        """Returns the time when the victim of *row* was gone after the decision; 0: it is not known."""
        times = self.left.get((row.victim_application, row.victim_key), ())
        return next((at_ns for at_ns in times if at_ns >= row.at_ns), 0)


class Sum(NamedTuple):
    """A sum of what one side took from another: the number of victims, how many of them have left, and what they
    held."""

    taken_by: str
    taken_from: str
    victims: int
    left: int
    amounts: dict[str, int]


def find_parties(reader: HistoryReader, rows: Sequence[Any]) -> Parties:
    """Returns what the history knows of the applications and victims in *rows*, which are records of preemptions."""
    names = {name for row in rows for name in (row.for_application, row.victim_application) if name}
    keys = {row.victim_key for row in rows if row.victim_key}
    users: dict[tuple[str, str], str] = {}
    for chunk in _split_names(sorted(names)):
        query = sa.select(APPLICATIONS.c.partition, APPLICATIONS.c.application_id, APPLICATIONS.c.user_name).where(
            *_is_one_of(APPLICATIONS.c.application_id, chunk)
        )
        for found in reader.read_query(query.distinct()):
            users[found.partition, found.application_id] = found.user_name
    left: dict[tuple[str, str], list[int]] = {}
    earliest_ns = min((row.at_ns for row in rows), default=0)
    for chunk in _split_names(sorted(keys)):
        query = sa.select(EVENTS.c.object_id, EVENTS.c.reference_id, EVENTS.c.at_ns).where(
            *_is_one_of(EVENTS.c.reference_id, chunk),
            EVENTS.c.type == int(EventType.APP),
            EVENTS.c.change == int(EventChange.REMOVE),
            EVENTS.c.detail.in_([int(detail) for detail in _LEAVING]),
            EVENTS.c.at_ns >= earliest_ns,
        )
        for found in reader.read_query(query.order_by(EVENTS.c.at_ns)):
            left.setdefault((found.object_id, found.reference_id), []).append(found.at_ns)
    return Parties(users, left)


def sum_preemptions(
    reader: HistoryReader, page: Page, conditions: Sequence[ColumnElement[bool]], by: str
) -> tuple[list[Sum], bool]:
    """Returns the sums of losses for each pair of a preempting and a losing side, the most victims first, and whether
    all records were read.

    *by*: ``queue``, ``user`` or ``application``.
    """
    sums: dict[tuple[str, str], Sum] = {}
    page = replace(page, size=LARGEST_PAGE, after=None)
    for _ in range(MOST_SUMMED // LARGEST_PAGE):
        rows, more = reader.read_rows("preemptions", page, conditions)
        leaving = [row for row in rows if row.victim_key and _has_to_leave(row)]
        parties = find_parties(reader, leaving)
        for row in leaving:
            sides = _find_sides(row, parties, by)
            known = sums.get(sides) or Sum(*sides, 0, 0, {})
            for name, amount in orjson.loads(row.victim_resources).items():
                known.amounts[name] = clamp_int64(known.amounts.get(name, 0) + amount)
            has_left = parties.left_ns(row) > 0
            sums[sides] = known._replace(victims=known.victims + 1, left=known.left + has_left)
        if not more:
            break
        page = Page.page_for(page.since_ns, page.until_ns, LARGEST_PAGE, token_of(rows[-1]))
    ranked = sorted(sums.values(), key=lambda each: (-each.victims, each.taken_by, each.taken_from))
    return ranked[:MOST_SUMS], not more and len(ranked) <= MOST_SUMS


def _has_to_leave(row: Any) -> bool:
    source = SOURCES.get(row.kind)
    try:
        return source is not None and source.ending_of(Outcome(row.outcome)).leaves
    except ValueError:
        return False  # An outcome of an older core.


def _find_sides(row: Any, parties: Parties, by: str) -> tuple[str, str]:
    if by == "user":
        return (
            parties.user_of(row.partition, row.for_application),
            parties.user_of(row.partition, row.victim_application),
        )
    if by == "application":
        return row.for_application, row.victim_application
    return row.for_queue, row.victim_queue


def _is_one_of(column: sa.Column[str], names: Sequence[str]) -> list[ColumnElement[bool]]:
    """Returns the conditions that *column*, whose beginnings are in an index, is one of *names*."""
    beginnings = sorted({name[:INDEXED_CHARACTERS] for name in names})
    return [beginning_of(column).in_(beginnings), column.in_(names)]


def _split_names(names: Sequence[T]) -> Iterator[Sequence[T]]:
    return (names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE))
