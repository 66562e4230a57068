"""Indexes on the beginnings of texts, because a database refuses a row whose entry in an index is too long."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_CHARACTERS = 256
_INDEXED = {
    "applications": ("application_id", "queue"),
    "preemptions": ("for_application", "victim_application", "for_queue", "victim_queue"),
    "events": ("object_id", "reference_id"),
}


def upgrade() -> None:
    """Replace indexes on whole texts by bounded ones."""
    for table, columns in _INDEXED.items():
        for column in columns:
            op.drop_index(f"{table}_by_{column}", table)
            beginning = sa.text(f"substr({column}, 1, {_CHARACTERS})")
            op.create_index(f"{table}_by_{column}", table, [beginning, "at_ns", "run", "seq"])


def downgrade() -> None:
    """Restore indexes on whole texts."""
    for table, columns in _INDEXED.items():
        for column in columns:
            op.drop_index(f"{table}_by_{column}", table)
            op.create_index(f"{table}_by_{column}", table, [column, "at_ns", "run", "seq"])
