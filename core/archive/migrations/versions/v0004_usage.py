"""Adds the use of queues over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_CHARACTERS = 256


def upgrade() -> None:
    """Make the table, and its indexes by time and by queue."""
    path = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "usage",
        sa.Column("run", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("queue", path, nullable=False),
        sa.Column("applications", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("used", "pending", "guaranteed", "max")),
        sa.PrimaryKeyConstraint("run", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_by_time", "usage", ["at_ns", "run", "seq"])
    beginning = sa.text(f"substr(queue, 1, {_CHARACTERS})")
    op.create_index("usage_by_queue", "usage", [beginning, "at_ns", "run", "seq"])


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("usage")
