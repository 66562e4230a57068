"""Defines the answer for an ask that cannot be placed now."""

from __future__ import annotations

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
