"""Refused attempts, by question: they are not repeated until something has changed that they depend on.

Equal asks of one leaf ask the same question, so one answer serves them all. An answer holds until something changes
that it depends on (:mod:`kornel.core.preemption.guarantee.changes`): what else comes and goes wakes nobody. Under
constant change a question that keeps failing is asked ever more rarely, so that it costs little; after a quiet time
the first change wakes it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.preemption.guarantee.changes import Changes, Standing, standing_of
from kornel.core.preemption.plan import Refusal

FIRST_PAUSE_NS: Final = 10**9
LONGEST_PAUSE_NS: Final = 15 * 10**9
"""Least time between two searches for one question; it doubles while changes keep coming and nothing comes of them."""
CHECK_NS: Final = 100 * 10**6
"""Least time between two looks at what may be asked again: the idle tick of the scheduling loop."""
CHECK_PER_QUESTION_NS: Final = 200_000
CHECK_PER_NODE_NS: Final = 20_000
"""A look takes about a two-hundredth of this, so that looking costs half a percent at most, however large all is."""

_OWN_PATH: Final = frozenset(
    {Outcome.NO_GUARANTEE, Outcome.ASK_EXCEEDS_GUARANTEE, Outcome.NOT_UNDER_GUARANTEE, Outcome.FENCED_AT_LEAF}
)
"""Refusals that hang on the ask's own queues alone."""

Question = tuple[Queue, Shape, int, Allocation | None]
"""(leaf, shape, priority, ask): asks that differ in none of these find the same victims. The last only where an ask has
room of its own to count on, or nodes of its own to look past, or asks together with its gang: it asks for itself."""


class RefusedQuestion:
    """The outcome of the last search for one question, and the asks that wait for a better answer."""

    __slots__ = ("asks", "doubtful", "pause_ns", "refusal", "standing", "tried_ns", "version")

    def __init__(self, refusal: Refusal, standing: Standing, version: int, tried_ns: int, pause_ns: int) -> None:
        self.refusal: Final = refusal
        self.standing: Final = standing
        """The state that the asks found on their own path."""
        self.version = version
        """Count of the partition's changes up to which the answer is known to hold."""
        self.doubtful = False
        """Something changed that the answer depends on."""
        self.tried_ns: Final = tried_ns
        """The time when the pause began."""
        self.pause_ns: Final = pause_ns
        self.asks: dict[Allocation, None] = {}

    @property
    def not_before_ns(self) -> int:
        """Returns when it may be asked again at the earliest."""
        return self.tried_ns + self.pause_ns


class Refusals:
    """The refused questions of one partition."""

    def __init__(self) -> None:
        self._known: dict[Question, RefusedQuestion] = {}
        self._seen = 0
        """Count of the partition's changes at the last look at what may be asked again."""
        self._not_before_ns = 0
        self._later_ns: int | None = None
        """The time when the first of those may be asked again that had to be put off at the last look."""

    def known_answer(self, ask: Allocation, version: int) -> Refusal | None:
        """Returns the answer that *ask* would get again now, without a search; ``None``: it has to be worked out.

        *version*: count of the partition's changes.
        """
        known = self._known.get(_question_of(ask))
        if known is None or known.version != version:
            return None
        known.asks[ask] = None
        return known.refusal

    def note_refusal(self, ask: Allocation, refusal: Refusal, version: int, now_ns: int) -> None:
        """Have *ask*, for which a search came to *refusal*, wait for a change with all that asked the same.

        An ask that is new asks without waiting for the others' pause, and leaves that as it is.
        """
        question = _question_of(ask)
        before = self._known.get(question)
        pause_ns, since_ns = FIRST_PAUSE_NS, now_ns
        waiting: dict[Allocation, None] = {}
        if before is not None:
            waiting = before.asks
            if now_ns < before.not_before_ns:
                pause_ns, since_ns = before.pause_ns, before.tried_ns
            elif now_ns <= before.tried_ns + 2 * before.pause_ns:
                pause_ns = min(2 * before.pause_ns, LONGEST_PAUSE_NS)
        standing = standing_of(ask.queue)
        known = self._known[question] = RefusedQuestion(refusal, standing, version, since_ns, pause_ns)
        waiting[ask] = None
        known.asks = waiting

    def forget_ask(self, ask: Allocation) -> None:
        """Have *ask* wait for an answer no more."""
        for question in _questions_of(ask):
            known = self._known.get(question)
            if known is not None:
                known.asks.pop(ask, None)
                if not known.asks:
                    del self._known[question]

    def asks_due(
        self, version: int, now_ns: int, look: Callable[[], Changes], nodes: int
    ) -> tuple[list[Allocation], int | None]:
        """Asks that may ask again now, and when to look the next time; ``None``: at the next change.

        *version*: count of the partition's changes. *look* finds out what they were, on that many *nodes*.
        """
        if not self.should_look(version) and (self._later_ns is None or now_ns < self._later_ns):
            return [], None
        if now_ns < self._not_before_ns:
            return [], self._not_before_ns
        self._not_before_ns = now_ns + CHECK_NS + CHECK_PER_QUESTION_NS * len(self._known) + CHECK_PER_NODE_NS * nodes
        if version != self._seen:
            self.sort_out(look(), version, now_ns)
        found: list[Allocation] = []
        self._later_ns = None
        for question, known in list(self._known.items()):
            if not known.doubtful:
                continue
            if known.not_before_ns > now_ns:
                if known.asks and (self._later_ns is None or known.not_before_ns < self._later_ns):
                    self._later_ns = known.not_before_ns
            elif known.asks:
                found += known.asks
                known.asks = {}
            elif now_ns > known.not_before_ns + known.pause_ns:
                del self._known[question]
        return found, self._later_ns

    def sort_out(self, changes: Changes, version: int, now_ns: int) -> None:
        """Find out which answers the *changes* leave as they are; the others are looked at next."""
        self._seen = version
        for question, known in self._known.items():
            if known.doubtful or known.version == version:
                continue
            if _may_differ(question, known, changes):
                known.doubtful = True
                self._later_ns = now_ns
            else:
                known.version = version

    @property
    def doubted(self) -> bool:
        """Tells whether some question waits only for its pause, or for the next look."""
        return self._later_ns is not None

    @property
    def empty(self) -> bool:
        """Tells whether there is no question at all."""
        return not self._known

    def should_look(self, version: int) -> bool:
        """Tells whether anything has changed since the last look at what may be asked again."""
        return bool(self._known) and version != self._seen

    @property
    def next_look_ns(self) -> int:
        """Returns when the next look is allowed."""
        return self._not_before_ns

    def keep_only(self, leaves: set[Queue]) -> None:
        """Forget what was asked in all other leaves."""
        self._known = {question: known for question, known in self._known.items() if question[0] in leaves}

    def clear(self) -> None:
        """Forget everything; whoever waits has to be made due by the caller."""
        self._known.clear()

    def question_of(self, ask: Allocation) -> RefusedQuestion | None:
        """Returns the refused question that *ask* waits for; ``None``: none."""
        found = [self._known[question] for question in _questions_of(ask) if question in self._known]
        return next((known for known in found if ask in known.asks), None)


def _may_differ(question: Question, known: RefusedQuestion, changes: Changes) -> bool:
    """Tells whether *question* could get another answer after *changes*."""
    leaf, shape, _, _ = question
    refusal = known.refusal
    if changes.everything or refusal.cut_short:
        return True
    if changes.holders and not changes.holders.isdisjoint(known.asks):
        return True
    standing = changes.new_standing(leaf)
    if standing is not None and standing != known.standing:
        return True
    if refusal.outcome in _OWN_PATH:
        return False
    return (refusal.anywhere and changes.willing) or changes.has_node_for(shape)


def _question_of(ask: Allocation) -> Question:
    shared, own = _questions_of(ask)
    group = ask.group
    for_itself = ask.stuck or ask.reservation is not None or (group is not None and group.is_unit)
    return own if for_itself else shared


def _questions_of(ask: Allocation) -> tuple[Question, Question]:
    """Returns what *ask* may have asked: the question of its equals, and the same for itself."""
    return (ask.queue, ask.shape, ask.priority, None), (ask.queue, ask.shape, ask.priority, ask)
