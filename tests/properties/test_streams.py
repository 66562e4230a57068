"""Endless streams of small equal tasks keep no large ask and no gang waiting for ever (preemption.md B.7)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, DeviceRequest
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest, Wish
from tests.examples import mark_rest_long
from tests.properties.virtual_cluster import PARTITION, VirtualCluster

PLACED_WITHIN_S: Final = 600
COME_AT_S: Final = 20
WORLDS: Final = 120
IN_BRIEF: Final = 6


class Stream(VirtualCluster):
    """A cluster that small tasks fill, each followed by another one when it ends, while large asks and gangs come.

    Everybody has the same priority, except that those who are large may have a higher one; nobody preempts.
    """

    def __init__(self, number: int) -> None:
        self.rng = rng = random.Random(f"streams/{number}")
        self.capacity = rng.choice((4, 6, 10))
        self.nodes = rng.randint(2, 8)
        self.total = self.capacity * self.nodes
        leaves = rng.choice((("a",), ("a", "b"), ("a", "b", "c")))
        self.leaves = {leaf: rng.choice(("fifo", "fifo", "fair")) for leaf in leaves}
        self.racks = random.Random(f"streams/{number}/racks").choice((0, 0, 2, 3))
        """The number of racks among which the nodes are divided, and in one of which whoever is large requires its
        places; 0: there are none."""
        self.alone = random.Random(f"streams/{number}/alone").random() < 0.5 and self.racks > 0
        """Whether the members of a group are asked for one by one, and no gang."""
        self.limits = {leaf: rng.randint(self.capacity, self.total) for leaf in self.leaves if rng.random() < 0.4}
        self.user_limit = rng.randint(self.capacity, self.total) if rng.random() < 0.25 else 0
        self.longest_s = rng.choice((5, 15, 40))
        self.count = 0
        self.waiting: dict[str, int] = {}
        """The members that each of those that are large still waits for."""
        super().__init__(self._configure())
        one, half = DeviceRequest(number=1), DeviceRequest(share=500)
        self.small = random.Random(f"streams/{number}/devices").choice((None, None, one, half))
        """The devices that each small task wants, if any; there are cores for all then, and those who are large want as
        many whole devices as cores."""
        listed = json.dumps([{"id": f"d{at}"} for at in range(self.capacity)])
        for at in range(self.nodes):
            known = ((DEVICES_ATTRIBUTE, listed),) if self.small else ()
            known += (("rack", f"r{at % self.racks}"),) if self.racks else ()
            self.node(f"n{at}", {"vcore": self.capacity * (3 if self.small else 1)}, attributes=known)
        streams = [f"s{at}" for at in range(rng.randint(1, 4))]
        older = streams[: rng.choice((0, 4))]
        for name in older:
            self.add_application(name, *self._draw_leaf())
        self.large = list(self._draw_large())
        self.streams = streams
        for name in [name for name in streams if name not in older]:
            self.add_application(name, *self._draw_leaf())

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
        levels = {"topology": ["rack"]} if self.racks else {}
        return json.dumps({"partitions": [{"name": "default", "queues": [root], **levels}]})

    def _draw_leaf(self) -> tuple[str, str]:
        """Returns a leaf and a user. No user has applications in two leaves: below a common limit, the leaf with the
        smaller share comes first."""
        leaf = self.rng.choice(list(self.leaves))
        return f"root.{leaf}", f"{self.rng.choice(('amy', 'bob'))}-{leaf}"

    def _draw_large(self) -> Iterator[tuple[str, int, int, int]]:
        """Yields up to three that could fit, on the nodes and under the limits that bind them: application, size and
        number of members, and priority."""
        least = min([self.total // 2, *self.limits.values(), self.user_limit or self.total])
        for at in range(self.rng.randint(1, 3)):
            name, members = f"t-large{at}", self.rng.choice((1, 1, 2, 3, 4))
            size, priority = self.rng.randint(2, self.capacity), self.rng.choice((0, 0, 1000))
            together = self.nodes // max(1, self.racks) * (self.capacity // size)
            while members > 1 and (members * size > least or members > together):
                members -= 1
            leaf, user = self._draw_leaf()
            takes_gangs = self.leaves[leaf.removeprefix("root.")] == "fifo"
            if size <= min(least, self.capacity) and (members == 1 or takes_gangs):
                whole = members > 1 and not self.alone
                self.add_application(name, leaf, user, {"vcore": members * size} if whole else None)
                yield name, size, members, priority

    def _ask_large(self) -> None:
        for name, size, members, priority in self.large:
            self.waiting[name] = members
            spec = AllocationSpec("", name, PARTITION, Resources({"vcore": size}), priority)
            spec = spec._replace(topology=TopologyRequest(Wish.REQUIRED, "rack") if self.racks else None)
            if members > 1 and not self.alone:
                spec = spec._replace(task_group="g", placeholder=True)
            spec = spec._replace(devices=DeviceRequest(number=size) if self.small else None)
            self.ask(*(spec._replace(key=f"{name}.{at}") for at in range(members)))

    def _fill_up(self) -> None:
        """Keeps as many small tasks waiting in each stream as the cluster could hold."""
        state = self.engine.partition(PARTITION)
        assert state is not None
        for name in self.streams:
            application = state.applications.get(name)
            spec = AllocationSpec("", name, PARTITION, Resources({"vcore": 1}), devices=self.small)
            lack = self.total - (0 if application is None else len(application.asks))
            self.ask(*(spec._replace(key=f"{name}.{self.count + at}") for at in range(lack)))
            self.count += max(0, lack)

    def note_start(self, spec: AllocationSpec) -> int:
        """Counts the members of those that are large."""
        large = spec.application_id
        if large not in self.waiting:
            return 20 if large.startswith("t") else self.rng.randint(1, self.longest_s)
        self.waiting[large] -= 1
        if not self.waiting[large]:
            del self.waiting[large]
        return 20

    def note_victim(self, spec: AllocationSpec) -> None:
        """Fails, because no ask may preempt here."""
        raise AssertionError(f"{spec.key} was preempted")

    def play(self) -> dict[str, int]:
        """Returns how many members of those that are large still wait in the end."""
        while self.now <= COME_AT_S or (self.waiting and self.now <= COME_AT_S + PLACED_WITHIN_S):
            self._fill_up()
            if self.now == COME_AT_S:
                self._ask_large()
            self.advance()
        return self.waiting


@pytest.mark.parametrize("number", mark_rest_long(range(WORLDS), keep=IN_BRIEF))
def test_streams_of_small_tasks_keep_nobody_waiting(number: int) -> None:
    """Who is large is placed within ten minutes, as a gang or alone, below limits as on nodes."""
    left = Stream(number).play()
    assert not left, f"still waiting after {PLACED_WITHIN_S} s: {left}"
