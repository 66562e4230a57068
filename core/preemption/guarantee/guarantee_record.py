"""Holds what preemption for guarantees remembers in a partition: attempts, prospects, and the gate of refused asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption.guarantee.attempts.questions import QuestionGate
from kornel.core.preemption.guarantee.search.prospects import KnownProspects
from kornel.core.state.records.kind_records import KindRecord

ATTEMPTS_PER_LEAF: Final = 10
"""The number of attempts that a leaf has in one pass (preemption.md B.1)."""
PASS_NS: Final = 100 * 10**6
"""The time after which a leaf that has used up its attempts gets new ones, equal to the idle interval of the scheduling
loop."""


class GuaranteeRecord(KindRecord):
    """Keeps what attempts in one partition leave for later ones; :mod:`.attempts.drive` makes the attempts."""

    __slots__ = ("attempts_left", "gate", "pass_began_ns", "prospects", "protected", "put_off", "settled_at")

    def __init__(self) -> None:
        self.attempts_left: Final[dict[Queue, int]] = {}
        """The number of attempts that each leaf has left in this pass; a leaf that is missing has all of them."""
        self.pass_began_ns = 0
        self.prospects = KnownProspects()
        self.protected: Final[dict[Node, int]] = {}
        """The nodes on which a minimum run time has kept somebody back, each with the time when the next one there
        ends, at which refused asks look at the node again."""
        self.put_off: Final[dict[Allocation, None]] = {}
        """The asks whose attempts are put off, because a question is being worked on, or a max being enforced."""
        self.gate: Final = QuestionGate()
        """The gate at which refused attempts wait for a change."""
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
        self.gate.forget_ask(ask)

    def forget_asks(self) -> None:
        """Drops all answers."""
        self.gate.clear()

    def forget_unused(self, queues: Iterable[Queue]) -> None:
        """Drops the prospects of empty leaves, and the answers where nobody waits."""
        self.prospects.keep_only({queue for queue in queues if queue.applications})
        self.gate.keep_only({queue for queue in queues if queue.leaf and queue.waiting})
