"""The tables as queries see them. How they come to be: ``migrations``.

Every row is named by ``run``, a number of one life of a core, and ``seq``, which counts its records from 1 without a
gap: a row that is written twice is one row. Times are Unix nanoseconds.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, Table, Text, func, literal_column
from sqlalchemy.sql.elements import ColumnElement

METADATA: Final = MetaData()


def _table(name: str, *columns: Column[int] | Column[str] | Column[bool]) -> Table:
    return Table(
        name,
        METADATA,
        Column("run", BigInteger, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("at_ns", BigInteger, nullable=False),
        *columns,
    )


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _path(name: str) -> Column[str]:
    """In the order of its characters, whatever the database thinks of languages: what is below a queue is a range."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


APPLICATIONS: Final = _table(
    "applications",
    _text("partition"),
    _text("application_id"),
    _path("queue"),
    _text("user_name"),
    _text("state"),
    _number("submitted_ns"),
    _text("message"),
)
"""A row for each state that an application entered."""

PREEMPTIONS: Final = _table(
    "preemptions",
    _text("partition"),
    _number("decision"),
    _text("kind"),
    _text("laws"),
    _text("outcome"),
    _text("detail"),
    _text("for_key"),
    _text("for_application"),
    _path("for_queue"),
    _text("node_id"),
    _text("victim_key"),
    _text("victim_application"),
    _path("victim_queue"),
    _text("victim_node"),
    _text("victim_resources"),
    _number("victim_priority"),
)
"""A row for each victim of a decision, one with an empty ``victim_key`` for a decision without victims."""

EVENTS: Final = _table(
    "events",
    Column("type", Integer, nullable=False),
    Column("change", Integer, nullable=False),
    Column("detail", Integer, nullable=False),
    _text("object_id"),
    _text("reference_id"),
    _text("resources"),
    _text("message"),
)
"""``resources``: JSON object of amounts; empty: the event has none."""

CONFIGURATIONS: Final = _table(
    "configurations",
    _number("number"),
    _text("origin"),
    _text("rm_id"),
    _text("checksum"),
    Column("applied", Boolean, nullable=False),
    _text("reason"),
    _text("problems"),
    _text("config"),
    _text("principal"),
    _text("note"),
)
"""``problems``: JSON array of the problems of the text. ``principal``, ``note``: empty in records of older versions."""

TABLES: Final = MappingProxyType({table.name: table for table in (APPLICATIONS, PREEMPTIONS, EVENTS, CONFIGURATIONS)})

INDEXED_CHARACTERS: Final = 256
"""So much of a text is in an index. PostgreSQL refuses a row whose entry in an index is longer than 2,704 bytes."""

INDEXED: Final = MappingProxyType(
    {
        "applications": frozenset({"application_id", "queue"}),
        "preemptions": frozenset({"for_application", "victim_application", "for_queue", "victim_queue"}),
        "events": frozenset({"object_id", "reference_id"}),
        "configurations": frozenset[str](),
    }
)
"""Columns whose beginnings are in an index."""


def beginning_of(column: Column[Any]) -> ColumnElement[str]:
    """Return the part of *column* that is in its index, in the words of the migration: databases compare them."""
    return func.substr(column, literal_column("1"), literal_column(str(INDEXED_CHARACTERS)))
