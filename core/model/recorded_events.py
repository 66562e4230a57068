"""The state of an ask in the event history, so that no event is repeated (scheduling.md 17)."""

from __future__ import annotations


class RecordedEvents:
    """The events recorded about an ask that cannot be placed; absent while nothing is recorded."""

    __slots__ = ("bounded_ns", "no_victim_ns", "over_queue_quota", "over_user_quota", "refused_ns")

    def __init__(self) -> None:
        self.over_user_quota = False
        self.over_queue_quota = False
        self.refused_ns: int | None = None
        """The time of the last event that no node is good enough for the shim."""
        self.bounded_ns: int | None = None
        """The time of the last event that a bound on preemption keeps it from preempting."""
        self.no_victim_ns: int | None = None
        """The time of the last event that no victim can make room on the node it requires."""
