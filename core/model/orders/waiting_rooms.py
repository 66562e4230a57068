"""Waiting rooms of equal asks: who waits there for the same thing, and who of them would be tried first.

When there may be room again, only the first in order is worth trying, and the next one only if enough is left. So a
room keeps its groups in the order of the cycle, in a tree of its own with a branch for each queue below which somebody
waits. Waking it costs the same however many wait (scheduling.md 4.1).

Queues and applications know the rooms, but nothing in a room refers back to it, so that it is freed when it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, pairwise, takewhile
from typing import TYPE_CHECKING, Any, Final

from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.model.orders.keyed_heap import SORTED_AT_ONCE, KeyedHeap

if TYPE_CHECKING:
    from kornel.core.model.allocations import AskGroup, Reservation
    from kornel.core.model.applications import Application
    from kornel.core.model.queues import Queue
    from kornel.core.model.shapes import Shape

TurnKey = Callable[[Mapping[Any, float], Any], tuple[Any, ...]]
"""Returns the sort key of a queue or application among its siblings, with its rank from a mapping."""


class Branch:
    """The children (or applications) of a queue below which somebody waits in a room."""

    __slots__ = ("_key_of", "groups", "orders", "ranks", "withheld")

    def __init__(self, key_of: TurnKey) -> None:
        self.ranks: dict[Any, float] = {}
        """The rank that each child (or application) would have if exactly those in the room were left to try."""
        self.orders: dict[float, KeyedHeap[Any]] = {}
        """The order of those of each rank."""
        self.withheld: dict[Queue, None] = {}
        """The children in none of the orders, because nobody below them may be tried for now."""
        self._key_of = partial(key_of, self.ranks)
        self.groups: dict[Application, AskGroup | tuple[AskGroup, ...]] = {}
        """The group of each application of a leaf, or groups in no order: nearly always there is one."""

    def first_group(self, application: Application) -> AskGroup:
        """Returns the group of *application* whose turn is first."""
        groups = self.groups[application]
        return min(groups, key=turn_of_group) if isinstance(groups, tuple) else groups

    def groups_of(self, application: Application) -> tuple[AskGroup, ...]:
        """Returns the groups of *application*, in no order."""
        groups = self.groups[application]
        return groups if isinstance(groups, tuple) else (groups,)

    def set_rank(self, member: Any, rank: float, *, withheld: bool = False) -> bool:
        """Change the rank of *member* to *rank*, and whether it is *withheld*; with ``NOTHING_WAITS``, remove it.
        Returns whether it had another one, or was tried and is not, or the other way round."""
        before, was_withheld = self.ranks.get(member, NOTHING_WAITS), member in self.withheld
        if rank == before and withheld is was_withheld:
            return False
        if was_withheld:
            del self.withheld[member]
        elif before != NOTHING_WAITS:
            self.orders[before].discard(member)
            if not self.orders[before]:
                del self.orders[before]
        if rank == NOTHING_WAITS:
            del self.ranks[member]
            return True
        self.ranks[member] = rank
        if withheld:
            self.withheld[member] = None
            return True
        order = self.orders.get(rank)
        if order is None:
            order = self.orders[rank] = KeyedHeap(self._key_of)
        order.add(member)
        order.sort_many()
        return True

    def first_orders(self, *, by_priority: bool) -> list[KeyedHeap[Any]]:
        """Returns the orders in one of which the first of all is: where ranks count, that of the highest one."""
        if len(self.orders) <= 1 or not by_priority:
            return list(self.orders.values())
        # Queues in which a gang is repaired stand among others of the same priority.
        highest = max(self.orders)
        return [self.orders[rank] for rank in (highest, highest // 1) if rank in self.orders]

    def has_smaller(self, share_of: Callable[[Any], Any], share: Any, least: float) -> bool:
        """Tells whether one of them whose rank is at least *least* has a smaller share than *share*. By shares, which
        *share_of* returns, those of the same rank are sorted."""
        for rank, order in self.orders.items():
            # Queues in which a gang is repaired are sorted otherwise, and are few.
            firsts = order if rank % 1 else (order.first_member(),)
            if rank >= least and any(share_of(first) < share for first in firsts):
                return True
        return False


def is_asleep(group: AskGroup) -> bool:
    """Tells whether *group* waits in a room and is not about to be tried, in its turn or otherwise."""
    room = group.parked_at
    return room is not None and not (isinstance(room, WaitingRoom) and room.awake and group in room.groups)


def turn_of_group(group: AskGroup) -> tuple[int, ...]:
    """Returns the sort key of *group* among those of its application (scheduling.md 5.3)."""
    return (*group.head_order(), group.number)


class ClassedLine:
    """Groups by class, and those of each class in line, so that it costs nothing to leave out whole classes."""

    __slots__ = ("_class_of", "_key_of", "_orders", "classes")

    def __init__(
        self, class_of: Callable[[AskGroup], tuple[float, ...]], key_of: Callable[[AskGroup], tuple[int, ...]]
    ) -> None:
        self._class_of = class_of
        self._key_of = key_of
        self.classes: dict[AskGroup, tuple[float, ...]] = {}
        """The class of each group."""
        self._orders: dict[tuple[float, ...], KeyedHeap[AskGroup]] = {}

    def add(self, group: AskGroup) -> None:
        """Add *group*, or find its place again."""
        found = self._class_of(group)
        if self.classes.get(group, found) != found:
            self.discard(group)
        self.classes[group] = found
        order = self._orders.get(found)
        if order is None:
            order = self._orders[found] = KeyedHeap(self._key_of)
        order.add(group)
        order.sort_many()

    def mark_changed(self, group: AskGroup) -> None:
        """Note that the place of *group* may have changed; unknown groups are ignored."""
        if group in self.classes:
            self.add(group)

    def discard(self, group: AskGroup) -> None:
        """Remove *group* if it is there."""
        found = self.classes.pop(group, None)
        if found is not None:
            self._orders[found].discard(group)
            if not self._orders[found]:
                del self._orders[found]

    def list_before(self, key: tuple[int, ...], is_wanted: Callable[[tuple[float, ...]], bool]) -> list[AskGroup]:
        """Returns those of the classes that are wanted who stand before *key*, the first class first."""
        found: list[AskGroup] = []
        for order in [self._orders[each] for each in sorted(self._orders) if is_wanted(each)]:
            order.sort_marked()
            found += [group for _, group in takewhile(lambda entry: entry[0] < key, order.walk_members())]
        return found


class WaitingRoom:
    """The groups and reservations that wait for room for asks of one shape."""

    __slots__ = (
        "_key_of",
        "at_once",
        "awake",
        "branches",
        "chances",
        "groups",
        "last_chance_ns",
        "line",
        "set_back",
        "shape",
    )

    def __init__(self, shape: Shape, key_of: TurnKey) -> None:
        self._key_of = key_of
        self.shape: Final = shape
        self.at_once: dict[AskGroup | Reservation, None] = {}
        """The waiters who are all woken when there may be room: reservations, and groups whose tries are counted."""
        self.groups: dict[AskGroup, int] = {}
        """The others, who take turns, each with ``chances`` as it was when it came."""
        self.branches: dict[Queue, Branch] = {}
        """The places of those who take turns, by queue on the path of any of them."""
        self.awake = False
        """Tells whether the first of ``groups`` is tried in its turn."""
        self.chances = 0
        """The number of times that it was woken and went to sleep again before all in it were served."""
        self.last_chance_ns = 0
        """The time when it last went to sleep again."""
        self.set_back: dict[Queue, None] = {}
        """The leaves of which nobody is tried for now, although the room is awake."""
        self.line: ClassedLine | None = None
        """The line of those who take turns, in which room is saved; ``None``: it is not a room below a
        limit, or was restored and nobody has saved since."""

    def __len__(self) -> int:
        return len(self.at_once) + len(self.groups)

    def __iter__(self) -> Iterator[AskGroup | Reservation]:
        return chain(self.at_once, self.groups)

    def enter_group(self, group: AskGroup) -> None:
        """Add *group*, which takes its turn among the others."""
        application = group.application
        self.groups[group] = self.chances
        if self.line is not None:
            self.line.add(group)
        leaf = self._branch_of(application.queue)
        if application in leaf.groups:
            leaf.groups[application] = (*leaf.groups_of(application), group)
        else:
            leaf.groups[application] = group
            application.rooms = (*application.rooms, self)
        self.review_rank(application)

    def take_line_steps(self) -> Iterator[None]:
        """Find the places in the line again, because the priorities that asks lend may have changed. Yields after
        some."""
        for number, group in enumerate(list(self.groups) if self.line is not None else (), 1):
            if self.line is not None and group in self.groups:
                self.line.add(group)
            if number % SORTED_AT_ONCE == 0:
                yield

    def fall_asleep(self, now_ns: int) -> bool:
        """Try nobody until the next time that it is woken. Returns whether it was awake."""
        if not self.awake:
            return False
        self.awake = False
        self.chances += 1
        self.last_chance_ns = now_ns
        return True

    def chances_of(self, group: AskGroup) -> int:
        """Returns how often *group*, which is here, could have been served, and others were instead."""
        return self.chances - self.groups.get(group, self.chances)

    def discard(self, waiter: AskGroup | Reservation) -> None:
        """Remove *waiter* if it is there."""
        if waiter in self.at_once:
            del self.at_once[waiter]
        elif waiter in self.groups:
            self._discard_group(waiter)

    def review_rank(self, application: Application) -> None:
        """Determine the rank of *application*, of which somebody waits here, again, and those of its queues as far as
        they change."""
        leaf = self.branches[application.queue]
        if leaf.set_rank(application, leaf.first_group(application).first_ask().turn_priority):
            self.refresh_rank(application.queue)

    def refresh_rank(self, queue: Queue) -> None:
        """Compute the rank of *queue* again, because ranks below it, or its offset or fence, may have changed, and
        those above as far as they change."""
        for below, above in pairwise(queue.lineage()):
            branch, own = self._branch_of(above), self.branches[below]
            withheld = bool(self.set_back) and (below in self.set_back or not own.orders)
            rank = below.expose_priority(own.orders or own.ranks.values())
            if not branch.set_rank(below, rank, withheld=withheld):
                return

    def step_back(self, leaf: Queue) -> None:
        """Try nobody of *leaf*, some of whom wait here, until :meth:`come_forward`."""
        self.set_back[leaf] = None
        self.refresh_rank(leaf)

    def come_forward(self, leaf: Queue) -> None:
        """Try those of *leaf* again in their turn, if it was set back."""
        if leaf in self.set_back:
            del self.set_back[leaf]
            if leaf in self.branches:
                self.refresh_rank(leaf)

    def mark_changed(self, member: Queue | Application, above: Queue) -> None:
        """Note that the place of *member*, below which somebody waits here, among those of *above* may have changed."""
        branch = self.branches[above]
        if member not in branch.withheld:
            branch.orders[branch.ranks[member]].marked[member] = None

    def _branch_of(self, queue: Queue) -> Branch:
        found = self.branches.get(queue)
        if found is None:
            found = self.branches[queue] = Branch(self._key_of)
            queue.rooms[self] = None
        return found

    def _discard_group(self, group: AskGroup) -> None:
        application, leaf = group.application, group.application.queue
        branch = self.branches[leaf]
        del self.groups[group]
        left = tuple(other for other in branch.groups_of(application) if other is not group)
        if left:
            branch.groups[application] = left
            self.review_rank(application)
            return
        del branch.groups[application]
        application.rooms = tuple(room for room in application.rooms if room is not self)
        branch.set_rank(application, NOTHING_WAITS)
        for queue in leaf.lineage():
            if self.branches[queue].ranks:
                self.refresh_rank(queue)
                return
            del self.branches[queue], queue.rooms[self]
            self.set_back.pop(queue, None)  # Nothing would take it back, because the leaf knows the room no more.
            if queue.parent is not None:
                self.branches[queue.parent].set_rank(queue, NOTHING_WAITS)
