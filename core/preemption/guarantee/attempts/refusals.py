"""Keeps refused attempts by question, so that they are not repeated until something that they depend on has changed.

Equal asks of one leaf have the same question, so one answer serves all of them, and holds until something changes on
which it depends (:mod:`.changes`). Under constant change, a search that keeps failing is repeated ever more rarely.
After a quiet time, the first change repeats it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import lt
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.preemption.guarantee.attempts.changes import Changes, Standing, standing_of
from kornel.core.preemption.plan import Refusal

FIRST_PAUSE_NS: Final = 10**9
LONGEST_PAUSE_NS: Final = 15 * 10**9
"""The longest pause between two searches for one question: the pause doubles while changes keep coming and the search
keeps failing."""
CHECK_NS: Final = 100 * 10**6
"""The least time between two looks at which questions may be repeated, equal to the idle interval of the scheduling
loop."""
CHECK_PER_QUESTION_NS: Final = 200_000
CHECK_PER_NODE_NS: Final = 20_000
"""A look at a node takes about a two-hundredth of this time, so that looks take half a percent of the time at most,
whatever the size of the cluster."""

_OWN_PATH: Final = frozenset(
    {Outcome.NO_GUARANTEE, Outcome.ASK_EXCEEDS_GUARANTEE, Outcome.NOT_UNDER_GUARANTEE, Outcome.FENCED_AT_LEAF}
)
"""Refusals that depend on the ask's own queues only, and are found without a search."""

Question = tuple[Queue, Shape, int, Allocation | None]
"""The key of a question: (leaf, shape, priority, ask). Asks with the same key find the same victims. The ask itself is
part of the key only if it has a reservation, leaves out nodes of its own, or preempts together with its gang."""


class RefusedQuestion:
    """The outcome of the last search for one question, and the asks that wait for a better answer."""

    __slots__ = ("asks", "doubtful", "pause_ns", "refusal", "standing", "tried_ns", "version")

    def __init__(self, refusal: Refusal, standing: Standing, version: int, tried_ns: int, pause_ns: int) -> None:
        self.refusal: Final = refusal
        self.standing: Final = standing
        """The amounts on the path of the asks at the last search."""
        self.version = version
        """The number of changes of the partition up to which the answer is known to hold."""
        self.doubtful = False
        """Tells whether something that the answer depends on has changed."""
        self.tried_ns: Final = tried_ns
        """The time when the pause began."""
        self.pause_ns: Final = pause_ns
        self.asks: dict[Allocation, None] = {}

    @property
    def not_before_ns(self) -> int:
        """The earliest time at which the question may be repeated; all its asks are then looked at."""
        walk_ns = CHECK_PER_QUESTION_NS * len(self.asks) if self.refusal.outcome in _OWN_PATH else 0
        return self.tried_ns + self.pause_ns + walk_ns


class Refusals:
    """The refused questions of one partition."""

    def __init__(self) -> None:
        self._known: dict[Question, RefusedQuestion] = {}
        self._seen = 0
        """The number of changes of the partition at the last look."""
        self._not_before_ns = 0
        self._later_ns: int | None = None
        """The earliest time at which a question that was put off at the last look may be repeated; ``None``: none
        was."""

    def known_answer(self, ask: Allocation, version: int) -> Refusal | None:
        """Returns the answer that another search for *ask* would give now; ``None``: a search is needed.

        *version*: the number of changes of the partition.
        """
        known = self._known.get(_question_of(ask))
        if known is None or known.version != version:
            return None
        known.asks[ask] = None
        return known.refusal

    def note_refusal(self, ask: Allocation, refusal: Refusal, version: int, now_ns: int) -> None:
        """Makes *ask*, for which a search ended in *refusal*, wait for a change with all asks that have the same
        question.

        A new ask does not wait for the pause of the others, and does not change it.
        """
        question = _question_of(ask)
        before = self._known.get(question)
        pause_ns, since_ns = FIRST_PAUSE_NS, now_ns
        waiting: dict[Allocation, None] = {}
        if before is not None:
            waiting = before.asks
            if now_ns < before.not_before_ns:
                pause_ns, since_ns = before.pause_ns, before.tried_ns
            elif refusal.outcome not in _OWN_PATH and now_ns <= before.tried_ns + 2 * before.pause_ns:
                pause_ns = min(2 * before.pause_ns, LONGEST_PAUSE_NS)
        standing = standing_of(ask.queue)
        known = self._known[question] = RefusedQuestion(refusal, standing, version, since_ns, pause_ns)
        waiting[ask] = None
        known.asks = waiting

    def forget_ask(self, ask: Allocation) -> None:
        """Stops *ask* from waiting for an answer."""
        for question in _questions_of(ask):
            known = self._known.get(question)
            if known is not None:
                known.asks.pop(ask, None)
                if not known.asks:
                    del self._known[question]

    def asks_due(
        self, version: int, now_ns: int, look: Callable[[], Changes], nodes: int
    ) -> tuple[list[Allocation], int | None]:
        """Returns the asks whose search may be repeated now, and when to look the next time; ``None``: at the next
        change.

        *version*: the number of changes of the partition. *look* finds out what they were; *nodes* is the number of
        nodes that it looks at.
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
        """Determines which answers still hold after *changes*; the other questions are looked at next."""
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
        """Tells whether a question only waits for its pause to end or for the next look."""
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
        """The time from which the next look is allowed."""
        return self._not_before_ns

    def keep_only(self, leaves: set[Queue]) -> None:
        """Drops the questions of all other leaves."""
        self._known = {question: known for question, known in self._known.items() if question[0] in leaves}

    def clear(self) -> None:
        """Drops all questions; the caller has to make the waiting asks due."""
        self._known.clear()

    def question_of(self, ask: Allocation) -> RefusedQuestion | None:
        """Returns the refused question that *ask* waits for; ``None``: none."""
        found = [self._known[question] for question in _questions_of(ask) if question in self._known]
        return next((known for known in found if ask in known.asks), None)


def _may_differ(question: Question, known: RefusedQuestion, changes: Changes) -> bool:
    """Tells whether *question* could get another answer after *changes*."""
    leaf, shape, _, _ = question
    refusal = known.refusal
    if changes.everything or refusal.cut_short or not changes.holders.isdisjoint(known.asks):
        return True
    standing = changes.new_standing(leaf)
    if standing is not None and standing != known.standing:
        # A queue that has all of its guarantee is owed nothing before it holds less.
        less = map(lt, chain.from_iterable(standing), chain.from_iterable(known.standing))
        return refusal.outcome is not Outcome.NOT_UNDER_GUARANTEE or any(less)
    if refusal.outcome in _OWN_PATH:
        return False
    return changes.has_grown_beside(leaf) or (refusal.anywhere and changes.willing) or changes.has_node_for(shape)


def _question_of(ask: Allocation) -> Question:
    shared, own = _questions_of(ask)
    group = ask.group
    in_domain = ask.spec.topology is not None
    left_out = ask.stuck or ask.refused or ask.tried_last
    for_itself = in_domain or left_out or ask.reservation is not None or (group is not None and group.is_unit)
    return own if for_itself else shared


def _questions_of(ask: Allocation) -> tuple[Question, Question]:
    """Returns the two possible questions of *ask*: the one that it shares with equal asks, and the one for itself."""
    return (ask.queue, ask.shape, ask.priority, None), (ask.queue, ask.shape, ask.priority, ask)
