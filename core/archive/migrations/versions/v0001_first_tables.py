"""Applications, preemptions, events and configurations."""

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


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def upgrade() -> None:
    """From nothing."""
    _create(
        "applications",
        *_text("partition", "application_id", "queue", "user_name", "state"),
        _number("submitted_ns"),
        *_text("message"),
    )
    op.create_index("applications_by_id", "applications", ["application_id", "at_ns"])
    _create(
        "preemptions",
        *_text("partition"),
        _number("decision"),
        *_text("kind", "laws", "outcome", "detail", "for_key", "for_application", "for_queue", "node_id"),
        *_text("victim_key", "victim_application", "victim_queue", "victim_node", "victim_resources"),
        _number("victim_priority"),
    )
    numbers = [sa.Column(name, sa.Integer, nullable=False) for name in ("type", "change", "detail")]
    _create("events", *numbers, *_text("object_id", "reference_id", "resources", "message"))
    _create(
        "configurations",
        _number("number"),
        *_text("origin", "rm_id", "checksum"),
        sa.Column("applied", sa.Boolean, nullable=False),
        *_text("reason", "problems", "config"),
    )


def downgrade() -> None:
    """Back to nothing."""
    for name in ("configurations", "events", "preemptions", "applications"):
        op.drop_table(name)
