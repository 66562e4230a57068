"""Open notices to applications that may lose allocations: the memory of the monitor between its rounds.

A notice goes to one application and covers some of its allocations, the entries. Rules: preemption.md E.6, E.7.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation
    from kornel.core.model.applications import Application


class Entry:
    """An allocation at risk. It is taken in the first round at or after ``deadline_ns`` that selects it again."""

    __slots__ = (
        "allocation",
        "deadline_ns",
        "first_round",
        "notice",
        "notified_ns",
        "times",
        "wait_ns",
    )

    def __init__(
        self, allocation: Allocation, notice: Notice, notified_ns: int, wait_ns: int, first_round: int
    ) -> None:
        self.allocation: Final = allocation
        self.notice: Final = notice
        self.notified_ns: Final = notified_ns
        self.wait_ns: Final = wait_ns
        self.deadline_ns: Final = notified_ns + wait_ns
        self.first_round: Final = first_round
        self.times = 1
        """The number of rounds in which it was selected, the one of its notice included."""


class Notice:
    """A notice to one application, with its allocations at risk."""

    __slots__ = ("accepted", "application", "deadline_ns", "entries", "number", "round")

    def __init__(self, number: int, application: Application, round_number: int, deadline_ns: int) -> None:
        self.number: Final = number
        self.application: Final = application
        self.round: Final = round_number
        self.deadline_ns: Final = deadline_ns
        self.entries: Final[dict[str, Entry]] = {}
        """The entries still at risk, by key, in the order in which they were selected."""
        self.accepted: bool | None = None
        """The application's answer; ``None``: none."""


class Taken(NamedTuple):
    """The last loss of a leaf, and what has come of it. Something was taken from a leaf that held ``held`` by type, net
    of victims on their way out, for ``served``.

    ``futile``: how often in a row it has had everything back while an ask it was taken for still waited.
    """

    at_ns: int
    held: dict[int, int]
    futile: int
    served: dict[Allocation, None]


class Notices:
    """All notices of one partition, and the round under way. *settings* ``None``: the policy is off."""

    __slots__ = (
        "checkpoints", "entries", "generation", "held", "lacking", "now_ns", "observed", "of_application", "offered",
        "open", "places", "rounds", "settings", "slices", "steps", "taken",
    )  # fmt: skip

    def __init__(self) -> None:
        self.settings: Any = None
        """:class:`kornel.core.preemption.monitor.settings.MonitorSettings` in force."""
        self.generation = 0
        """Counts changes of the settings: timers of an earlier generation do nothing."""
        self.rounds = 0
        """Rounds that selected, ever."""
        self.steps: Generator[int, None, None] | None = None
        """The round under way."""
        self.slices = 0
        """The number of slices in which a round did something, ever."""
        self.now_ns = 0
        """Time of the last of them."""
        self.entries: Final[dict[str, Entry]] = {}
        """The entries by the allocation's key."""
        self.open: Final[dict[int, Notice]] = {}
        """Notices with entries left, by number."""
        self.of_application: Final[dict[Application, dict[int, Notice]]] = {}
        self.held: Final[dict[Application, dict[int, int]]] = {}
        """The amounts by application with open notices, as held when it was notified.

        Without what has left since as asked or by our decision, and what it has credit for already; it holds less as
        far as it released others on its own.
        """
        self.offered: Final[dict[str, Notice]] = {}
        """Keys that applications named in exchange for what a notice lists, until the next round has looked at them."""
        self.checkpoints: Final[dict[str, int]] = {}
        """When allocations last saved their work, by key, as far as their applications said so."""
        self.places: tuple[Any, ...] = ()
        """The places that the last round planned: :class:`kornel.core.preemption.monitor.plan.Place`."""
        self.observed: dict[str, tuple[str, ...]] = {}
        """The allocations by leaf that the last round would have notified, had it not only observed."""

        self.lacking: dict[str, dict[int, int]] = {}
        """The amounts by leaf and type that it should have held more when the last round looked."""
        self.taken: Final[dict[str, Taken]] = {}
        """The last decisions by leaf that something was taken from."""

    @property
    def decision(self) -> str:
        """Returns a name that the parts of one round have in common, and no two rounds of one generation of
        settings."""
        return f"round {self.rounds} of {self.generation}"

    def add(self, notice: Notice) -> None:
        """Add *notice* with its entries."""
        self.open[notice.number] = notice
        self.of_application.setdefault(notice.application, {})[notice.number] = notice

    def drop_entry(self, entry: Entry) -> None:
        """Remove *entry*, which is no longer at risk; its notice goes with its last one."""
        notice = entry.notice
        key = entry.allocation.key
        if self.entries.get(key) is entry:
            del self.entries[key]
        notice.entries.pop(key, None)
        if not notice.entries and notice.number in self.open:
            del self.open[notice.number]
            theirs = self.of_application[notice.application]
            del theirs[notice.number]
            if not theirs:
                del self.of_application[notice.application]
                self.held.pop(notice.application, None)

    def allocation_left(self, allocation: Allocation, *, by_us: bool) -> None:
        """Remove *allocation*, or credit it to an application that was to give up others."""
        self.offered.pop(allocation.key, None)
        self.checkpoints.pop(allocation.key, None)
        entry = self.entries.get(allocation.key)
        held = self.held.get(allocation.application)
        if held is not None and (entry is not None or by_us):
            for t, amount in allocation.shape.pairs:
                held[t] = held.get(t, 0) - amount
        if entry is not None:
            self.drop_entry(entry)
