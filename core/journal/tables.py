"""The table of blocks as queries see it. How it comes to be: ``migrations``."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

METADATA: Final = sa.MetaData()

BLOCKS: Final = sa.Table(
    "journal_blocks",
    METADATA,
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    *(
        sa.Column(name, sa.BigInteger, nullable=False)
        for name in ("last", "epoch", "life", "at_ns", "chain_before", "chain", "delivered")
    ),
    sa.Column("payload", sa.LargeBinary, nullable=False),
)
"""A row for each block of records (:class:`kornel.core.journal.records.Block`).

``life``: number of the record with which the life of the engine began that the block belongs to; nothing before it has
a bearing on what comes.
"""
