"""An hour of mixed work on forty nodes: nobody waits for ever while those of lower classes run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.resources import Resources
from kornel.core.engine.gangs import gang_savings
from kornel.core.model.claim_clocks import sum_missing
from kornel.core.model.gang_units import UnitId
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangHold
from tests.properties.virtual_cluster import PARTITION, VirtualCluster

HOUR_S: Final = 3_600
ASKS: Final = 2_000
NODES: Final = 40
PATIENCE_S: Final = 600
LONGEST_WAIT_S: Final = 2_400
"""The longest wait of a gang with the higher priority: of four hours in each mode, 2,290 s at most."""
MODES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "monitor": {"monitor": {"enabled": True}},
    "coexist": {"monitor": {"enabled": True}, "coexist": True},
}
LEAVES: Final = {"gold": 160, "silver": 80, "bronze": 0, "tin": 0}
"""The guaranteed vcores of each leaf; the cluster has 400."""


@dataclass
class Wait:
    """An ask or a gang that came at a second, and when the last of its members first ran."""

    leaf: str
    kind: str
    priority: int
    came_s: int
    missing: int
    size: int
    """What each member asks for, of its only type."""
    members: int
    ran_s: int | None = None
    starts: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The class of those that are compared."""
        return f"{self.leaf} {self.kind} p{self.priority}"


def _willing(spec: AllocationSpec) -> AllocationSpec:
    """Returns an ask that may preempt and be preempted."""
    return spec._replace(allow_preempt_self=True, allow_preempt_other=True)


class MixedHour(VirtualCluster):
    """Single tasks, large ones, tasks that want only GPUs, tasks bound to a node, and gangs of real size, about as much
    as the cluster can run in the hour. What is preempted comes again."""

    def __init__(self, mode: str, seed: int) -> None:
        self.rng = rng = random.Random(f"mixed/{seed}")
        self.waits: dict[str, Wait] = {}
        self.of: dict[str, str] = {}
        """The wait to which each ask belongs."""
        self.run_s: dict[str, int] = {}
        self.left = ASKS
        self.number = 0
        leaves = [
            {"name": leaf, "resources": {"guaranteed": {"vcore": f"{vcores}m"}} if vcores else {}}
            for leaf, vcores in LEAVES.items()
        ]
        properties = {"preemption.delay": "10s", "reservation.timeout": "10m"}
        root = {"name": "root", "submitacl": "*", "queues": leaves, "properties": properties}
        partition = {"name": "default", "queues": [root], "preemption": MODES[mode]}
        super().__init__(json.dumps({"partitions": [partition]}))
        for at in range(NODES):
            self.node(f"n{at}", {"vcore": 10, **({"gpu": 2} if at % 4 == 0 else {})})
        self.arrivals = sorted(rng.randrange(HOUR_S) for _ in range(ASKS))

    def note_start(self, spec: AllocationSpec) -> int:
        """Counts a member, and returns its time to run."""
        wait = self.waits[self.of[spec.key]]
        wait.missing -= 1
        wait.starts.append(self.now)
        if not wait.missing and wait.ran_s is None:
            wait.ran_s = self.now
        return self.run_s[spec.key]

    def note_victim(self, spec: AllocationSpec) -> None:
        """Asks for the task again, as a real one."""
        self.number += 1
        key = f"{spec.key.partition('+')[0]}+{self.number}"
        self.of[key], self.run_s[key] = self.of[spec.key], self.run_s[spec.key]
        self.waits[self.of[key]].missing += 1
        again = AllocationSpec(key, spec.application_id, PARTITION, Resources(spec.resources), spec.priority)
        self.ask(_willing(again)._replace(task_group=spec.task_group, required_node=spec.required_node))

    def _submit(self) -> None:
        """Adds an application with one to eight asks of one kind."""
        rng = self.rng
        self.number += 1
        name, leaf = f"a{self.number}", rng.choices(list(LEAVES), (3, 2, 3, 2))[0]
        kind = rng.choices(("small", "large", "gpu", "bound", "gang"), (60, 12, 8, 4, 16))[0]
        members = rng.randint(2, 8) if kind == "gang" else 1
        amounts = {
            "small": {"vcore": rng.randint(1, 2)},
            "large": {"vcore": rng.randint(6, 10)},
            "gpu": {"gpu": 1},
            "bound": {"vcore": 1},
            "gang": {"vcore": rng.randint(1, 4)},
        }[kind]
        priority = rng.choice((0, 0, 0, 10))
        gang = {t: amount * members for t, amount in amounts.items()} if kind == "gang" else None
        self.add_application(name, f"root.{leaf}", "amy", gang)
        spec = _willing(AllocationSpec("", name, PARTITION, Resources(amounts), priority))
        if kind == "gang":
            spec = spec._replace(task_group="g", placeholder=True)
        elif kind == "bound":
            spec = spec._replace(required_node=f"n{rng.randrange(NODES)}")
        count = members if kind == "gang" else min(self.left, rng.randint(1, 4))
        for at in range(count):
            wait = name if kind == "gang" else f"{name}.{at}"
            known = self.waits.setdefault(wait, Wait(leaf, kind, priority, self.now, 0, sum(amounts.values()), members))
            known.missing += 1
            self.of[f"{name}.{at}"] = wait
            self.run_s[f"{name}.{at}"] = rng.randint(60, 540)
        self.left -= count
        self.ask(*(spec._replace(key=f"{name}.{at}") for at in range(count)))

    def play(self) -> list[str]:
        """Returns whoever waited for PATIENCE_S although one of lower priority in the same leaf, who came later and
        asked for no less, started after that time; and whoever never ran once nobody came any more."""
        while self.now <= HOUR_S:
            while self.left > 0 and self.arrivals and self.arrivals[0] <= self.now:
                self._submit()
                del self.arrivals[0]
            self.advance()
        passed = list(self._passed_over())
        while self.now <= 3 * HOUR_S and any(wait.ran_s is None for wait in self.waits.values()):
            self.advance()
        return passed + [f"{wait.name} never ran" for wait in self.waits.values() if wait.ran_s is None]

    def _passed_over(self) -> Iterator[str]:
        for name, wait in self.waits.items():
            end_s = self.now if wait.ran_s is None else wait.ran_s
            if end_s - wait.came_s < PATIENCE_S or wait.kind == "bound":
                continue
            for other in self.waits.values():
                lower = other.leaf == wait.leaf and other.priority < wait.priority
                later = other.came_s > wait.came_s and other.kind == wait.kind
                as_large = other.size >= wait.size and other.members >= wait.members
                if (
                    lower
                    and later
                    and as_large
                    and any(wait.came_s + PATIENCE_S < start < end_s for start in other.starts)
                ):
                    yield f"{name}, {wait.name}: came at {wait.came_s} s and waited {end_s - wait.came_s} s"
                    break


def watch_moves(patch: pytest.MonkeyPatch) -> list[UnitId]:
    """Returns a list that grows by the gang with each saved place that moves, after which less must be missing."""
    move, moved = gang_savings.move_place, list[UnitId]()

    def watched(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> bool:
        before = sum_missing(hold.claims())
        if not move(state, unit_id, hold, now_ns):
            return False
        assert sum_missing(hold.claims()) < before
        moved.append(unit_id)
        return True

    patch.setattr(gang_savings, "move_place", watched)
    return moved


@pytest.mark.long
@pytest.mark.parametrize(("mode", "seed"), [*((mode, 0) for mode in MODES), ("default", 2), ("monitor", 1)])
def test_nobody_waits_while_lower_classes_run(mode: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither gangs nor large tasks, with the monitor or without; and gangs whose saved room was lent lack less with
    each place that they choose instead."""
    moved, hour = watch_moves(monkeypatch), MixedHour(mode, seed)
    assert not hour.play()
    state = hour.engine.partition(PARTITION)
    assert state is not None
    assert not state.law_violations
    assert moved
    gangs = [wait for wait in hour.waits.values() if wait.kind == "gang" and wait.priority]
    assert max(wait.ran_s - wait.came_s for wait in gangs if wait.ran_s is not None) <= LONGEST_WAIT_S
