"""P11: how soon what is owed is there, by how the room is spread over nodes: a few large ones, or many small ones.

Time is the cluster's own: it passes when nothing is left to do, so it shows who waits for whom and not how fast the
machine is. What the engine needs is processor time. Everything is full of tasks of one core that take a second to
leave; a queue that is owed as much asks for one core at a time, and its asks are old enough to preempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.bench.processes import apart
from tests.bench.table import Row
from tests.scenarios.preemption.busy_cluster import full_of_work

LEAVE_S: Final = 1.0
MOST_S: Final = 2.0
GIVEN_UP_S: Final = 900.0
SHAPES: Final = ((1, 5, 5), (64, 1, 40), (4, 16, 40), (1, 64, 40), (10, 50, 500), (100, 50, 1000))
"""Nodes, cores of each, asks of one core."""


class Measurement(NamedTuple):
    """*waited_s*: until the last ask was placed, less what its victim took to leave."""

    waited_s: float
    attempts: int
    engine_s: float


def measure(nodes: int, per_node: int, asks: int) -> Measurement:
    cluster, asked = full_of_work(nodes, per_node, asks, leave_s=LEAVE_S)
    cluster.engine_s = 0.0
    took_s = cluster.run_until_placed(asked, GIVEN_UP_S)
    waited_s = (GIVEN_UP_S if took_s is None else took_s) - LEAVE_S
    return Measurement(waited_s, cluster.attempts, cluster.engine_s)


def p11(runs: int, *, quick: bool) -> Iterator[Row]:
    """Each shape: simulated seconds until all are served beside the victims' own, and what the engine needs."""
    for nodes, per_node, asks in SHAPES[:-1] if quick else SHAPES:
        found = [apart(measure, nodes, per_node, asks) for _ in range(runs)]
        what = f"{asks:,} asks of 1, {nodes} full nodes of {per_node}"
        waited = [m.waited_s for m in found]
        yield Row("P11", f"{what}: all served, simulated time", "s", waited, MOST_S, at_most=True)
        attempts = [m.engine_s / m.attempts * 1e3 for m in found]
        yield Row("P11", f"{what}: an attempt, processor time", "ms", attempts)
        served = [m.engine_s / asks * 1e3 for m in found]
        yield Row("P11", f"{what}: an ask, processor time", "ms", served)
