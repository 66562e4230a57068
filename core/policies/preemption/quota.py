"""Enforcing a lowered max: who leaves a queue that holds more than it may (preemption.md D.6-D.8).

Fairness between the leaves comes first: each gets its part of the target and gives what fits in it. What is then still
missing comes from all of them together, the least important tasks first; and nobody goes who turns out not to be
needed. When a run happens (D.4, D.5), and what becomes of its plan (D.9), is the partition's business.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from heapq import merge
from typing import Final

from core.domain.reasons import Outcome
from core.model.allocations import Allocation
from core.model.queues import Queue
from core.policies.preemption.plan import QuotaPlan
from core.policies.preemption.quota_shares import Amounts, leaf_shares, net, target
from core.policies.preemption.quota_victims import RUN_LENGTH, Choice, VictimOrder, within

KIND: Final = "quota"

Steps = Generator[int, None, QuotaPlan]
"""A run in the making: yields after every step the number of allocations looked at, returns the plan."""


def plan(queue: Queue, miss: int) -> QuotaPlan:
    """Who leaves *queue*, all worked out at once. *miss*: percentage of the target that may be left."""
    steps = run(queue, miss)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: QuotaPlan = finished.value
            return result


def run(queue: Queue, miss: int) -> Steps:
    """As :func:`plan`, in steps of limited length. Between two of them the queue may change.

    Target and parts are those of the first step. Whoever left meanwhile is not chosen, newcomers are not looked at.
    """
    ceilings = dict(queue.max)
    wanted = target(queue, ceilings)
    if not wanted:
        return QuotaPlan(queue, ceilings, {}, (), {}, Outcome.NOTHING_TO_DO)
    shares = leaf_shares(queue, wanted)
    yield len(shares)
    order = VictimOrder(wanted, ceilings)
    ranked: dict[Queue, list[list[Allocation]]] = {}
    for leaf in shares:
        runs = ranked[leaf] = []
        allocations = [a for application in leaf.applications.values() for a in application.allocations.values()]
        for at in range(0, len(allocations), RUN_LENGTH):
            runs.append(order.run(allocations[at : at + RUN_LENGTH]))
            yield min(RUN_LENGTH, len(allocations) - at)
    choice = Choice(wanted, miss)
    for leaf, share in shares.items():
        yield from choice.fill(order.merged(ranked[leaf]), share)
    if choice.lacking():
        yield from choice.complete(order.merged([run for runs in ranked.values() for run in runs]))
    yield from _prune(choice, order)
    victims = tuple(choice.victims)
    return QuotaPlan(queue, ceilings, wanted, victims, choice.unmet(), _outcome(choice))


def _prune(choice: Choice, order: VictimOrder) -> Iterator[int]:
    """Nobody goes without need: the most important of those chosen are handed back first."""
    spare = choice.spare()
    if not any(spare.values()):
        return
    victims = list(choice.victims)
    runs: list[list[Allocation]] = []
    for at in range(0, len(victims), RUN_LENGTH):
        droppable = [victim for victim in victims[at : at + RUN_LENGTH] if within(victim, spare)]
        runs.append(order.run(droppable))
        yield min(RUN_LENGTH, len(victims) - at)
    yield from choice.prune(merge(*map(reversed, runs), key=order.key, reverse=True))


def confirm(queue: Queue, ceilings: Mapping[int, int], wanted: Amounts, victims: Iterable[Allocation]) -> QuotaPlan:
    """Which of the chosen *victims* still have to go, and may, as the queue is now.

    *wanted* is what is still to be freed; tasks that ended by themselves meanwhile count.
    """
    now = {t: min(amount, net(queue, t) - ceilings[t]) for t, amount in wanted.items()}
    choice = Choice({t: amount for t, amount in now.items() if amount > 0})
    for _ in choice.complete(victims):
        pass
    for _ in choice.prune(list(reversed(choice.victims))):
        pass
    return QuotaPlan(queue, ceilings, choice.wanted, tuple(choice.victims), choice.unmet(), _outcome(choice))


def outcome(wanted: Mapping[int, int], unmet: Mapping[int, int], miss: int, *, any_victims: bool) -> Outcome:
    """What a run came to (D.7). *unmet* holds nothing that is met."""
    if not wanted:
        return Outcome.NOTHING_TO_DO
    if not unmet:
        return Outcome.FULL
    if not any_victims:
        return Outcome.NONE
    tolerable = all(amount * 100 <= wanted[t] * miss for t, amount in unmet.items())
    return Outcome.BEST_EFFORT if tolerable else Outcome.PARTIAL


def _outcome(choice: Choice) -> Outcome:
    return outcome(choice.wanted, choice.unmet(), choice.miss, any_victims=bool(choice.victims))
