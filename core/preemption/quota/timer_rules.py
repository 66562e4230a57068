"""Decides when the enforcement of a lowered max starts after a change of configuration (preemption.md D.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kornel.core.domain.settings import QuotaTimer
from kornel.core.model.queues import Queue


class Terms(NamedTuple):
    """The terms of a queue: its own max by type index (a missing type is unlimited), and its delay (0: never
    enforced)."""

    max: Mapping[int, int]
    delay_ns: int


def terms_of(queue: Queue) -> Terms:
    """Returns the max and the delay of *queue*, which decide when it is enforced."""
    return Terms(queue.max, queue.properties.quota_preemption_delay_ns)


def next_start(queue: Queue, before: Terms, start_ns: int | None, now_ns: int) -> int | None:
    """Returns when *queue*, which had the terms *before* until *now_ns*, is to be enforced; ``None``: not at all.

    It must not be called for a queue that is being enforced now.
    """
    now = terms_of(queue)
    if not now.delay_ns or not over_max(queue):
        return None
    reset = queue.properties.quota_preemption_timer is QuotaTimer.RESET
    anew = now_ns + now.delay_ns
    if now.max == before.max:
        if now.delay_ns == before.delay_ns:
            return start_ns
        if reset:
            return anew
        if start_ns is None:
            return None if before.delay_ns else anew
    elif _is_tightened(before.max, now.max):
        if reset or start_ns is None:
            return anew
    elif reset or start_ns is None:
        return None
    return start_ns + now.delay_ns - before.delay_ns


def over_max(queue: Queue) -> bool:
    """Tells whether *queue* holds more of a type than its own max. Victims that are leaving count only if the timer is
    ``adjust``."""
    used = queue.used
    if queue.properties.quota_preemption_timer is QuotaTimer.ADJUST:
        return any(used[t] > most for t, most in queue.max.items())
    return any(used[t] - queue.preempting[t] > most for t, most in queue.max.items())


def _is_tightened(before: Mapping[int, int], now: Mapping[int, int]) -> bool:
    return any(t not in before or most < before[t] for t, most in now.items())


def is_late(queue: Queue, due_ns: int, now_ns: int) -> bool:
    """Tells whether minimum run times keep nobody back any more from enforcing the max of *queue*, which was due at
    *due_ns*; 0: it was not yet."""
    wait_ns = queue.properties.max_wait_ns
    return bool(wait_ns and due_ns) and now_ns >= due_ns + wait_ns
