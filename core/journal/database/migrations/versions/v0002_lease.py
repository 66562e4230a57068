"""Makes the table with the row that shows which core leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table with its only row: a lease that no core holds."""
    lease = op.create_table(
        "journal_lease",
        sa.Column("one", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("epoch", "until_ms", "renewed_ms", "core_ns")),
    )
    op.bulk_insert(
        lease, [{"one": 1, "holder": "", "address": "", "epoch": 0, "until_ms": 0, "renewed_ms": 0, "core_ns": 0}]
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("journal_lease")
