"""Whoever begins to save below a limit is in its turn: nobody smaller waits there, or is about to be tried, whom it
does not come before and whose queue (in a leaf sorted ``fair``: application) has a smaller share (preemption.md B.7).

The engine asks the first in each order. Here everybody is looked at, in random clusters.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import SortPolicy
from kornel.core.engine.scheduling import limit_savings
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.orders.waiting_rooms import WaitingRoom
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.model.users import Account
from kornel.core.policies.application_order import usage_shares
from kornel.core.policies.claim_order import comes_before
from kornel.core.policies.queue_order import fair_share
from kornel.core.state.partition_state import PartitionState
from tests.bench.clocked import ClockedEngine
from tests.examples import mark_rest_long

PARTITION, SECOND_NS = "[rm]default", 10**9
APPLICATIONS, LEAVES, STEPS = 8, "abc", 60
QUEUES = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: p
      resources: {max: {vcore: 12}}
      properties: {application.sort.priority: %s}
      queues:
      - {name: a, properties: {application.sort.policy: fair}}
      - {name: b, properties: {application.sort.policy: fair, application.sort.priority: %s}}
      - {name: c, properties: {priority.offset: "1"}}
"""


def _smaller_waiters(state: PartitionState, pairs: Pairs, limit: Queue | Account) -> Iterator[Allocation]:
    """Yields the first asks of those who wait at *limit* for less than *pairs* of some type, or are to be tried below
    it."""
    asked = dict(pairs)
    for shape, room in limit.parked.items():
        if not shape.no_room and any(amount < asked.get(t, 0) for t, amount in shape.pairs):
            yield from (waiter.first_ask() if isinstance(waiter, AskGroup) else waiter.ask for waiter in room)
    top = limit if isinstance(limit, Queue) else limit.queue
    groups = [group for application in state.applications.values() for group in application.groups.values()]
    for group in groups:
        room = group.parked_at
        awake = isinstance(room, WaitingRoom) and room in state.awake and group in room.groups
        if top in group.application.queue.lineage() and (group in group.application.order or awake):
            yield group.first_ask()


def _has_less(ask: Allocation, other: Allocation) -> bool:
    if ask.queue is other.queue:
        fair = ask.queue.properties.sort_policy is SortPolicy.FAIR
        return fair and usage_shares(ask.application) < usage_shares(other.application)
    paths = [list(reversed(each.queue.lineage())) for each in (ask, other)]
    own, others = next((one, two) for one, two in zip(*paths, strict=False) if one is not two)
    return fair_share(own) < fair_share(others)


class Churn:
    """Tasks of one to four cores come and go below a max of twelve, of eight applications in three leaves."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ClockedEngine()
        self.running: list[tuple[str, str]] = []
        self.asked = 0
        queues = QUEUES % tuple(self.dice.choice(("enabled", "disabled")) for _ in range(2))
        self.clock.send(RegisterManager("rm", queues))
        node = NodeSpec("n", NodeAction.CREATE, PARTITION, capacity=Resources({"vcore": 100_000}))
        self.clock.send(UpdateNodes("rm", (node,)))
        leaves = [f"root.p.{LEAVES[at % 3]}" for at in range(APPLICATIONS)]
        added = (ApplicationSpec(f"a{at}", leaf, PARTITION, user="ann") for at, leaf in enumerate(leaves))
        self.clock.send(UpdateApplications("rm", tuple(added)))

    def step(self) -> None:
        """Some ask, one task ends, and a second passes."""
        dice, clock = self.dice, self.clock
        asks: list[AllocationSpec] = []
        for _ in range(dice.randrange(3)):
            self.asked += 1
            name, size = f"a{dice.randrange(APPLICATIONS)}", Resources({"vcore": dice.randint(1, 4) * 1_000})
            asks.append(AllocationSpec(f"t{self.asked}", name, PARTITION, size, priority=dice.choice((0, 0, 1, 5))))
        ends = [self.running.pop(dice.randrange(len(self.running)))] if self.running else []
        releases = tuple(ReleaseSpec(PARTITION, *end) for end in ends)
        effects = clock.send(UpdateAllocations("rm", tuple(asks), releases=releases))
        effects += clock.pass_time(clock.now_ns + SECOND_NS)
        placed = [effect.spec for effect in effects if isinstance(effect, Allocated)]
        self.running += [(spec.application_id, spec.key) for spec in placed]


@pytest.mark.parametrize("first", mark_rest_long(range(0, 300, 30)))
def test_nobody_who_has_less_is_passed(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_engine, answers = limit_savings._is_in_turn, Counter[bool]()

    def is_in_turn(state: PartitionState, ask: Allocation, pairs: Pairs, limit: Queue | Account) -> bool:
        found = ask_engine(state, ask, pairs, limit)
        others = _smaller_waiters(state, pairs, limit)
        assert found is not any(_has_less(other, ask) and not comes_before(ask, other) for other in others)
        answers[found] += 1
        return found

    monkeypatch.setattr(limit_savings, "_is_in_turn", is_in_turn)
    for seed in range(first, first + 30):
        churn = Churn(seed)
        for _ in range(STEPS):
            churn.step()
    assert min(answers[True], answers[False]) > 10
