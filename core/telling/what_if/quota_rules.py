"""Checks whether a configuration could give a queue the limits that a question supposes (config.md, V31 to V34)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kornel.core.model.queues import Queue
from kornel.shared.readable_amounts import format_quantity

Amounts = Mapping[int, int]
Ceilings = Mapping[int, tuple[int, str]]
"""The least max on the path so far, and the queue that sets it, by type."""


class SupposedLimits:
    """The limits of the queues of one branch, with the supposed ones for *queue*. *names*: the names of the types."""

    def __init__(self, queue: Queue, guaranteed: Amounts, maximum: Amounts, names: list[str]) -> None:
        self._queue = queue
        self._guaranteed = guaranteed
        self._max = maximum
        self._names = names

    def find_problems(self) -> list[str]:
        """Returns the errors that the loader of configurations would report about them."""
        top = self._queue.lineage()[-2]
        found: list[str] = []
        self._check_queue(top, {}, found)
        return found

    def _check_queue(self, queue: Queue, above: Ceilings, found: list[str]) -> dict[int, int]:
        """Returns what the parent of *queue* has to guarantee for it, and adds errors to *found*."""
        guaranteed, maximum = self._limits_of(queue)
        ceilings = dict(above)
        for t, amount in guaranteed.items():
            if t in maximum and amount > maximum[t]:
                found.append(
                    f"queue {queue.path}: guaranteed {self._write(t, amount)} is above its max"
                    f" {self._write(t, maximum[t])}"
                )
        for t, amount in maximum.items():
            if t not in above or amount < above[t][0]:
                ceilings[t] = (amount, queue.path)
            elif amount > above[t][0]:
                least, setter = above[t]
                found.append(
                    f"queue {queue.path}: max {self._write(t, amount)} is above the max {self._write(t, least)}"
                    f" of {setter}"
                )
        needed = dict(guaranteed)
        for t, amount in self._sum_below(queue, ceilings, found).items():
            below = f"the queues below {queue.path} have {self._write(t, amount)} guaranteed"
            if t in guaranteed and amount > guaranteed[t]:
                found.append(f"{below}, more than its own {self._write(t, guaranteed[t])}")
                continue
            needed.setdefault(t, amount)
            if t in ceilings and amount > ceilings[t][0]:
                most, setter = ceilings[t]
                found.append(f"{below}, more than the max {self._write(t, most)} of {setter}")
                needed[t] = most
        return needed

    def _sum_below(self, queue: Queue, ceilings: Ceilings, found: list[str]) -> dict[int, int]:
        total: dict[int, int] = {}
        for child in self._configured_children(queue):
            for t, amount in self._check_queue(child, ceilings, found).items():
                total[t] = total.get(t, 0) + amount
        return total

    def _configured_children(self, queue: Queue) -> Iterator[Queue]:
        """Yields the configured children; the rules do not apply to children that placement has made."""
        return (queue.children[path] for path in sorted(queue.children) if queue.children[path].managed)

    def _limits_of(self, queue: Queue) -> tuple[Amounts, Amounts]:
        if queue is self._queue:
            return self._guaranteed, self._max
        return queue.guaranteed, queue.max

    def _write(self, t: int, amount: int) -> str:
        name = self._names[t]
        return f"{name} {format_quantity(name, amount)}"
