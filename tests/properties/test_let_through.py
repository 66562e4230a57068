"""Below a limit where somebody saves, exactly those are tried whom it does not keep back, judged from the words of the
rule (``lending.py``), however they are found among all who wait."""

from __future__ import annotations

import json
import random
from typing import Any, Final

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
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, Effect
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import AskGroup, LimitClaim
from kornel.core.model.orders.waiting_rooms import WaitingRoom
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import waking
from tests.bench.clocked import SECOND_NS, ClockedEngine
from tests.examples import mark_rest_long
from tests.properties.lending import is_kept_below

PARTITION: Final = "[rm]default"
LEAVES: Final = ("root.all.a.x", "root.all.a.y", "root.all.b", "root.all.c")
CORES: Final = 8
MOST_MINUTES: Final = 40
TURNS: Final = 60


def _properties(dice: random.Random) -> dict[str, str]:
    return {
        "application.sort.policy": dice.choice(("fifo", "fair")),
        "application.sort.priority": dice.choice(("enabled", "enabled", "disabled")),
        "priority.policy": dice.choice(("default", "default", "fence")),
        "priority.offset": dice.choice(("0", "0", "2")),
        "reservation.timeout": "20m",
    }


def _configuration(dice: random.Random) -> str:
    def queue(name: str, *queues: dict[str, Any]) -> dict[str, Any]:
        guaranteed = {"guaranteed": {"vcore": str(dice.randint(1, 2))}} if not queues and dice.random() < 0.4 else {}
        below = {"queues": list(queues)} if queues else {}
        return {"name": name, "properties": _properties(dice), "resources": guaranteed, **below}

    every = queue("all", queue("a", queue("x"), queue("y")), queue("b"), queue("c"))
    every["resources"] = {"max": {"vcore": str(CORES)}}
    root = {"name": "root", "submitacl": "*", "queues": [every]}
    return json.dumps({"partitions": [{"name": "default", "queues": [root]}]})


class _FullLimit:
    """A full limit, with a random tree of queues below it, at which asks of one to three cores wait."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ClockedEngine()
        self.running: list[tuple[str, str]] = []
        self.made = 0
        self.clock.send(RegisterManager("rm", _configuration(self.dice)))
        capacity = Resources({"vcore": 10 * CORES * 1_000})
        self.clock.send(UpdateNodes("rm", (NodeSpec("n", NodeAction.CREATE, PARTITION, capacity=capacity),)))
        owners = [ApplicationSpec(f"{leaf}-{number}", leaf, PARTITION, user="u") for leaf in LEAVES for number in "123"]
        self.clock.send(UpdateApplications("rm", tuple(owners)))
        self.priorities = {owner.application_id: self.dice.choice((0, 0, 0, 1, 3)) for owner in owners}
        for _ in range(CORES):
            self._ask(1)
        for _ in range(20):
            self._ask(self.dice.randint(1, 3))

    @property
    def state(self) -> PartitionState:
        state = self.clock.engine.partition(PARTITION)
        assert state is not None
        return state

    def play_turn(self) -> None:
        """Lets time pass, and has something end, come, or be configured."""
        minutes = self.dice.choice((0, 0, 0, 1, MOST_MINUTES))
        self._hear(self.clock.pass_time(self.clock.now_ns + self.dice.randint(1, 1 + 60 * minutes) * SECOND_NS))
        if self.dice.random() < 0.05:
            self._hear(self.clock.send(UpdateConfiguration("rm", _configuration(self.dice))))
        if self.running and self.dice.random() < 0.8:
            name, key = self.running.pop(self.dice.randrange(len(self.running)))
            self._hear(self.clock.send(UpdateAllocations("rm", releases=(ReleaseSpec(PARTITION, name, key),))))
        if self.dice.random() < 0.6:
            self._ask(self.dice.randint(1, 3))
        assert audit.check(self.state) == []

    def _ask(self, cores: int) -> None:
        self.made += 1
        name = self.dice.choice(list(self.priorities))
        came_s = self.clock.now_ns // SECOND_NS - self.dice.choice((0, 0, 30))
        size = Resources({"vcore": cores * 1_000})
        priority = self.priorities[name] + self.dice.choice((0, 0, 1))
        ask = AllocationSpec(f"k{self.made}", name, PARTITION, size, priority=priority, created_s=max(1, came_s))
        self._hear(self.clock.send(UpdateAllocations("rm", (ask,))))

    def _hear(self, heard: list[Effect]) -> None:
        self.running += [(each.spec.application_id, each.spec.key) for each in heard if isinstance(each, Allocated)]


@pytest.mark.parametrize("seed", mark_rest_long(range(60), keep=6))
def test_all_who_are_let_through_are_tried(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    wake, heard = waking._wake_let_through, {True: 0, False: 0}

    def judged(state: PartitionState, room: WaitingRoom, claim: LimitClaim) -> None:
        groups = [waiter for waiter in room if isinstance(waiter, AskGroup)]
        wanted = [not is_kept_below(state, group.first_ask()) for group in groups]
        wake(state, room, claim)
        woken = [group.parked_at is not room for group in groups]
        if len(claim.limits) == 1 and len(state.reserving.at_limits) == 1:
            assert woken == wanted
        for each in woken:
            heard[each] += 1

    monkeypatch.setattr(waking, "_wake_let_through", judged)
    world = _FullLimit(seed)
    for _ in range(TURNS):
        world.play_turn()
    assert heard[False] > 0
