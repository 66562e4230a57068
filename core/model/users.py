"""Defines the accounts of users and groups in a queue: what they may hold there, what they hold, and which asks and
applications their limits keep back.

An :class:`Account` exists only where a limit applies, so a partition without limits has none and costs nothing
(config.md 10.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kornel.core.model.orders.keyed_heap import KeyedHeap
from kornel.core.model.shapes import Pairs, Shape, Vector

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation, LimitClaim
    from kornel.core.model.applications import Application
    from kornel.core.model.orders.waiting_rooms import WaitingRoom
    from kornel.core.model.queues import Queue

WILDCARD: Final = "*"


class Limit(NamedTuple):
    """The limit of one user or group in one queue and below.

    max               by type index; absent: not limited, 0: none of this type
    max_applications  the most applications that hold something at once; 0: not limited
    """

    max: Mapping[int, int]
    max_applications: int


class QueueLimits(NamedTuple):
    """The limits that the configuration states for one queue, by name or ``*``; groups are in the order of the
    configuration."""

    users: Mapping[str, Limit]
    groups: Mapping[str, Limit]


NO_LIMITS: Final = QueueLimits(MappingProxyType({}), MappingProxyType({}))


class AccountKind(StrEnum):
    """The kinds of accounts: of a user or group in a queue, and, in a leaf, the share of a user and that of the
    originators of all."""

    USER = "user"
    GROUP = "group"
    SHARE = "share of user"
    ORIGINATORS = "originators"


NO_AMOUNTS: Final[Mapping[int, int]] = MappingProxyType({})


class Account:
    """One user, or one group, in one queue and below.

    A user that is limited only by ``*`` has an account of its own. The group ``*`` has one account for all applications
    for which it was chosen (config.md 10.2).
    """

    __slots__ = (
        "applications", "claimants", "claimed", "held_back", "holders", "kind", "limit", "max_applications", "name",
        "parked", "queue", "saved", "saving", "used",
    )  # fmt: skip

    def __init__(self, kind: AccountKind, name: str, queue: Queue, limit: Limit, width: int) -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.queue: Final = queue
        self.limit: Final = limit
        self.max_applications: Final = limit.max_applications
        self.used: Vector = [0] * width
        """The amounts held by its applications, placeholders included."""
        self.claimed: Vector = [0] * width
        """The amounts of its asks for which somebody leaves or has left, and which are not placed yet."""
        self.saved: Vector = [0] * width
        """The amounts of its asks for which room is saved on nodes because they have waited long."""
        self.claimants: dict[Application, int] = {}
        """The number of such asks by application."""
        self.applications: dict[Application, None] = {}
        """All applications whose usage is booked here."""
        self.holders: dict[Application, None] = {}
        """The applications that hold an allocation."""
        self.parked: dict[Shape, WaitingRoom] = {}
        """The ask groups that this limit keeps back, by shape."""
        self.saving: LimitClaim | None = None
        """The claim that saves what comes free below this limit."""
        self.held_back: dict[Queue, KeyedHeap[Application]] = {}
        """The applications that may not start because too many hold something, by leaf."""

    @property
    def max(self) -> Mapping[int, int]:
        """The amounts that the user or group may hold, by type index, as of a queue; types without limit are left
        out."""
        return self.limit.max

    @property
    def counts_holders(self) -> bool:
        """Tells whether this is the limit of a user or group, below which room comes free as much as victims leave."""
        return self.kind in (AccountKind.USER, AccountKind.GROUP)

    def count_leaving(self, t: int) -> int:
        """Returns how much of type *t* tasks that preemption has asked to leave hold here."""
        tasks = [task for application in self.holders for task in application.allocations.values() if task.preempted]
        return sum([task.shape.amounts.get(t, 0) for task in tasks])

    def counts_ask(self, _ask: Allocation) -> bool:
        """Tells whether the amounts of an ask or allocation of its applications are counted here."""
        return True

    def admits(self, pairs: Pairs, others: Mapping[int, int] = NO_AMOUNTS) -> bool:
        """Tells whether *pairs* fit under this limit beside what is used and claimed, and what *others* take as well. A
        type that is above its limit has no room; a type without limit always has."""
        most, used, claimed = self.limit.max, self.used, self.claimed
        for t, amount in pairs:
            ceiling = most.get(t)
            if ceiling is not None and used[t] + claimed[t] + others.get(t, 0) + amount > ceiling:
                return False
        return True

    def has_room(self, pairs: Pairs, others: Mapping[int, int] = NO_AMOUNTS) -> bool:
        """Tells whether *pairs* fit under this limit beside what is used, and what *others* take as well. This is the
        check for an ask that has a claim itself."""
        most, used = self.limit.max, self.used
        return all(t not in most or used[t] + others.get(t, 0) + amount <= most[t] for t, amount in pairs)

    def count_fitting(self, pairs: Pairs, count: int, others: Mapping[int, int]) -> int:
        """Returns how many of *count* asks of *pairs* fit beside what is used and claimed, and what *others* take."""
        for t, amount in pairs:
            most = self.max.get(t)
            if most is not None and amount:
                count = min(count, max(0, most - self.used[t] - self.claimed[t] - others.get(t, 0)) // amount)
        return count

    def could_hold(self, pairs: Pairs) -> bool:
        """Tells whether *pairs* would fit if nobody held anything here."""
        return all(amount <= self.limit.max.get(t, amount) for t, amount in pairs)

    def count_taken(self, t: int) -> int:
        """Returns how much of type *t* is used or claimed."""
        return self.used[t] + self.claimed[t]

    def find_headroom(self) -> dict[int, int]:
        """Returns the amount left of each limited type; negative above the limit."""
        return {t: most - self.used[t] for t, most in self.max.items()}

    def open(self) -> bool:
        """Tells whether one more application may begin to use resources. Whoever has a claim counts as using some."""
        return not self.max_applications or self.count_applications() < self.max_applications

    def is_used_by(self, application: Application) -> bool:
        """Tells whether *application* uses resources or has a claim, so that its limit does not keep it back."""
        return application in self.holders or application in self.claimants

    def count_applications(self) -> int:
        """Returns the number of applications that hold something or have a claim."""
        return len(self.holders.keys() | self.claimants.keys()) if self.claimants else len(self.holders)

    def book_claim(self, application: Application, pairs: Pairs) -> None:
        """Count *pairs*, for which somebody leaves, as claimed by *application*."""
        for t, amount in pairs:
            self.claimed[t] += amount
        self.claimants[application] = self.claimants.get(application, 0) + 1

    def unbook_claim(self, application: Application, pairs: Pairs) -> None:
        """End one claim of *application*, to *pairs*."""
        for t, amount in pairs:
            self.claimed[t] -= amount
        left = self.claimants[application] - 1
        if left:
            self.claimants[application] = left
        else:
            del self.claimants[application]

    def charge_pairs(self, pairs: Pairs) -> None:
        """Add *pairs* to the usage."""
        for t, amount in pairs:
            self.used[t] += amount

    def refund_pairs(self, pairs: Pairs) -> None:
        """Subtract *pairs* from the usage."""
        for t, amount in pairs:
            self.used[t] -= amount

    def __repr__(self) -> str:
        return f"Account({self})"

    def __str__(self) -> str:
        return f"{self.kind} {self.name} in {self.queue.path}"


class FreedSlot(NamedTuple):
    """Notes that an application no longer holds anything at *account*, so that another one may start."""

    account: Account
