"""Holds what preemption for guarantees remembers in a partition: attempts, refusals, and the state that these depend
on."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.gang_units import UnitId
from kornel.core.model.queues import Queue
from kornel.core.preemption.guarantee.attempts.changes import ChangeWatch
from kornel.core.preemption.guarantee.attempts.refusals import Refusals
from kornel.core.preemption.guarantee.search.prospects import KnownProspects


class GuaranteeRecord:
    """Keeps what attempts in one partition leave for later ones; :mod:`.attempts.drive` makes the attempts."""

    __slots__ = (
        "attempts_left", "change_watch", "pass_began_ns", "prospects", "put_off", "refusals",
        "refusals_looked_at_ns", "settled_at", "unit_attempts",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts_left: Final[dict[Queue, int]] = {}
        """The number of attempts that each leaf has left in this pass; a leaf that is missing has all of them."""
        self.pass_began_ns = 0
        self.prospects: Final = KnownProspects()
        self.put_off: Final[dict[Allocation, None]] = {}
        """The asks whose attempts are put off until the question that is being worked on has its answer."""
        self.refusals: Final = Refusals()
        """The refused attempts that wait for a change."""
        self.change_watch: Final = ChangeWatch()
        """The state that refusals depend on, as it was at the last look."""
        self.unit_attempts: Final[dict[UnitId, Any]] = {}
        """By gang that tries to preempt as a unit, the state of its attempt."""
        self.refusals_looked_at_ns: int | None = None
        """The time at which the next slice looks at the refusals; ``None``: none is set."""

        self.settled_at: int | None = None
        """The number of changes of the partition after which a round left nothing to try; ``None``: it stopped
        early."""

    def is_searching(self, unit_id: UnitId, marks: tuple[int, ...]) -> bool:
        """Tells whether a search for the gang *unit_id* is under way that began at *marks* of the partition."""
        attempt = self.unit_attempts.get(unit_id)
        return attempt is not None and attempt.search is not None and attempt.search.marks == marks
