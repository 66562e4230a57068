"""Holds the record of reservations by age: how old an ask must be, how many there are, and the round under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from kornel.core.model.allocations import Allocation, AskGroup, LimitClaim, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.model.users import Account
from kornel.core.policies.claim_order import Dues
from kornel.core.state.options import RESERVATION_DELAY_NS, RESERVATION_PERCENT
from kornel.core.state.records.missing_shares import MissingShares


class ReservingRecord:
    """Keeps the settings and the state of reservations by age, which ``core/engine/scheduling`` makes."""

    __slots__ = (
        "aged", "asked", "at_limits", "candidates", "choose_at_ns", "choose_not_before_ns", "delay_ns", "due_ns",
        "dues", "lapsed", "left", "line", "looked_at", "not_before_ns", "owing", "percent", "review_after_ns",
        "reviewed", "saved", "shares", "short",
    )  # fmt: skip

    def __init__(self) -> None:
        self.delay_ns: int | None = RESERVATION_DELAY_NS
        """The age at which an ask without room may reserve a node; ``None``: never."""
        self.percent = RESERVATION_PERCENT
        """The percentage of nodes that may be kept free at the same time for asks that have waited; one node always
        may."""
        self.lapsed: dict[Node | Queue | Account, list[dict[int, int]]] = {}
        """The amounts that holders lacked on a node, or below a limit, when their claims lapsed, until something ends
        there. Others who would lack no less save nothing there."""
        self.at_limits: dict[LimitClaim, None] = {}
        """The claims on what comes free below limits."""
        self.short: dict[Queue | Account, tuple[Shape, ...]] = {}
        """The shapes for which too little is free below a limit, although something of what they lack is. Waiters of
        these shapes may begin to save there."""
        self.choose_at_ns: int | None = 0
        """The time of the next choice who saves below limits, if there are any such shapes; ``None``: there is one when
        something has changed."""
        self.choose_not_before_ns = 0
        """The earliest time for that choice. The pause between two choices grows with their cost."""
        self.asked: tuple[int, int, bool] = (0, 0, False)
        """The number of those whom choices have asked if the next one has to go on, the time at which the oldest of
        them that are too young may save, and whether something has changed meanwhile."""
        self.saved: dict[Reservation, None] = {}
        """The claims that come last: saved by age, or for asks that must run on a node and for which nobody leaves."""
        self.aged = 0
        """The number of those that are saved by age."""
        self.reviewed: tuple[int, ...] = ()
        """The numbers of changes at the last look at who may use saved room."""
        self.looked_at: dict[Node, int] = {}
        """The versions of the nodes without devices at that look."""
        self.owing: dict[str, list[bool]] = {}
        """By path, the queues of waiters and holders with a guarantee: by type, whether they held less at that look. By
        key, whether asks with a firm claim are owed something."""
        self.dues: Dues | None = None
        """The finder of who is owed a guarantee, as it was last used in this slice; ``None``: not yet."""
        self.review_after_ns = 0
        """The earliest time for the next such look."""
        self.due_ns: int | None = None
        """The time at which the next round begins; ``None``: none is needed."""
        self.not_before_ns = 0
        """The earliest time for the next round. The pause between rounds grows with their cost."""
        self.left: deque[AskGroup | Allocation] = deque()
        """The group that the round under way looks at, or the ask that was refused everywhere, if it has found one."""
        self.line: Iterator[AskGroup | Allocation] | None = None
        """The groups and asks that the round under way has yet to look at, in line; ``None``: no round is under way."""
        self.candidates: dict[Shape, deque[Node]] = {}
        """The nodes that the round under way has not tried yet, by shape, the best first."""
        self.shares = MissingShares()
        """The missing shares of nodes for the shapes of the latest rounds."""

    def most_saved(self, nodes: int) -> int:
        """Returns how many claims may be saved by age at the same time in a partition of so many *nodes*: one for each
        node of the configured percentage, but at least one."""
        return max(1, nodes * self.percent // 100)

    def more_may_be_saved(self, nodes: int, ended: int = 0) -> bool:
        """Tells whether another claim may be saved by age in a partition of so many *nodes*, once others have
        *ended*."""
        return self.aged - ended < self.most_saved(nodes)

    def has_lapsed(self, where: Node | Queue | Account, lacks: Mapping[int, int]) -> bool:
        """Tells whether the claim of somebody who lacked no more than *lacks*, by type, has lapsed there."""
        return any(
            all(lacks.get(t, 0) >= amount for t, amount in lacked.items()) for lacked in self.lapsed.get(where, ())
        )

    def call_round(self, at_ns: int = 0) -> None:
        """Schedules a round for *at_ns*, or for the end of the pause between rounds if that is later, unless one is due
        sooner."""
        at_ns = max(at_ns, self.not_before_ns)
        if self.due_ns is None or at_ns < self.due_ns:
            self.due_ns = at_ns
