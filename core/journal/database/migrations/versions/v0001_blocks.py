"""Makes the table of blocks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    # In SQLite only an INTEGER can be the key of the rows themselves, with which a new block is appended and no other
    # row moves.
    key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    numbers = ("last", "epoch", "life", "at_ns", "chain_before", "chain", "delivered")
    op.create_table(
        "journal_blocks",
        sa.Column("first", key, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in numbers),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("journal_blocks")
