"""Sums, priorities, fences and needs, each worked out from the words of the rule and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from tests.oracles.rules.world import Amounts, Books, Queue, Task, ancestors, below, is_inside, lowest_common

POOL_SEARCHED_WHOLLY = 12
"""Of a larger pool only sets of up to :data:`VICTIMS_OF_LARGE_POOLS` are tried."""
VICTIMS_OF_LARGE_POOLS = 3


class Need(NamedTuple):
    """*amount* of type *t* has to be freed by victims on *node*, or by victims inside *queue*; the other is empty."""

    t: str
    amount: int
    node: str = ""
    queue: str = ""

    def served_by(self, victim: Task, where: str) -> int:
        """How much of it *victim*, running on node *where*, frees."""
        here = where == self.node if self.node else is_inside(victim.queue, self.queue)
        return victim.amounts.get(self.t, 0) if here else 0

    def __str__(self) -> str:
        return f"{self.amount} {self.t} {'on ' + self.node if self.node else 'inside ' + self.queue}"


Victims = Sequence[tuple[Task, str]]
"""Tasks with the nodes they run on."""


def total(victims: Iterable[tuple[Task, str]], t: str) -> int:
    return sum(task.amounts.get(t, 0) for task, _ in victims)


def covers(victims: Victims, needs: Iterable[Need]) -> bool:
    """Whether *victims* free everything that is needed."""
    return all(sum(need.served_by(task, where) for task, where in victims) >= need.amount for need in needs)


def needless(victims: Victims, needs: Sequence[Need]) -> list[str]:
    """The keys of those that could have been left out, each alone.

    What a set frees only grows with the set, so that where no single victim can be left out no several can.
    """
    return [one.key for one, _ in victims if covers([(task, on) for task, on in victims if task is not one], needs)]


def wanted(needs: Iterable[Need]) -> dict[str, int]:
    """By type, the most that any of *needs* asks for: what has to be freed at the least."""
    most: dict[str, int] = {}
    for need in needs:
        most[need.t] = max(most.get(need.t, 0), need.amount)
    return most


def adjusted(books: Books, task: Task, queue: str) -> int:
    """The priority of *task* as it appears just below *queue*: every queue on the way adds its offset, or hides it."""
    priority = task.priority
    for path in below(task.queue, queue):
        configured = books.queues[path]
        priority = configured.offset if configured.priority_fence else priority + configured.offset
    return priority


def is_outranked(books: Books, victim: Task, ask: Task) -> bool:
    """Law 6: whether *ask* may take *victim* as far as priorities go, seen from where their queues meet."""
    meeting = lowest_common(victim.queue, ask.queue)
    return adjusted(books, victim, meeting) <= adjusted(books, ask, meeting)


def is_disabled(books: Books, leaf: str) -> bool:
    """Whether tasks of *leaf* are protected: the lowest queue that says anything decides.

    A fence is not inherited, and a queue that says so itself is not disabled.
    """
    for path in ancestors(leaf):
        said = books.queues[path].preemption
        if said:
            return said == "disabled"
    return False


def breaks_guarantee(books: Books, victims: Victims, ask: Task | None) -> str:
    """Law 2: the queue that ends below its guarantee, or lower although it is below already; empty: none.

    Queues that *ask* is inside of get its amount: those may not fall below the guarantee, or below what they hold.
    """
    for path in {path for task, _ in victims for path in ancestors(task.queue)}:
        queue: Queue = books.queues[path]
        for t, guaranteed in queue.guaranteed.items():
            freed = total([one for one in victims if is_inside(one[0].queue, path)], t)
            if not freed:
                continue
            net = books.net(path, t)
            if ask is not None and is_inside(ask.queue, path):
                if net - freed + ask.amounts.get(t, 0) < min(guaranteed, net):
                    return path
            elif net - freed < guaranteed:
                return path
    return ""


def subsets(pool: Victims, *, most: int | None = None) -> Iterator[Victims]:
    """All sets of *pool*, small ones first; of a large pool only those with few victims."""
    if most is None:
        most = len(pool) if len(pool) <= POOL_SEARCHED_WHOLLY else VICTIMS_OF_LARGE_POOLS
    for count in range(1, most + 1):
        yield from combinations(pool, count)


def search(pool: Victims, needs: Sequence[Need], allowed: Callable[[Victims], bool]) -> Victims | None:
    """Some set of *pool* that covers *needs* without anybody too many and is *allowed*; ``None``: there is none."""
    useful = [one for one in pool if any(need.served_by(*one) for need in needs)]
    if not needs or not covers(useful, needs):
        return None
    for victims in subsets(useful):
        if covers(victims, needs) and not needless(victims, needs) and allowed(victims):
            return victims
    return None


def fits(amounts: Amounts, room: Callable[[str], int]) -> bool:
    """Whether *room* of every type holds *amounts*."""
    return all(amount <= room(t) for t, amount in amounts.items() if amount)


def admits(books: Books, ask: Task, used: Callable[[str, str], int]) -> bool:
    """Whether every max on the path of *ask* has room for it, by what *used* says of a queue and a type."""
    return all(
        t not in books.queues[path].maximum or used(path, t) + amount <= books.queues[path].maximum[t]
        for path in ancestors(ask.queue)
        for t, amount in ask.amounts.items()
        if amount
    )
