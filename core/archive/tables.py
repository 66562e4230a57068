"""The tables, for queries. The package ``migrations`` creates them.

The key of every row is ``run``, the number of one run of a core, with ``seq``, which counts the run's records from 1
without a gap; so writing a row twice has no effect. Times are Unix nanoseconds.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, Table, Text, func, literal_column
from sqlalchemy.sql.elements import ColumnElement

METADATA: Final = MetaData()


def _make_table(name: str, *columns: Column[int] | Column[str] | Column[bool]) -> Table:
    return Table(
        name,
        METADATA,
        Column("run", BigInteger, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("at_ns", BigInteger, nullable=False),
        *columns,
    )


def _text_column(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _path_column(name: str) -> Column[str]:
    """Returns a column ordered by character codes, whatever the database's language, so that all queues below one form
    a range."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=False)


def _number_column(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


APPLICATIONS: Final = _make_table(
    "applications",
    _text_column("partition"),
    _text_column("application_id"),
    _path_column("queue"),
    _text_column("user_name"),
    _text_column("state"),
    _number_column("submitted_ns"),
    _text_column("message"),
)
"""A row for each state that an application entered."""

PREEMPTIONS: Final = _make_table(
    "preemptions",
    _text_column("partition"),
    _number_column("decision"),
    _text_column("kind"),
    _text_column("laws"),
    _text_column("outcome"),
    _text_column("detail"),
    _text_column("for_key"),
    _text_column("for_application"),
    _path_column("for_queue"),
    _text_column("node_id"),
    _text_column("victim_key"),
    _text_column("victim_application"),
    _path_column("victim_queue"),
    _text_column("victim_node"),
    _text_column("victim_resources"),
    _number_column("victim_priority"),
)
"""A row for each victim of a decision; for a decision without victims, one row with an empty ``victim_key``."""

EVENTS: Final = _make_table(
    "events",
    Column("type", Integer, nullable=False),
    Column("change", Integer, nullable=False),
    Column("detail", Integer, nullable=False),
    _text_column("object_id"),
    _text_column("reference_id"),
    _text_column("resources"),
    _text_column("message"),
)
"""``resources``: a JSON object of amounts; empty: the event has none."""

CONFIGURATIONS: Final = _make_table(
    "configurations",
    _number_column("number"),
    _text_column("origin"),
    _text_column("rm_id"),
    _text_column("checksum"),
    Column("applied", Boolean, nullable=False),
    _text_column("reason"),
    _text_column("problems"),
    _text_column("config"),
    _text_column("principal"),
    _text_column("note"),
)
"""``problems``: JSON array of the problems of the text. ``principal``, ``note``: empty in records of older versions."""

USAGE: Final = _make_table(
    "usage",
    _text_column("partition"),
    _path_column("queue"),
    _number_column("applications"),
    _text_column("used"),
    _text_column("pending"),
    _text_column("guaranteed"),
    _text_column("max"),
)
"""A row for the root and each queue in use, each time usage is sampled. Amounts are JSON objects."""

TABLES: Final = MappingProxyType(
    {table.name: table for table in (APPLICATIONS, PREEMPTIONS, EVENTS, CONFIGURATIONS, USAGE)}
)

INDEXED_CHARACTERS: Final = 256
"""The characters of a text that are in an index. PostgreSQL refuses a row whose index entry is longer than 2,704
bytes."""

INDEXED: Final = MappingProxyType(
    {
        "applications": frozenset({"application_id", "queue"}),
        "preemptions": frozenset({"for_application", "victim_application", "for_queue", "victim_queue"}),
        "events": frozenset({"object_id", "reference_id"}),
        "configurations": frozenset[str](),
        "usage": frozenset({"queue"}),
    }
)
"""The columns whose beginnings are indexed."""


def beginning_of(column: Column[Any]) -> ColumnElement[str]:
    """Return the part of *column* that is in its index, written as in the migration, because databases compare the
    text."""
    return func.substr(column, literal_column("1"), literal_column(str(INDEXED_CHARACTERS)))
