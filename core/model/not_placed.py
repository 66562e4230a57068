"""The answer for an ask that has no place now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kornel.core.domain.reasons import Unschedulable

if TYPE_CHECKING:
    from kornel.core.model.queues import Queue
    from kornel.core.model.users import Account


class NotPlaced(NamedTuple):
    """The reason why an ask has no place now; *queue*, or *account* of a user or group, is the one whose limit keeps it
    back."""

    reason: Unschedulable
    queue: Queue | None = None
    account: Account | None = None

    @property
    def preemption_may_help(self) -> bool:
        """Victims make room in queues and on nodes, not within what a user, or an application count, is limited to."""
        return self.reason is not Unschedulable.USER_QUOTA and self.reason is not Unschedulable.APPLICATION_LIMIT
