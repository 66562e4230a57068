"""Makes the table of snapshots, which an SQLite journal has as files instead."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    if op.get_bind().dialect.name == "sqlite":
        return
    op.create_table(
        "journal_snapshots",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    # It is deflated already, and its head is read without the rest.
    op.execute("ALTER TABLE journal_snapshots ALTER COLUMN data SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Remove the table."""
    if op.get_bind().dialect.name != "sqlite":
        op.drop_table("journal_snapshots")
