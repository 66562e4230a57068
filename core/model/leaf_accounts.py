"""Defines the accounts that the properties of a leaf open: the share of each user, and that of originators.

They are limits such as those of users and groups, but what they allow follows from the amounts of the leaf, and for
users from how many of them ask for something. Rules: config.md 10.5, 10.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import floor, inf
from typing import TYPE_CHECKING, Final, NamedTuple

from kornel.core.model.shapes import Pairs
from kornel.core.model.users import NO_AMOUNTS, Account, AccountKind, Limit

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation
    from kornel.core.model.queues import Queue


class OriginatorAccount(Account):
    """The originators of all applications in one leaf (config.md 10.5). ``limit`` holds the amounts of a limit that is
    none in percent."""

    __slots__ = ()

    def counts_ask(self, ask: Allocation) -> bool:
        """Tells whether *ask* is an originator."""
        return ask.spec.originator

    @property
    def max(self) -> Mapping[int, int]:
        """The amounts that originators may hold: as configured, or a part of the max that the leaf has or inherits."""
        part = self.queue.properties.originator_max
        if not isinstance(part, Fraction):
            return self.limit.max
        return {t: floor(amount * part) for t, amount in self.queue.fair_max}

    def admits(self, pairs: Pairs, others: Mapping[int, int] = NO_AMOUNTS) -> bool:
        """Tells whether *pairs* of an originator fit beside what is used and claimed, and what *others* take as well,
        or it would be the only one."""
        return self._find_room(pairs, [a + b for a, b in zip(self.used, self.claimed, strict=True)], others)

    def has_room(self, pairs: Pairs, others: Mapping[int, int] = NO_AMOUNTS) -> bool:
        """Does the same without what is claimed."""
        return self._find_room(pairs, self.used, others)

    def _find_room(self, pairs: Pairs, held: Sequence[int], others: Mapping[int, int]) -> bool:
        if not any(amount + others.get(t, 0) for t, amount in enumerate(held)):
            return True
        most = self.max
        return all(held[t] + others.get(t, 0) + amount <= most.get(t, inf) for t, amount in pairs)

    def count_fitting(self, pairs: Pairs, count: int, others: Mapping[int, int]) -> int:
        """Returns how many of *count* originators of *pairs* fit; one always does if there is none."""
        return max(super().count_fitting(pairs, count, others), min(count, int(self.admits(pairs, others))))

    def could_hold(self, pairs: Pairs) -> bool:
        """Tells whether *pairs* of one originator would fit if there were no other, which is always so."""
        return True

    def __str__(self) -> str:
        return f"{self.kind} in {self.queue.path}"


class ShareAccount(Account):
    """One user in one leaf in which users share the capacity, as the queues of YARN let them (config.md 10.6).

    The capacity is the guarantee of the leaf, or the max that it has or inherits where it has none.
    """

    __slots__ = ("asks",)

    def __init__(self, kind: AccountKind, name: str, queue: Queue, limit: Limit, width: int) -> None:
        super().__init__(kind, name, queue, limit, width)
        self.asks = 0
        """The number of asks of the user that wait in the leaf; a user with some is active."""

    def note_asks(self, change: int) -> None:
        """Counts *change* more asks that wait."""
        before, self.asks = self.asks, self.asks + change
        self.queue.active_users += bool(self.asks) - bool(before)

    def find_part(self) -> tuple[int, int]:
        """Returns the part of the capacity that the user may hold while others ask for some, as numerator and
        denominator: an equal one, but no smaller one than configured."""
        active, least = self.queue.active_users + (not self.asks), self.queue.properties.user_minimum
        return (1, active) if active * least < 100 else (min(least, 100), 100)

    @property
    def max(self) -> Mapping[int, int]:
        """The amounts that the user may hold now: a part of the capacity, or of what the leaf holds if that is more,
        and no more than the capacity times the factor."""
        queue, (part, whole), factor = self.queue, self.find_part(), self.queue.properties.user_factor
        capacity = self._find_capacity()
        if part == whole:
            return {} if factor is None else {t: floor(amount * factor) for t, amount in capacity.items()}
        found = {t: -(-max(amount, queue.used[t]) * part // whole) for t, amount in capacity.items()}
        return found if factor is None else {t: min(found[t], floor(n * factor)) for t, n in capacity.items()}

    def admits(self, pairs: Pairs, others: Mapping[int, int] = NO_AMOUNTS) -> bool:
        """Tells whether the user may hold *pairs* more beside what is used and claimed, and what *others* take."""
        used, claimed, queue = self.used, self.claimed, self.queue
        return self._find_room(
            pairs,
            lambda t: used[t] + claimed[t] + others.get(t, 0),
            lambda t: queue.used[t] + others.get(t, 0),
        )

    def has_room(self, pairs: Pairs, others: Mapping[int, int] = NO_AMOUNTS) -> bool:
        """Does the same without what is claimed."""
        used, queue = self.used, self.queue
        return self._find_room(pairs, lambda t: used[t] + others.get(t, 0), lambda t: queue.used[t] + others.get(t, 0))

    def _find_room(self, pairs: Pairs, held: Callable[[int], int], in_queue: Callable[[int], int]) -> bool:
        (part, whole), factor, capacity = self.find_part(), self.queue.properties.user_factor, self._find_capacity()
        for t, amount in pairs:
            most = capacity.get(t)
            if not amount or most is None:
                continue
            own = held(t)
            if factor is not None and own + amount > most * factor.numerator // factor.denominator:
                return False
            if part == whole or not own or own + amount <= -(-most * part // whole):
                continue
            # What is idle beyond the capacity is for whoever holds no more than this part of what all hold.
            if in_queue(t) + amount <= most or own * whole > in_queue(t) * part:
                return False
        return True

    def count_fitting(self, pairs: Pairs, count: int, others: Mapping[int, int]) -> int:
        """Returns how many of *count* asks of *pairs* fit now; one more may fit once these are placed."""
        return max(super().count_fitting(pairs, count, others), min(count, int(self.admits(pairs, others))))

    def could_hold(self, pairs: Pairs) -> bool:
        """Tells whether the user could hold *pairs* if nobody held anything: no factor is in the way."""
        factor, capacity = self.queue.properties.user_factor, self._find_capacity()
        return factor is None or all(t not in capacity or n <= floor(capacity[t] * factor) for t, n in pairs)

    def _find_capacity(self) -> dict[int, int]:
        return {**dict(self.queue.fair_max), **self.queue.guaranteed}


class MoreShares(NamedTuple):
    """Notes that users may hold more of *leaf*, because it holds more, or because fewer of them ask for something."""

    leaf: Queue


def make_account(kind: AccountKind, name: str, queue: Queue, limit: Limit, width: int) -> Account:
    """Returns a new account of *kind*, for *width* resource types."""
    return _CLASSES.get(kind, Account)(kind, name, queue, limit, width)


_CLASSES: Final[Mapping[AccountKind, type[Account]]] = {
    AccountKind.SHARE: ShareAccount,
    AccountKind.ORIGINATORS: OriginatorAccount,
}
