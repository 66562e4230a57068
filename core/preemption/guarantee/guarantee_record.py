"""The memory of preemption for guarantees in a partition: attempts, refusals, and what may change their answers."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.preemption.guarantee.changes import ChangeWatch
from kornel.core.preemption.guarantee.prospects import KnownProspects
from kornel.core.preemption.guarantee.refusals import Refusals


class GuaranteeRecord:
    """Keeps what attempts of one partition leave for the next; :mod:`.drive` makes them."""

    __slots__ = (
        "attempts_left", "change_watch", "pass_began_ns", "prospects", "refusals", "refusals_looked_at_ns",
        "unit_attempts",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts_left: Final[dict[Queue, int]] = {}
        """The attempts that leaves have left in this pass; a leaf that is not listed has them all."""
        self.pass_began_ns = 0
        self.prospects: Final = KnownProspects()
        self.refusals: Final = Refusals()
        """Attempts that came to nothing and wait for a change."""
        self.change_watch: Final = ChangeWatch()
        """The state that they depend on, as it was when somebody last looked."""
        self.unit_attempts: Final[dict[Application, Any]] = {}
        """By application with a gang that tries to preempt, what its attempt has come to so far."""
        self.refusals_looked_at_ns: int | None = None
        """The time when a slice is to begin that looks at them; ``None``: none is set."""
