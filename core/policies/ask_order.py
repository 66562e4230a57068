"""Puts asks of any queues in the order in which they are tried if nothing else is left to try (preemption.md G.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import accumulate, pairwise
from operator import itemgetter

from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.policies.application_order import application_turn_key
from kornel.core.policies.queue_order import queue_turn_key

Ranked = Iterator[tuple[int, Allocation]]
"""Asks of one queue in order, each with the rank that the queue has until that ask is tried."""


def line_up(asks: Iterable[Allocation]) -> Iterator[Allocation]:
    """Yields *asks* in order: at each level, the queue with the highest rank of what is left comes first, then the one
    with the smallest share. The shares are those of the moment when the first ask is asked for."""
    of_leaf: dict[Queue, list[Allocation]] = {}
    for ask in asks:
        of_leaf.setdefault(ask.queue, []).append(ask)
    below: dict[Queue, list[Queue]] = {}
    root = None
    for leaf in of_leaf:
        root = leaf.lineage()[-1]
        for queue, parent in pairwise(leaf.lineage()):
            siblings = below.setdefault(parent, [])
            siblings.append(queue)
            if len(siblings) > 1:
                break  # The queues above are listed already.
    if root is not None:
        for _, ask in _line_up_queue(root, below, of_leaf):
            yield ask


def _line_up_queue(queue: Queue, below: dict[Queue, list[Queue]], of_leaf: dict[Queue, list[Allocation]]) -> Ranked:
    line: Ranked
    if queue.leaf:
        line = _line_up_leaf(queue, of_leaf[queue])
    else:
        children = [_add_keys(child, _line_up_queue(child, below, of_leaf)) for child in below[queue]]
        line = ((rank, ask) for _, rank, _, ask in merge(*children))
    if not queue.properties.sort_by_priority:
        # Whoever is next need not be the most important one that is left.
        everybody = list(line)
        highest = list(accumulate([rank for rank, _ in reversed(everybody)], max))[::-1]
        line = zip(highest, [ask for _, ask in everybody], strict=True)
    for rank, ask in line:
        yield queue.expose_priority((rank,)), ask


def _add_keys(queue: Queue, line: Ranked) -> Iterator[tuple[tuple[object, ...], int, int, Allocation]]:
    """Yields each ask of *line* behind the sort key that *queue* has among its siblings until that ask is tried."""
    parent = queue.parent
    by_priority = parent is None or parent.properties.sort_by_priority
    _, *share = queue_turn_key(queue)
    for number, (rank, ask) in enumerate(line):
        yield (-rank if by_priority else 0, *share), rank, number, ask


def _line_up_leaf(leaf: Queue, asks: list[Allocation]) -> Ranked:
    by_priority = leaf.properties.sort_by_priority
    applications = dict.fromkeys(ask.application for ask in asks)
    policies = {application: application_turn_key(application)[1:] for application in applications}
    found = [
        ((-ask.priority if by_priority else 0, *policies[ask.application], ask.order), ask.priority, ask)
        for ask in asks
    ]
    found.sort(key=itemgetter(0))
    return ((priority, ask) for _, priority, ask in found)
