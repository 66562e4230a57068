"""What an engine holds, read through the one door that readers have."""

from __future__ import annotations

from kornel.core.telling.partitions.partition_status import EngineStatus
from kornel.core.telling.reader import PartitionReader, ReadableEngine, Reader


def read(engine: ReadableEngine, partition: str, now_ns: int = 0) -> PartitionReader:
    """Reads *partition* (full name) at *now_ns*. Nothing is kept from one call to the next."""
    return Reader(engine, lambda: now_ns)[partition]


def status_of(engine: ReadableEngine, now_ns: int = 0, *, audited: bool = False) -> EngineStatus:
    """Describes the whole core at *now_ns*."""
    found = tuple(reader.status(audited=audited) for reader in Reader(engine, lambda: now_ns).partitions())
    return EngineStatus(engine.rm_id, engine.checksum, found, engine.unrouted)
