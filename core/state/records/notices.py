"""The open notices to applications that may lose allocations, which the monitor keeps between its rounds.

A notice goes to one application and has an entry for each of its allocations at risk. Rules: preemption.md E.6, E.7.
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
        """The number of rounds in which the allocation was selected, including the round of its notice."""


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
        """The application's answer; ``None``: it has not answered."""


class Taken(NamedTuple):
    """The last loss of a leaf: something was taken from it for the asks ``served``, after which it held ``held`` by
    type.

    ``futile``: the number of times in a row that the leaf got everything back while an ask of ``served`` still waited.
    """

    at_ns: int
    held: dict[int, int]
    futile: int
    served: dict[Allocation, None]


class Notices:
    """All notices of one partition, and the round under way. ``settings`` is ``None`` if the policy is off."""

    __slots__ = (
        "checkpoints", "consultation", "entries", "generation", "held", "lacking", "left_out_ns", "now_ns", "observed",
        "of_application", "offered", "open", "places", "rounds", "settings", "slices", "steps", "taken",
    )  # fmt: skip

    def __init__(self) -> None:
        self.settings: Any = None
        """:class:`kornel.core.preemption.monitor.selection.settings.MonitorSettings` in force."""
        self.generation = 0
        """Counts changes of the settings: timers of an earlier generation do nothing."""
        self.rounds = 0
        """The number of rounds that have selected victims."""
        self.steps: Generator[int, None, None] | None = None
        """The round under way."""
        self.consultation: Any = None
        """:class:`kornel.core.preemption.monitor.consulting.Consultation` of the round under way, while the shim is
        asked about its places."""
        self.left_out_ns: int | None = None
        """The time of the round that was left out because nothing could come of it; no further round has a time until
        something waits. ``None``: the next round has its time, or is under way."""
        self.slices = 0
        """The number of slices in which a round has done something."""
        self.now_ns = 0
        """The time of the last slice in which a round did something."""
        self.entries: Final[dict[str, Entry]] = {}
        """The entries by the allocation's key."""
        self.open: Final[dict[int, Notice]] = {}
        """The notices that still have entries, by number."""
        self.of_application: Final[dict[Application, dict[int, Notice]]] = {}
        self.held: Final[dict[Application, dict[int, int]]] = {}
        """The amounts that each application with open notices is counted as holding, beginning with those at its
        notice.

        What was released since because of a notice or a decision of the core is subtracted, as are credits. If an
        application holds less than this, it has released other allocations by itself.
        """
        self.offered: Final[dict[str, Notice]] = {}
        """Keys that applications offer instead of those in a notice, until the next round has considered them."""
        self.checkpoints: Final[dict[str, int]] = {}
        """The times when allocations last saved their work, by key, as reported by their applications."""
        self.places: tuple[Any, ...] = ()
        """The places that the last round planned: :class:`kornel.core.preemption.monitor.plan.Place`."""
        self.observed: dict[str, tuple[str, ...]] = {}
        """The allocations by leaf that the last round would have notified, had it not only observed."""

        self.lacking: dict[str, dict[int, int]] = {}
        """The amounts that each leaf was short of at the last round, by type."""
        self.taken: Final[dict[str, Taken]] = {}
        """The last loss of each leaf."""

    @property
    def have_use_for_round(self) -> bool:
        """Tells whether a round could change anything even if no ask waits: notices are open, or what the last round
        found is out of date."""
        return bool(self.open or self.entries or self.offered or self.places or self.lacking or self.observed)

    @property
    def decision(self) -> str:
        """Returns the name of the present round, which is unique within one generation of settings."""
        return f"round {self.rounds} of {self.generation}"

    def add(self, notice: Notice) -> None:
        """Add *notice* with its entries."""
        self.open[notice.number] = notice
        self.of_application.setdefault(notice.application, {})[notice.number] = notice

    def drop_entry(self, entry: Entry) -> None:
        """Remove *entry*, which is no longer at risk; a notice without entries is removed too."""
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
        """Remove *allocation*, which has ended, or credit it to its application if others of it are at risk."""
        self.offered.pop(allocation.key, None)
        self.checkpoints.pop(allocation.key, None)
        entry = self.entries.get(allocation.key)
        held = self.held.get(allocation.application)
        if held is not None and (entry is not None or by_us):
            for t, amount in allocation.shape.pairs:
                held[t] = held.get(t, 0) - amount
        if entry is not None:
            self.drop_entry(entry)
