"""Waiting rooms of equal asks: who waits there for the same thing, and who of them would be tried first.

When there may be room again, only the first in order is worth trying, and the next one only if enough is left. So a
room keeps the groups in the order of the cycle: it is a tree of its own, with a branch for each queue and application
in which somebody waits there. Waking it costs the same however many wait (scheduling.md 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.model.applications import Application
from kornel.core.model.keyed_heap import KeyedHeap
from kornel.core.model.queues import Queue, exchange_priority

if TYPE_CHECKING:
    from kornel.core.model.allocations import AskGroup, Reservation
    from kornel.core.model.shapes import Shape
    from kornel.core.model.users import Account

BranchKey = Callable[["Branch"], tuple[Any, ...]]


class Branch:
    """A queue or an application, with those below it that wait in one room."""

    __slots__ = ("above", "groups", "member", "rank")

    def __init__(self, member: Queue | Application, above: QueueBranch | None) -> None:
        self.member = member
        self.above = above
        self.rank: float = NOTHING_WAITS
        """The rank that the queue or application would have if exactly these were left to try."""
        self.groups: tuple[AskGroup, ...] = ()
        """The groups of an application, in no order: nearly always there is one."""

    def mark_changed(self) -> None:
        """Note that the place of the branch among its siblings may have changed."""
        if self.above is not None:
            self.above.inner.marked[self] = None

    def review_rank(self) -> None:
        """Determine the rank of an application again, because its groups have changed."""
        self.set_rank(self.first_group().first_ask().turn_priority)

    def first_group(self) -> AskGroup:
        """Returns the group of an application whose turn is first."""
        groups = self.groups
        return groups[0] if len(groups) == 1 else min(groups, key=turn_of_group)

    def set_rank(self, rank: float) -> None:
        """Change the rank, and those above as far as they change."""
        before, above = self.rank, self.above
        if rank == before:
            return
        self.rank = rank
        if above is None:
            return
        above.inner.mark_changed(self)
        ranks = above.ranks
        if before == NOTHING_WAITS and rank in ranks:
            ranks[rank] += 1
        elif rank == NOTHING_WAITS and ranks.get(before, 0) > 1:
            ranks[before] -= 1
        else:
            exchange_priority(ranks, before, rank)
            above.refresh_rank()


class QueueBranch(Branch):
    """The branch of a queue."""

    __slots__ = ("inner", "ranks")

    def __init__(self, member: Queue, above: QueueBranch | None, key_of: BranchKey) -> None:
        super().__init__(member, above)
        self.inner: KeyedHeap[Branch] = KeyedHeap(key_of)
        """The branches of its children or applications, in order."""
        self.ranks: dict[float, int] = {}
        """The number of branches below it by rank."""

    def refresh_rank(self) -> None:
        """Compute the rank again, because those below, or its offset or fence, may have changed, and those above."""
        assert isinstance(self.member, Queue)
        self.set_rank(self.member.expose_rank(self.ranks))


def turn_of_group(group: AskGroup) -> tuple[int, ...]:
    """Returns the sort key of *group* among those of its application (scheduling.md 5.3)."""
    return (*group.head_order(), group.number)


class WaitingRoom:
    """The groups and reservations that wait for room for asks of one shape."""

    __slots__ = ("_key_of", "at_once", "awake", "branches", "gate", "groups", "shape")

    def __init__(self, shape: Shape, gate: Queue | Account | None, key_of: BranchKey) -> None:
        self._key_of = key_of
        self.shape: Final = shape
        self.gate: Final = gate
        """The queue, user or group below whose limit they wait for room; ``None``: on nodes."""
        self.at_once: dict[AskGroup | Reservation, None] = {}
        """The waiters who are all woken when there may be room: reservations, gangs, groups whose tries are counted."""
        self.groups: dict[AskGroup, Branch] = {}
        """The others, each with the branch of its application."""
        self.branches: dict[Queue, QueueBranch] = {}
        """The branches of queues."""
        self.awake = False
        """Tells whether the first of ``groups`` is tried in its turn."""

    def __len__(self) -> int:
        return len(self.at_once) + len(self.groups)

    def __iter__(self) -> Iterator[AskGroup | Reservation]:
        return chain(self.at_once, self.groups)

    def __contains__(self, waiter: object) -> bool:
        return waiter in self.groups or waiter in self.at_once

    def enter_group(self, group: AskGroup) -> None:
        """Add *group*, which takes its turn among the others."""
        application = group.application
        branch = self.branch_of(application)
        if branch is None:
            above = self._grow_queues(application.queue)
            branch = Branch(application, above)
            above.inner.add(branch)
            application.branches = (*application.branches, branch)
        self.groups[group] = branch
        branch.groups = (*branch.groups, group)
        branch.review_rank()

    def take_apart(self) -> None:
        """Drop everything, so that reference counting frees the branches, which refer to each other."""
        for branch in self.groups.values():
            branch.above = None
        for above in self.branches.values():
            above.inner.clear()
            above.above = None
        for known in (self.at_once, self.groups, self.branches):
            known.clear()

    def branch_of(self, member: Queue | Application) -> Branch | None:
        """Returns the branch of *member*, or ``None`` if nobody below it takes turns here."""
        if isinstance(member, Queue):
            return self.branches.get(member)
        above = self.branches.get(member.queue)
        if above is None:
            return None
        return next((branch for branch in member.branches if branch.above is above), None)

    def note_head(self, group: AskGroup) -> None:
        """Note that *group*, which takes its turn here, may begin with another ask than before."""
        branch = self.groups.get(group)
        if branch is not None:
            branch.review_rank()

    def discard(self, waiter: AskGroup | Reservation) -> None:
        """Remove *waiter* if it is there."""
        if waiter in self.at_once:
            del self.at_once[waiter]
            return
        branch = self.groups.pop(waiter, None)  # type: ignore[arg-type]
        if branch is None:
            return
        branch.groups = tuple(group for group in branch.groups if group is not waiter)
        if branch.groups:
            branch.review_rank()
            return
        application = branch.member
        assert isinstance(application, Application)
        application.branches = tuple(other for other in application.branches if other is not branch)
        self._drop_branch(branch)

    def _grow_queues(self, leaf: Queue) -> QueueBranch:
        """Returns the branch of *leaf*, which is made with those above as far as they are missing."""
        found = self.branches.get(leaf)
        if found is None:
            above = None if leaf.parent is None else self._grow_queues(leaf.parent)
            found = self.branches[leaf] = QueueBranch(leaf, above, self._key_of)
            leaf.branches[found] = None
            if above is not None:
                above.inner.add(found)
        return found

    def _drop_branch(self, branch: Branch) -> None:
        """Remove *branch*, in which nobody is left, and those above in which nobody is left then."""
        branch.set_rank(NOTHING_WAITS)
        above = branch.above
        if isinstance(branch, QueueBranch):
            assert isinstance(branch.member, Queue)
            del self.branches[branch.member], branch.member.branches[branch]
        if above is not None:
            above.inner.discard(branch)
            if not above.inner:
                self._drop_branch(above)
