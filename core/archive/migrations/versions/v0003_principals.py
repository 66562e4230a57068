"""Adds the principal of a configuration, and the result of a rollback."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, with empty values in existing rows."""
    for name in ("principal", "note"):
        op.add_column("configurations", sa.Column(name, sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Remove the columns."""
    for name in ("note", "principal"):
        op.drop_column("configurations", name)
