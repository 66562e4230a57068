"""The attached shim: which callbacks it serves, and every question that is still open (protocol.md 13)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kornel.core.domain.resources import Resources
    from kornel.core.model.allocations import Allocation

UNSETTLED: Final = -1
"""Marks a question that was asked while the last dependent placement may not yet have been in place at the shim, so
that no number of placements tells what the shim knew."""

MOST_OPEN: Final = 4_096
"""The most questions open at once; with that many, the shim is the slower side, and asks wait in their order
instead."""

Decide = Callable[[Mapping[str, str], int], None]
"""Called with the refusals, node ID to reason, and the time."""

DecideVictims = Callable[[int | None, int], None]
"""Called with the index of the last victim that has to go, ``None`` for never, -1 for no answer, and the time."""


class Inquiry:
    """An open question about one ask. Exactly one of *decide* and *decide_victims* is given.

    *drop* is called when no answer will come, or when the answer is no longer wanted.
    """

    __slots__ = (
        "ask", "awaited", "decide", "decide_victims", "drop", "judged_after", "moves", "node_ids", "number",
        "partition",
    )  # fmt: skip

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
        """The nodes asked about; for a question in line they are chosen when its turn comes."""
        self.judged_after = UNSETTLED
        """The number of dependent placements that the shim has in place when it judges the question."""
        self.moves = 0
        """The number of dependent placements and of their ends when the question was sent."""
        self.awaited: Allocation | None = None
        """The placement that the shim has in place when it answers, because the shim itself waits for it."""
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
        "_number", "asks_recorded", "awaits_placements", "deadlines", "dependent_asked", "dependent_depth",
        "dependent_moves", "dependent_placements", "events", "line", "now_ns", "open", "owed_by_ns",
        "placements_recorded", "predicates", "preemption_notices", "preemption_predicates", "recording",
        "removals_recorded", "scheduling_states", "settled_by_ns", "silent", "timeout_ns", "unsettled", "unsettled_in",
    )  # fmt: skip

    def __init__(self) -> None:
        self.predicates = False
        self.preemption_predicates = False
        self.scheduling_states = False
        self.events = False
        self.recording = False
        """Tells whether events are recorded, because the event history is switched on and has readers."""
        self.now_ns = 0
        """The time of the command or cycle under way, with which all events are recorded."""
        self.asks_recorded: list[str | Resources] | None = None
        self.placements_recorded: list[str | Resources] | None = None
        self.removals_recorded: list[str | int | Resources] | None = None
        """One of these has the values of the last recorded event, if that is about asks, placements or allocations
        that ended and further ones may be added to it. It is empty after a single ask."""
        self.preemption_notices = False
        self.timeout_ns = 0
        self.open: dict[int, Inquiry] = {}
        self.deadlines: list[tuple[int, int]] = []
        """A heap of (time, question). Answered questions are dropped when they come to the top."""
        self.line: deque[LinedUp] = deque()
        """Questions about asks that depend on other placements, in the order of their turns."""
        self.awaits_placements = False
        """Tells whether the shim itself waits for the placement that a question of the line names."""
        self.dependent_asked = 0
        """The number of the last question of the line that was asked; it may have been answered."""
        self.dependent_placements = 0
        """The number of asks placed so far that depend on other placements."""
        self.dependent_moves = 0
        """The number of those placements and of their ends so far."""
        self.unsettled: Allocation | None = None
        """The last dependent ask that was placed, if the shim may not have it in place yet."""
        self.dependent_depth = 0
        """The index of the node of the last dependent placement among the nodes that were asked about."""
        self.unsettled_in = ""
        """The partition of the ``unsettled`` ask."""
        self.settled_by_ns = 0
        """The time from which the ``unsettled`` ask counts as in place at the shim."""
        self.owed_by_ns = 0
        """The time by which the shim has to answer the question of the line that is open, or to acknowledge the
        ``unsettled`` placement; until then, asks wait behind those in line."""
        self.silent = False
        """Tells whether that time has passed, so that nobody waits behind them."""
        self._number = 0

    @property
    def full(self) -> bool:
        """Tells whether no further question may be asked."""
        return len(self.open) >= MOST_OPEN

    def end_recording(self) -> None:
        """Has further events about asks and placements recorded by themselves, because something else comes before
        them."""
        self.asks_recorded = self.placements_recorded = self.removals_recorded = None

    def next_number(self) -> int:
        """Returns the number of the next question."""
        self._number += 1
        return self._number
