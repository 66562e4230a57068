"""Defines the counters of the service itself: plain numbers, which one thread writes and reports read."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Protocol

from kornel.core.domain.effects import Effect


class Durations:
    """Durations, counted by bounds. ``total``: the sum in seconds. ``counts``: the numbers of durations up to each
    bound, then of the longer ones."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Makes an empty histogram. *bounds*: seconds, ascending."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count *times* events that took *seconds* each."""
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times

    def cumulated_counts(self) -> Iterator[tuple[str, int]]:
        """Yields each bound as text, with the number of durations up to it; ``+Inf`` comes last."""
        return zip((*(f"{bound:g}" for bound in self.bounds), "+Inf"), accumulate(self.counts), strict=True)


@dataclass(slots=True)
class ServiceMetrics:
    """The counters since the start; those named ``live_`` or ``queued_`` are present values."""

    live_streams: int = 0
    """The open streams of any kind, bound or not, until their status has been sent."""
    streams_opened: int = 0
    streams_broken: int = 0
    """The streams that ended because the client disappeared or cancelled them."""
    streams_refused: int = 0
    """The streams that the core ended with an error status."""
    messages_received: int = 0
    messages_sent: int = 0
    entries_sent: int = 0
    commands_applied: int = 0
    commands_refused: int = 0
    engine_faults: int = 0
    """The exceptions inside the engine. Any number above 0 is a bug of the core."""
    slices: int = 0
    """The scheduling slices that were run."""
    preemption_decisions: int = 0
    group_lookups: int = 0
    """The number of times that a resolver was asked for the groups of a user; answers from the cache do not count."""
    group_lookups_failed: int = 0
    queued_entries: int = 0
    """The response entries that were not passed to a stream yet."""
    response_overflows: int = 0
    """The number of times that a response queue grew past its limit and was dropped."""
    entries_dropped: int = 0
    """The response entries that an overflow or a registration has dropped."""
    questions_sent: int = 0
    """The questions written to a callback stream."""
    questions_dropped: int = 0
    """The questions that were never sent, because the shim did not read in time, its stream ended, or it registered
    again."""
    answers_received: int = 0
    """The answers to questions, including late ones."""
    scheduling_states_sent: int = 0
    scheduling_states_dropped: int = 0
    """The scheduling states that the shim did not read."""
    preemption_notices_sent: int = 0
    """The notices of the periodic preemption, and withdrawals of notices, that were sent."""
    preemption_notices_dropped: int = 0
    events_sent: int = 0
    events_dropped: int = 0
    """The events beyond the capacity of their interval, and those that the shim did not read."""

    items_ignored: Counter[str] = field(default_factory=Counter)
    """The request entries without effect that are never answered, by cause
    (:class:`kornel.core.domain.reasons.Ignored`).
    """

    def as_dict(self) -> dict[str, int]:
        """Returns every number by name; for numbers by cause, the sum."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value.total() if isinstance(value, Counter) else value for name, value in values.items()}


class EffectObserver(Protocol):
    """Sees the effects of each command and each slice, in order. It is called between slices, so it has to be quick and
    must not wait."""

    def observe(self, effects: Sequence[Effect]) -> None:
        """Observe *effects*, which are shared and must not be changed."""


class CallingObserver:
    """An ``EffectObserver`` that passes the effects to a function."""

    def __init__(self, observe: Callable[[Sequence[Effect]], None]) -> None:
        self.observe = observe


class EngineTimer(Protocol):
    """Is notified how long the engine took. It has to be quick and must not wait."""

    def command_took(self, seconds: float) -> None:
        """Count a command that was applied."""

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """Counts a slice with *effects* effects, which observers have seen. *more* tells whether the cycle goes on with
        the next slice."""


class NoTimer:
    """A timer that counts nothing."""

    def command_took(self, seconds: float) -> None:
        """Does nothing."""

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """Does nothing."""
