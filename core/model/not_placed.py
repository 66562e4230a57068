"""The answer for an ask that has no place now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kornel.core.domain.reasons import Unschedulable

if TYPE_CHECKING:
    from kornel.core.model.queues import Queue
    from kornel.core.model.users import Account


_NOT_BY_VICTIMS: Final = (Unschedulable.USER_QUOTA, Unschedulable.APPLICATION_LIMIT, Unschedulable.NO_FITTING_DOMAIN)


class NotPlaced(NamedTuple):
    """The reason why an ask has no place now; *queue*, or *account* of a user or group, is the one whose limit keeps it
    back."""

    reason: Unschedulable
    queue: Queue | None = None
    account: Account | None = None

    @property
    def preemption_may_help(self) -> bool:
        """Victims make room in queues and on nodes, not within what a user, or an application count, is limited to; nor
        for one member in a domain where all of its group need room."""
        return self.reason not in _NOT_BY_VICTIMS
