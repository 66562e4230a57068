"""Who brought a configuration, and what came of a rollback with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of what was stored before, nothing is known."""
    for name in ("principal", "note"):
        op.add_column("configurations", sa.Column(name, sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Forget them."""
    for name in ("note", "principal"):
        op.drop_column("configurations", name)
