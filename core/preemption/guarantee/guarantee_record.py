"""Holds what preemption for guarantees remembers in a partition: attempts, refusals, and the state that these depend
on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.preemption.guarantee.attempts.changes import ChangeWatch
from kornel.core.preemption.guarantee.attempts.refusals import Refusals
from kornel.core.preemption.guarantee.search.prospects import KnownProspects
from kornel.core.state.records.kind_records import KindRecord

ATTEMPTS_PER_LEAF: Final = 10
"""The number of attempts that a leaf has in one pass (preemption.md B.1)."""
PASS_NS: Final = 100 * 10**6
"""The time after which a leaf that has used up its attempts gets new ones, equal to the idle interval of the scheduling
loop."""


class GuaranteeRecord(KindRecord):
    """Keeps what attempts in one partition leave for later ones; :mod:`.attempts.drive` makes the attempts."""

    __slots__ = (
        "attempts_left", "change_watch", "pass_began_ns", "prospects", "put_off", "refusals",
        "refusals_looked_at_ns", "settled_at",
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
        self.refusals_looked_at_ns: int | None = None
        """The time at which the next slice looks at the refusals; ``None``: none is set."""

        self.settled_at: int | None = None
        """The number of changes of the partition after which a round left nothing to try; ``None``: it stopped
        early."""

    def next_pass_ns(self, leaf: Queue, now_ns: int) -> int | None:
        """Returns when *leaf*, whose attempts are used up, gets new ones; ``None``: it has some or gets them now."""
        again_ns = self.pass_began_ns + PASS_NS
        return again_ns if now_ns < again_ns and self.attempts_left.get(leaf, ATTEMPTS_PER_LEAF) <= 0 else None

    def note_attempt(self, leaf: Queue) -> None:
        """Notes that an ask of *leaf* makes an attempt in this pass."""
        self.attempts_left[leaf] = self.attempts_left.get(leaf, ATTEMPTS_PER_LEAF) - 1

    def begin_pass(self, now_ns: int) -> None:
        """Renews the attempts of every leaf, at most once in :data:`PASS_NS`."""
        if now_ns - self.pass_began_ns >= PASS_NS:
            self.pass_began_ns = now_ns
            self.attempts_left.clear()

    def forget_ask(self, ask: Allocation) -> None:
        """Drops the answer that *ask* waits for."""
        self.refusals.forget_ask(ask)

    def forget_asks(self) -> None:
        """Drops all answers."""
        self.refusals.clear()

    def forget_unused(self, queues: Iterable[Queue]) -> None:
        """Drops the prospects of empty leaves, and the answers where nobody waits."""
        self.prospects.keep_only({queue for queue in queues if queue.applications})
        self.refusals.keep_only({queue for queue in queues if queue.leaf and queue.waiting})
