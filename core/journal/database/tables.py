"""The tables, for queries. ``migrations`` creates them."""

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
"""A row for each block of records (:class:`kornel.core.journal.content.records.Block`).

``life``: number of the record with which the life of the block began; later records do not depend on anything before
it.
"""

LEASE: Final = sa.Table(
    "journal_lease",
    METADATA,
    sa.Column("one", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("epoch", "until_ms", "renewed_ms", "core_ns")),
)
"""One row, which shows the leader of the cores on one PostgreSQL (:mod:`.lease`). An SQLite file has
only one core, which holds a lock file instead.

``holder``, ``address``: the leader's process, and the address to which other cores refer callers. ``epoch``: its epoch.
``until_ms``: the end of the lease by the database's clock. ``renewed_ms``, ``core_ns``: the database's time and the
core's time at the last renewal.
"""

SNAPSHOTS: Final = sa.Table(
    "journal_snapshots",
    METADATA,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
"""A row for each snapshot, on PostgreSQL only (:mod:`kornel.core.journal.snapshots.snapshot_store`).

``sequence``: number of the record after which it was taken. ``data``: its bytes, as in a file.
"""
