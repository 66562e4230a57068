"""What the toy kind remembers in a partition."""

from __future__ import annotations

from typing import Final

from kornel.core.state.records.kind_records import KindRecord


class LeaseRecord(KindRecord):
    """The allocations whose leases have ended so far."""

    __slots__ = ("ended_ns",)

    def __init__(self) -> None:
        self.ended_ns: Final[dict[str, int]] = {}
        """The time when the lease of each allocation ended, by key."""
