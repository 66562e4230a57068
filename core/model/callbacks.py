"""The attached shim: what it answers and wants to hear, and every question still open (protocol.md 13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation

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

    __slots__ = ("ask", "decide", "decide_victims", "drop", "node_ids", "number", "partition")

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
        self.node_ids: Final = node_ids
        self.drop: Final = drop
        self.decide: Final = decide
        self.decide_victims: Final = decide_victims


class Callbacks:
    """The shim that is attached, if one is; shared by all partitions, so that numbers of questions are unique."""

    __slots__ = (
        "_number", "deadlines", "events", "now_ns", "open", "predicates", "preemption_notices",
        "preemption_predicates", "recording",
        "scheduling_states", "timeout_ns",
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
        self._number = 0

    @property
    def full(self) -> bool:
        """Tells whether no further question may be asked."""
        return len(self.open) >= MOST_OPEN

    def next_number(self) -> int:
        """Returns the number of the next question."""
        self._number += 1
        return self._number
