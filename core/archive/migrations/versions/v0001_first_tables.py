"""Makes the tables for applications, preemptions, events and configurations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _create(name: str, *columns: sa.Column[int] | sa.Column[str] | sa.Column[bool]) -> None:
    op.create_table(
        name,
        sa.Column("run", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("run", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_index(f"{name}_by_time", name, ["at_ns", "run", "seq"])


def _text(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _path(*names: str) -> list[sa.Column[str]]:
    by_character = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    return [sa.Column(name, by_character, nullable=False) for name in names]


def _index(table: str, *columns: str) -> None:
    """Make an index that finds the rows with a value in a column, the newest first."""
    for column in columns:
        op.create_index(f"{table}_by_{column}", table, [column, "at_ns", "run", "seq"])


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def upgrade() -> None:
    """Make the first tables in an empty database."""
    _create(
        "applications",
        *_text("partition", "application_id"),
        *_path("queue"),
        *_text("user_name", "state"),
        _number("submitted_ns"),
        *_text("message"),
    )
    _index("applications", "application_id", "queue")
    _create(
        "preemptions",
        *_text("partition"),
        _number("decision"),
        *_text("kind", "laws", "outcome", "detail", "for_key", "for_application"),
        *_path("for_queue"),
        *_text("node_id", "victim_key", "victim_application"),
        *_path("victim_queue"),
        *_text("victim_node", "victim_resources"),
        _number("victim_priority"),
    )
    _index("preemptions", "for_application", "victim_application", "for_queue", "victim_queue")
    numbers = [sa.Column(name, sa.Integer, nullable=False) for name in ("type", "change", "detail")]
    _create("events", *numbers, *_text("object_id", "reference_id", "resources", "message"))
    _index("events", "object_id", "reference_id")
    _create(
        "configurations",
        _number("number"),
        *_text("origin", "rm_id", "checksum"),
        sa.Column("applied", sa.Boolean, nullable=False),
        *_text("reason", "problems", "config"),
    )


def downgrade() -> None:
    """Remove all tables."""
    for name in ("configurations", "events", "preemptions", "applications"):
        op.drop_table(name)
