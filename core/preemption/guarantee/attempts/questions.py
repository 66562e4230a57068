"""The gate at which refused attempts wait until something changes that the answer to their question depends on
(preemption.md B.1).

Equal asks of one leaf have the same question, so one answer serves all of them. It can only change if the amounts of
the ask's own queues change, if a node could offer more, or if more may be taken from a queue. Other changes do not
matter: a placement in a leaf below its guarantee, an exit from a node that is too small for the ask even without all
its victims, or asks of other queues.

This gate is not woken by each change, but looks at nodes and queues now and then, and finds those that have changed by
a comparison, so nothing can forget to announce them. Under constant change, a search that keeps failing is repeated
ever more rarely. After a quiet time, the first change repeats it at once. In doubt, the search is repeated: no change
that may help is ever missed (``tests/properties/test_refusals.py`` repeats it after every single change).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import chain, compress
from operator import attrgetter, lt, ne
from typing import Any, Final, TypeVar

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import PreemptionPolicyKind, PreemptWithin
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape, Vector
from kornel.core.preemption.plan import Refusal
from kornel.core.preemption.run_times import ends_of, is_impatient
from kornel.core.state.partition_state import PartitionState

FIRST_PAUSE_NS: Final = 10**9
LONGEST_PAUSE_NS: Final = 15 * 10**9
"""The longest pause between two searches for one question: the pause doubles while changes keep coming and the search
keeps failing."""
CHECK_NS: Final = 100 * 10**6
"""The least time between two looks at which questions may be repeated, equal to the idle interval of the scheduling
loop."""
CHECK_PER_QUESTION_NS: Final = 200_000
CHECK_PER_NODE_NS: Final = 20_000
"""A look at a node or a queue takes about a two-hundredth of this time, so that looks take half a percent of the time
at most, whatever the size of the cluster."""

_OWN_PATH: Final = frozenset(
    {Outcome.NO_GUARANTEE, Outcome.ASK_EXCEEDS_GUARANTEE, Outcome.NOT_UNDER_GUARANTEE, Outcome.FENCED_AT_LEAF}
)
"""Refusals that depend on the ask's own queues only, and are found without a search."""

Question = tuple[Queue, Shape, int, Allocation | Application | None, bool]
"""The key of a question: (leaf, shape, priority, ask, whether it has waited for so long that minimum run times keep
nobody back). Asks with the same key find the same victims. The ask itself is part of the key only if it has a
reservation, leaves out nodes of its own, or preempts together with its gang; its application, if law 3 kept back
tasks of that."""

PathAmounts = tuple[tuple[int, ...], ...]
"""The amounts of each queue on a path that has a guarantee or a max: what it holds net of victims, and what is claimed
in it."""

_Watched = TypeVar("_Watched", Node, Queue)

_version_of = attrgetter("version")
_amounts_of = attrgetter("used", "preempting", "claimed")


class RefusedQuestion:
    """The outcome of the last search for one question, and the asks that wait for a better answer."""

    __slots__ = ("asks", "doubtful", "pause_ns", "refusal", "standing", "tried_ns", "version")

    def __init__(self, refusal: Refusal, standing: PathAmounts, version: int, tried_ns: int, pause_ns: int) -> None:
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


class Changes:
    """The changes between two looks, as far as answers depend on them."""

    def __init__(self, moved: Collection[Queue], grown: Collection[Queue]) -> None:
        self.moved: Final = frozenset(moved)
        """The queues whose amounts held, leaving or promised have changed."""
        self.grown: Final = grown
        """The queues among them with a guarantee that may give up more than before, on any node."""
        self.lending = False
        """Tells whether somebody who saves room may have come to be owed no guarantee any more, so that it is lent."""
        self.willing = False
        """Tells whether somebody on a changed node may leave."""
        self.holders: Final[set[Allocation]] = set()
        """The asks with a reservation on a changed node that now could be large enough for them, as only they can count
        on their room there."""
        self.offers: Final[list[Vector]] = []
        """The most that each changed node can have free, if all its possible victims leave."""
        self._fits: Final[dict[Shape, bool]] = {}
        self._amounts_on_paths: Final[dict[Queue, PathAmounts | None]] = {}

    def may_differ(self, question: Question, known: RefusedQuestion) -> bool:
        """Tells whether *question* could get another answer than the *known* one."""
        leaf, shape, *_ = question
        refusal = known.refusal
        within = leaf.properties.preempt_within is not PreemptWithin.NONE  # Any task there that ends may matter.
        if within or refusal.cut_short or not self.holders.isdisjoint(known.asks):
            return True
        if leaf not in self._amounts_on_paths:
            self._amounts_on_paths[leaf] = None if self.moved.isdisjoint(leaf.lineage()) else amounts_on_path(leaf)
        standing = self._amounts_on_paths[leaf]
        if standing is not None and standing != known.standing:
            # A queue that has all of its guarantee is owed nothing before it holds less.
            less = map(lt, chain.from_iterable(standing), chain.from_iterable(known.standing))
            return refusal.outcome is not Outcome.NOT_UNDER_GUARANTEE or any(less)
        if refusal.outcome in _OWN_PATH:
            return False
        if self.lending or (refusal.anywhere and self.willing) or any(queue is not leaf for queue in self.grown):
            return True
        if shape not in self._fits:
            self._fits[shape] = any(_is_within(shape.pairs, amounts) for amounts in self.offers)
        return self._fits[shape]


class LastLook:
    """The state that answers depend on, as it was at the last look."""

    def __init__(self) -> None:
        self.rules: int | None = None
        """The number of the rules; ``None``: there was no look since nobody waited at the gate."""
        self._versions: dict[Node, int] = {}
        self._amounts: dict[Queue, tuple[Vector, ...]] = {}
        self._marks: dict[Queue, dict[int, int]] = {}
        """By queue and guaranteed type, the amount above the guarantee."""

    def find_changes(self, state: PartitionState, now_ns: int | None) -> Changes | None:
        """Returns what has changed since the last look; ``None``: anything may have. Whom a minimum run time protects
        at *now_ns* stays; ``None``: it may be that this matters to nobody."""
        moved = _find_changed(self._amounts, state.queues.values(), _amounts_of, _copy_amounts)
        touched = _find_changed(self._versions, state.nodes.values(), _version_of, _version_of)
        if state.rules != self.rules:
            self.rules = state.rules
            self._marks = {queue: _marks_of(queue) for queue in state.queues.values() if queue.guaranteed}
            return None
        changes = Changes(moved, [queue for queue in moved if queue.guaranteed and self._has_grown(queue)])
        savers = dict.fromkeys(claim.waiter.queue for claim in state.reserving.saved)
        above = (queue for saver in savers for queue in saver.lineage())
        changes.lending = any(queue.guaranteed for queue in above if queue in changes.moved)
        for node in touched:
            if node.schedulable:
                self._note_offer(node, changes, now_ns)
        return changes

    def _has_grown(self, queue: Queue) -> bool:
        """Tells whether *queue* may give up more of a type than at the last look, and moves its marks."""
        known, now = self._marks.get(queue), _marks_of(queue)
        self._marks[queue] = now
        return known is None or known.keys() != now.keys() or any(mark > known[t] for t, mark in now.items())

    def _note_offer(self, node: Node, changes: Changes, now_ns: int | None) -> None:
        """Notes in *changes* what *node* could have free for an ask if all allocations left that are not protected from
        every ask."""
        sums: dict[Queue, dict[int, int]] = {}
        for allocation in node.allocations.values():
            leaf = allocation.application.queue
            if self._may_go(allocation, leaf, now_ns):
                found = sums.get(leaf)
                if found is None:
                    found = sums[leaf] = {}
                for t, amount in allocation.shape.pairs:
                    found[t] = found.get(t, 0) + amount
        changes.willing = changes.willing or bool(sums)
        freed = [0] * len(node.capacity)
        for leaf, found in sums.items():
            marks = self._marks.get(leaf, {})
            for t, amount in found.items():
                freed[t] += min(amount, marks.get(t, amount))
        lent = () if node.claims is None else node.claims.list_saved()  # To somebody, perhaps.
        changes.offers.append(_sum_within(node.capacity, node.room_without(None, lent), freed))
        for claim in node.reservations.values():
            ask = claim.ask
            # The members of a gang count on what all of them hold together.
            in_unit = ask.group is not None and ask.group.is_unit
            own = _sum_within(node.capacity, node.room_without(claim), freed)
            if in_unit or _is_within(ask.shape.pairs, own):
                changes.holders.add(ask)

    def _may_go(self, allocation: Allocation, leaf: Queue, now_ns: int | None) -> bool:
        """Tells whether *allocation* might be a victim of some ask, judging by its state and *leaf*, its own, only."""
        if now_ns is not None and leaf.properties.min_runtime_most_ns and min(ends_of(allocation)) > now_ns:
            return False
        if allocation.preempted or allocation.released or allocation.spec.required_node:
            return False
        if leaf.properties.preemption_policy is PreemptionPolicyKind.DISABLED:
            return False
        marks = self._marks.get(leaf)
        return not marks or all(marks.get(t, amount) >= amount for t, amount in allocation.shape.pairs)


class QuestionGate:
    """The refused questions of one partition."""

    def __init__(self) -> None:
        self._known: dict[Question, RefusedQuestion] = {}
        self._last = LastLook()
        """The last look, replaced as a whole once nobody waits, so that a question to the core leaves it as it was."""
        self._seen = 0
        """The number of changes of the partition at the last look."""
        self._not_before_ns = 0
        self._later_ns: int | None = None
        """The earliest time at which a question that was put off at the last look may be repeated; ``None``: none
        was."""
        self._wakes_ns: int | None = None
        """The time at which a slice begins for the next look; ``None``: none is set."""

    @property
    def empty(self) -> bool:
        """Tells whether there is no question at all."""
        return not self._known

    def known_answer(self, ask: Allocation, version: int, now_ns: int) -> Refusal | None:
        """Returns the answer that another search for *ask* would give now; ``None``: a search is needed.

        *version*: the number of changes of the partition.
        """
        for question in _questions_of(ask, now_ns):
            known = self._known.get(question)
            if known is None or known.version != version:
                continue
            if known.refusal.protected and is_impatient(ask, now_ns) and not is_impatient(ask, known.tried_ns):
                continue
            known.asks[ask] = None
            return known.refusal
        return None

    def park_ask(self, ask: Allocation, refusal: Refusal, version: int, now_ns: int) -> None:
        """Makes *ask*, for which a search ended in *refusal*, wait for a change with all asks that have the same
        question.

        A new ask does not wait for the pause of the others, and does not change it.
        """
        question = _questions_of(ask, now_ns)[-1 if refusal.by_law_3 else 0]
        before = self._known.get(question)
        pause_ns, since_ns = FIRST_PAUSE_NS, now_ns
        waiting: dict[Allocation, None] = {}
        if before is not None:
            waiting = before.asks
            if now_ns < before.not_before_ns:
                pause_ns, since_ns = before.pause_ns, before.tried_ns
            elif refusal.outcome not in _OWN_PATH and now_ns <= before.tried_ns + 2 * before.pause_ns:
                pause_ns = min(2 * before.pause_ns, LONGEST_PAUSE_NS)
        known = self._known[question] = RefusedQuestion(
            refusal, amounts_on_path(ask.queue), version, since_ns, pause_ns
        )
        waiting[ask] = None
        known.asks = waiting

    def question_of(self, ask: Allocation) -> RefusedQuestion | None:
        """Returns the refused question that *ask* waits for; ``None``: none."""
        found = [self._known[question] for question in _ever_questions_of(ask) if question in self._known]
        return next((known for known in found if ask in known.asks), None)

    def forget_ask(self, ask: Allocation) -> None:
        """Stops *ask* from waiting for an answer."""
        for question in _ever_questions_of(ask):
            known = self._known.get(question)
            if known is not None:
                known.asks.pop(ask, None)
                if not known.asks:
                    self._drop_question(question)

    def keep_only(self, leaves: set[Queue]) -> None:
        """Drops the questions of all other leaves."""
        for question in [question for question in self._known if question[0] not in leaves]:
            self._drop_question(question)

    def clear(self) -> None:
        """Drops all questions; the caller has to make the waiting asks due."""
        self._known.clear()
        self._last = LastLook()

    def _drop_question(self, question: Question) -> None:
        del self._known[question]
        if not self._known:
            self._last = LastLook()

    def let_out(self, state: PartitionState, now_ns: int) -> list[Allocation]:
        """Returns the asks whose search may be repeated now; they wait here no more."""
        changed = self._has_changed(state)
        is_due = changed or (self._later_ns is not None and now_ns >= self._later_ns)
        if not is_due or now_ns < self._not_before_ns:
            return []
        pause_ns = CHECK_PER_QUESTION_NS * len(self._known) + CHECK_PER_NODE_NS * (len(state.nodes) + len(state.queues))
        self._not_before_ns = now_ns + CHECK_NS + pause_ns
        if changed:
            self.sort_out(state, now_ns)
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
                self._drop_question(question)
        return found

    def watch(self, state: PartitionState, now_ns: int) -> None:
        """Makes sure, as a slice ends, that changes from now on are seen, and sets the timer for the next look."""
        if not self._known:
            self._later_ns = None
            return
        if self._last.rules is None:
            # Changes that this slice made after the refusals are not told apart, so the first look doubts them.
            self.sort_out(state, now_ns)
        self.set_timer(state, now_ns)

    def set_timer(self, state: PartitionState, now_ns: int) -> None:
        """Makes sure that a slice begins for the next look, if one is needed."""
        when_ns = now_ns if self._has_changed(state) else self._later_ns
        if when_ns is None:
            return
        if when_ns <= now_ns:
            when_ns = max(now_ns + 1, self._not_before_ns)
        if self._wakes_ns is None or not now_ns < self._wakes_ns <= when_ns:
            self._wakes_ns = when_ns
            state.run_slice_at(when_ns)

    def sort_out(self, state: PartitionState, now_ns: int) -> None:
        """Determines which answers still hold after what has changed; the other questions are looked at next.

        One that was parked when something had changed since the last look is among them, as nothing says how the state
        then differs from now.
        """
        bound_ns = None if any(question[0].properties.max_wait_ns for question in self._known) else state.now_ns
        changes, version, seen = self._last.find_changes(state, bound_ns), state.changes, self._seen
        self._seen = version
        for question, known in self._known.items():
            if known.doubtful or known.version == version:
                continue
            if changes is None or known.version > seen or changes.may_differ(question, known):
                known.doubtful = True
                self._later_ns = now_ns
            else:
                known.version = version

    def _has_changed(self, state: PartitionState) -> bool:
        return bool(self._known) and state.changes != self._seen


def amounts_on_path(leaf: Queue) -> PathAmounts:
    """Returns the amounts on the path of *leaf* on which the guarantees, fences and quotas of its asks depend."""
    found: list[tuple[int, ...]] = []
    for queue in leaf.lineage():
        types = sorted({*queue.guaranteed, *(t for t, _ in queue.ceilings)})
        if types:
            found.append(tuple([queue.used[t] - queue.preempting[t] for t in types]))
            found.append(tuple([queue.claimed[t] for t in types]))
    return tuple(found)


def _find_changed(
    known: dict[_Watched, Any],
    present: Collection[_Watched],
    state_of: Callable[[_Watched], Any],
    copy_of: Callable[[_Watched], Any],
) -> list[_Watched]:
    """Returns those of *present* whose state is not the *known* one, which is brought up to date."""
    # Nearly all are as they were, so no step of the interpreter is spent on each.
    changed = list(compress(present, map(ne, map(state_of, present), map(known.get, present))))
    known.update(zip(changed, map(copy_of, changed), strict=True))
    if len(known) > len(present):
        for gone in known.keys() - present:
            del known[gone]
    return changed


def _copy_amounts(queue: Queue) -> tuple[Vector, ...]:
    return tuple(map(list.copy, _amounts_of(queue)))


def _marks_of(queue: Queue) -> dict[int, int]:
    """Returns, by guaranteed type, what *queue* holds above its guarantee; 0: nothing."""
    used, leaving = queue.used, queue.preempting
    return {t: max(0, used[t] - leaving[t] - amount) for t, amount in queue.guaranteed.items()}


def _sum_within(most: Vector, one: Vector, other: Vector) -> Vector:
    return [min(m, a + b) for m, a, b in zip(most, one, other, strict=True)]


def _is_within(pairs: Pairs, amounts: Vector) -> bool:
    """Tells whether *amounts*, by type index, hold *pairs*."""
    width = len(amounts)
    return all(t < width and amounts[t] >= amount for t, amount in pairs)


def _questions_of(ask: Allocation, now_ns: int) -> tuple[Question, ...]:
    """Returns the question of *ask* at *now_ns*; if victims within its leaf may serve it, with the one for its
    application behind it."""
    alike = ask.queue, ask.shape, ask.priority
    group = ask.group
    in_domain = ask.spec.topology is not None
    left_out = ask.stuck or ask.refused or ask.tried_last
    for_itself = in_domain or left_out or ask.reservation is not None or (group is not None and group.is_unit)
    if for_itself:
        return ((*alike, ask, False),)
    impatient = is_impatient(ask, now_ns)
    if ask.queue.properties.preempt_within is PreemptWithin.NONE:
        return ((*alike, None, impatient),)
    return (*alike, None, impatient), (*alike, ask.application, impatient)


def _ever_questions_of(ask: Allocation) -> list[Question]:
    """Returns every question that *ask* may have had: those that it shares with equal asks, before and after it has
    waited for long, and the one for itself."""
    alike = ask.queue, ask.shape, ask.priority
    found: list[Question] = [(*alike, None, False), (*alike, None, True), (*alike, ask, False)]
    if ask.queue.properties.preempt_within is not PreemptWithin.NONE:
        found += [(*alike, ask.application, False), (*alike, ask.application, True)]
    return found
