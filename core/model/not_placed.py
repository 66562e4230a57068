"""Defines the answer for an ask that cannot be placed now, and counts the reasons, which are constant texts
(scheduling.md 17)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kornel.core.domain.reasons import Unschedulable

if TYPE_CHECKING:
    from kornel.core.model.queues import Queue
    from kornel.core.model.users import Account


_NOT_BY_VICTIMS: Final = (Unschedulable.USER_QUOTA, Unschedulable.APPLICATION_LIMIT)


class NotPlaced(NamedTuple):
    """The reason why an ask has no place now; if a limit keeps it back, *queue* or *account* is the one that has the
    limit."""

    reason: Unschedulable
    queue: Queue | None = None
    account: Account | None = None

    @property
    def preemption_may_help(self) -> bool:
        """Tells whether preemption may help. Victims make room in queues and on nodes, but not under limits of users or
        on applications."""
        return self.reason not in _NOT_BY_VICTIMS


KEPT: Final = 32
"""The most texts kept for each ask; if a shim keeps answering with new ones, the oldest are dropped."""

LONGEST_SHARED: Final = 1_000
"""The longest text of a shared entry, which outlives its asks: a text about a thousand types may have a megabyte."""


class Failure(NamedTuple):
    """One reason, with the number of times that it occurred."""

    message: str
    times: int
    last_ns: int


Failures = tuple[Failure, ...]
"""The reasons of one ask, each once, the most recent last. It is a tuple because most asks have one or none."""


def add_failure(known: Failures, message: str, now_ns: int, times: int = 1) -> Failures:
    """Returns *known* with *message* counted so many *times* more."""
    if not known and times == 1 and len(message) <= LONGEST_SHARED:
        return _share_first(message, now_ns)
    before = sum([each.times for each in known if each.message == message])
    others = [each for each in known if each.message != message] if before else known
    return (*others[1 - KEPT :], Failure(message, before + times, now_ns))


@lru_cache(maxsize=256)
def _share_first(message: str, now_ns: int) -> Failures:
    """Returns the same object for all that are refused at once, so that each of many asks does not keep its own."""
    return (Failure(message, 1, now_ns),)
