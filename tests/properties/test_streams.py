"""Endless streams of small equal tasks keep no large ask and no gang waiting for ever (preemption.md B.7)."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest

from kornel.core.domain import commands, effects
from kornel.core.domain.commands import AllocationSpec, NodeAction, NodeSpec, TerminationType, UpdateAllocations
from kornel.core.domain.resources import Resources
from kornel.core.partition.engine import Engine
from tests.examples import mark_rest_long

RM: Final = "rm"
PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
PLACED_WITHIN_S: Final = 600
COME_AT_S: Final = 20
WORLDS: Final = 120
IN_BRIEF: Final = 6


class Stream:
    """A cluster that small tasks fill, each followed by another one when it ends, while large asks and gangs come.

    Everybody has the same priority, except that those who are large may have a higher one; nobody preempts.
    """

    def __init__(self, number: int) -> None:
        self.rng = rng = random.Random(f"streams/{number}")
        self.now_ns = 0
        self.capacity = rng.choice((4, 6, 10))
        self.nodes = rng.randint(2, 8)
        self.total = self.capacity * self.nodes
        self.engine = Engine()
        leaves = rng.choice((("a",), ("a", "b"), ("a", "b", "c")))
        self.leaves = {leaf: rng.choice(("fifo", "fifo", "fair")) for leaf in leaves}
        self.limits = {leaf: rng.randint(self.capacity, self.total) for leaf in self.leaves if rng.random() < 0.4}
        self.user_limit = rng.randint(self.capacity, self.total) if rng.random() < 0.25 else 0
        self.longest_s = rng.choice((5, 15, 40))
        self.count = 0
        self.ends: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
        self.waiting: dict[str, int] = {}
        """The members that each of those that are large still waits for."""
        self._apply(commands.RegisterManager(RM, self._configure()))
        for at in range(self.nodes):
            size = Resources({"vcore": self.capacity})
            self._apply(commands.UpdateNodes(RM, (NodeSpec(f"n{at}", NodeAction.CREATE, PARTITION, capacity=size),)))
        streams = [f"s{at}" for at in range(rng.randint(1, 4))]
        older = streams[: rng.choice((0, 4))]
        self.streams = [self._add_application(name) for name in older]
        self.large = list(self._draw_large())
        self.streams += [self._add_application(name) for name in streams if name not in older]

    @property
    def now(self) -> int:
        """The second in which the cluster is."""
        return self.now_ns // SECOND

    def _configure(self) -> str:
        leaves: list[dict[str, Any]] = []
        for leaf, policy in self.leaves.items():
            known: dict[str, Any] = {"name": leaf, "properties": {"application.sort.policy": policy}}
            if leaf in self.limits:
                known["resources"] = {"max": {"vcore": f"{self.limits[leaf]}m"}}
            leaves.append(known)
        root: dict[str, Any] = {
            "name": "root",
            "submitacl": "*",
            "queues": leaves,
            "properties": {"reservation.timeout": "60s"},
        }
        if self.user_limit:
            root["limits"] = [{"limit": "each", "users": ["*"], "maxresources": {"vcore": f"{self.user_limit}m"}}]
        return json.dumps({"partitions": [{"name": "default", "queues": [root]}]})

    def _add_application(self, name: str, members: int = 0, size: int = 0) -> str:
        """Returns *name*, or nothing if its leaf does not take gangs."""
        # No user has applications in two leaves: below a common limit, the leaf with the smaller share comes first.
        leaf = self.rng.choice(list(self.leaves))
        user = f"{self.rng.choice(('amy', 'bob'))}-{leaf}"
        spec = commands.ApplicationSpec(name, f"root.{leaf}", PARTITION, user, (), created_s=self.now)
        if members and self.leaves[leaf] != "fifo":
            return ""
        if members:
            spec = spec._replace(placeholder_ask=Resources({"vcore": members * size}), gang_style="Hard")
        self._apply(commands.UpdateApplications(RM, (spec,)))
        return name

    def _apply(self, command: commands.Command) -> None:
        self._hear(self.engine.apply(command, self.now_ns))

    def _ask(
        self, application: str, key: str, size: int, count: int = 1, *, priority: int = 0, group: str = ""
    ) -> None:
        specs = [
            AllocationSpec(f"{key}-{at}", application, PARTITION, Resources({"vcore": size}), priority)._replace(
                task_group=group, placeholder=bool(group), created_s=self.now
            )
            for at in range(count)
        ]
        self._apply(UpdateAllocations(RM, tuple(specs)))

    def _hear(self, heard: Iterable[effects.Effect]) -> None:
        for effect in heard:
            if isinstance(effect, effects.Allocated):
                spec = effect.spec
                large = spec.key.rpartition("-")[0]
                if large in self.waiting:
                    self.waiting[large] -= 1
                    if not self.waiting[large]:
                        del self.waiting[large]
                    self.ends[self.now + 20].append((spec.application_id, spec.key))
                else:
                    self.ends[self.now + self.rng.randint(1, self.longest_s)].append((spec.application_id, spec.key))
            elif isinstance(effect, effects.ApplicationRejected | effects.AllocationRejected):
                raise AssertionError(effect)

    def _draw_large(self) -> Iterator[tuple[str, int, int, int]]:
        """Yields up to three that could fit, on the nodes and under the limits that bind them: application, size and
        number of members, and priority."""
        least = min([self.total // 2, *self.limits.values(), self.user_limit or self.total])
        for at in range(self.rng.randint(1, 3)):
            name, members = f"t-large{at}", self.rng.choice((1, 1, 2, 3, 4))
            size, priority = self.rng.randint(2, self.capacity), self.rng.choice((0, 0, 1000))
            while members > 1 and (members * size > least or members > self.nodes * (self.capacity // size)):
                members -= 1
            gang = members if members > 1 else 0
            if size <= min(least, self.capacity) and self._add_application(name, gang, size):
                yield name, size, members, priority

    def _ask_large(self) -> None:
        for name, size, members, priority in self.large:
            self.waiting[name] = members
            self._ask(name, name, size, members, priority=priority, group="g" if members > 1 else "")

    def _fill_up(self) -> None:
        """Keeps as many small tasks waiting in each stream as the cluster could hold."""
        for name in self.streams:
            application = self.engine.partition(PARTITION).applications.get(name)  # type: ignore[union-attr]
            lack = self.total - (0 if application is None else len(application.asks))
            if lack > 0:
                self.count += 1
                self._ask(name, f"{name}t{self.count}", 1, lack)

    def _decide(self) -> None:
        more = True
        while more:
            result = self.engine.cycle(self.now_ns, 100)
            self._hear(result.effects)
            more = result.more

    def play(self) -> dict[str, int]:
        """Returns how many members of those that are large still wait in the end."""
        while self.now <= COME_AT_S or (self.waiting and self.now <= COME_AT_S + PLACED_WITHIN_S):
            self._fill_up()
            if self.now == COME_AT_S:
                self._ask_large()
            self._decide()
            self.now_ns = (self.now_ns // SECOND + 1) * SECOND
            for application, key in self.ends.pop(self.now, ()):
                gone = commands.ReleaseSpec(PARTITION, application, key, TerminationType.STOPPED_BY_RM)
                self._apply(UpdateAllocations(RM, releases=(gone,)))
                self._decide()
                self.now_ns += SECOND // 1_000
        return self.waiting


@pytest.mark.parametrize("number", mark_rest_long(range(WORLDS), keep=IN_BRIEF))
def test_streams_of_small_tasks_keep_nobody_waiting(number: int) -> None:
    """Who is large is placed within ten minutes, as a gang or alone, below limits as on nodes."""
    left = Stream(number).play()
    assert not left, f"still waiting after {PLACED_WITHIN_S} s: {left}"
