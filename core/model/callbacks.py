"""The attached shim: what it answers and wants to hear, and every question still open (protocol.md 13)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation

UNSETTLED: Final = -1
"""Asked while the shim may not have had a dependent placement in place, so that no number of them says what it knew."""

MOST_OPEN: Final = 4_096
"""Questions open at once; with so many the shim is the slower side, and asks wait in their order instead."""

Decide = Callable[[Mapping[str, str], int], None]
"""Called with the refusals, node ID to reason, and the time."""

DecideVictims = Callable[[int | None, int], None]
"""Called with the index of the last victim that has to go, ``None`` for never, and the time."""


class Inquiry:
    """An open question about one ask. Exactly one of *decide* and *decide_victims* is given.

    *drop*: what to do when nobody will answer, or nobody wants the answer any more.
    """

    __slots__ = ("ask", "decide", "decide_victims", "drop", "judged_after", "node_ids", "number", "partition")

    def __init__(
        self,
        number: int,
        partition: str,
        ask: Allocation,
        node_ids: tuple[str, ...],
        drop: Callable[[], None],
        decide: Decide | None = None,
        decide_victims: DecideVictims | None = None,
    ) -> None:
        self.number: Final = number
        self.partition: Final = partition
        self.ask: Final = ask
        self.node_ids = node_ids
        """The nodes asked about; a question in line names them when its turn comes."""
        self.judged_after = UNSETTLED
        """The dependent placements that were made before it was asked, all of which the shim had in place by then."""
        self.drop: Final = drop
        self.decide: Final = decide
        self.decide_victims: Final = decide_victims


class LinedUp(NamedTuple):
    """A question that waits for its turn; *put* asks it."""

    inquiry: Inquiry
    put: Callable[[int], None]


class Callbacks:
    """The shim that is attached, if one is; shared by all partitions, so that numbers of questions are unique."""

    __slots__ = (
        "_number", "deadlines", "dependent_asked", "dependent_depth", "dependent_placements", "events", "line",
        "now_ns", "open", "predicates", "preemption_notices", "preemption_predicates", "recording",
        "scheduling_states", "settled_by_ns", "timeout_ns", "unsettled", "unsettled_in",
    )  # fmt: skip

    def __init__(self) -> None:
        self.predicates = False
        self.preemption_predicates = False
        self.scheduling_states = False
        self.events = False
        self.recording = False
        """Somebody wants the event history, and it is not switched off."""
        self.now_ns = 0
        """Time of the command or cycle under way, which is that of everything recorded."""
        self.preemption_notices = False
        self.timeout_ns = 0
        self.open: dict[int, Inquiry] = {}
        self.deadlines: list[tuple[int, int]] = []
        """(when, question), a heap; answered ones are dropped when they come up."""
        self.line: deque[LinedUp] = deque()
        """Questions about asks that depend on other placements, in the order of their turns."""
        self.dependent_asked = 0
        """The last question of the line that was asked; it may be open no more."""
        self.dependent_placements = 0
        """The number of such asks that were placed."""
        self.unsettled: Allocation | None = None
        """The last one of them, if the shim may not have it in place yet."""
        self.dependent_depth = 0
        """The place, among the nodes that were asked about, of the one that the last of them was placed on."""
        self.unsettled_in = ""
        """The partition of that last one."""
        self.settled_by_ns = 0
        """The time from which on it counts as in place."""
        self._number = 0

    @property
    def full(self) -> bool:
        """Tells whether no further question may be asked."""
        return len(self.open) >= MOST_OPEN

    def next_number(self) -> int:
        """Returns the number of the next question."""
        self._number += 1
        return self._number
