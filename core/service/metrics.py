"""Counters of the service itself: plain numbers, written by one thread, read by whoever reports them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class ServiceMetrics:
    """Counters since start, except those named ``live_`` or ``queued_``, which are as of now."""

    live_streams: int = 0
    """Open streams of any kind, bound or not."""
    streams_opened: int = 0
    streams_broken: int = 0
    """Streams that ended because the client vanished or cancelled."""
    streams_refused: int = 0
    """Streams the core ended with an error status."""
    messages_received: int = 0
    messages_sent: int = 0
    entries_sent: int = 0
    commands_applied: int = 0
    commands_refused: int = 0
    engine_faults: int = 0
    """Exceptions inside the engine. Anything above 0 is a bug of the core."""
    slices: int = 0
    """Scheduling slices run."""
    preemption_decisions: int = 0
    group_lookups: int = 0
    """Times a resolver was asked for the groups of a user; answers from the cache do not count."""
    group_lookups_failed: int = 0
    queued_entries: int = 0
    """Response entries not yet handed to a stream."""
    response_overflows: int = 0
    """The number of times that a response queue grew past its limit and was dropped."""
    entries_dropped: int = 0
    """Response entries thrown away by an overflow or a registration."""
    questions_sent: int = 0
    """Questions written to a callback stream."""
    questions_dropped: int = 0
    """Questions nobody was asked: the shim did not read in time, its stream ended, or it registered again."""
    answers_received: int = 0
    """Answers to questions, those that came too late included."""
    scheduling_states_sent: int = 0
    scheduling_states_dropped: int = 0
    """Scheduling states that the shim did not read."""
    preemption_notices_sent: int = 0
    """Notices and withdrawals of the periodic preemption."""
    preemption_notices_dropped: int = 0
    events_sent: int = 0
    events_dropped: int = 0
    """Events past the capacity of their interval, and those the shim did not read."""

    items_ignored: Counter[str] = field(default_factory=Counter)
    """Request entries that are never answered and had no effect, by cause
    (:class:`kornel.core.domain.reasons.Ignored`).
    """

    def as_dict(self) -> dict[str, int]:
        """Returns every number by name; of those that are kept by cause, the sum."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value.total() if isinstance(value, Counter) else value for name, value in values.items()}
