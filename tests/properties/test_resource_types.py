"""Resource types that come and go, against sums by name: nobody's type is another's, and nobody is locked out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Final

import pytest

from kornel.core.domain.commands import (
    ApplicationRef,
    Command,
    CommandRefused,
    NodeAction,
    UpdateApplications,
    UpdateConfiguration,
)
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationUpdated,
    Effect,
    NodeRejected,
)
from kornel.core.engine.configuration import offered_types
from kornel.core.engine.configuration.configure import CLEANER_INTERVAL_NS
from kornel.core.engine.engine import Engine
from kornel.core.model import shapes
from kornel.core.state.books import audit
from kornel.core.state.options import EngineOptions
from tests.driven_core import Amounts, DrivenCore
from tests.examples import mark_rest_long

MOST: Final = 8
ASKED: Final = 2
POOL: Final = [f"t{number}" for number in range(14)]
QUEUES: Final = ("a", "b")


@pytest.fixture(autouse=True)
def few_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MAX_TYPES", MOST)
    monkeypatch.setattr(shapes, "ASKED_TYPES", ASKED)
    monkeypatch.setattr(offered_types, "MAX_TYPES", MOST)
    monkeypatch.setattr(offered_types, "DEMANDS_KEPT", 6)
    monkeypatch.setattr(offered_types, "BYTES_KEPT", 20_000)


class Cluster(DrivenCore):
    """An engine, and everything it was told and has said, by name."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: dict[str, dict[str, int]] = {}
        self.running: dict[str, tuple[Amounts, str]] = {}
        self.pending: dict[str, Amounts] = {}
        self.configured = "t0"
        self.held: dict[str, set[str]] = {}
        """By application that is there, all types that it has ever held: what it used of them is kept."""
        self.refused = self.taken_in = 0
        self.numbers = count()
        engine = Engine(EngineOptions(reservation_delay_ns=None))
        super().__init__(self.configuration(), now_ns=1_000 * 10**9, engine=engine)
        for queue in QUEUES:
            self.begin(queue)

    def configuration(self) -> str:
        return (
            "partitions: [{name: default, nodesortpolicy: {resourceweights: {t0: 1.0}},"
            " queues: [{name: root, submitacl: '*',"
            f" queues: [{{name: a}}, {{name: b, resources: {{max: {{{self.configured}: 1000}}}}}}]}}]}}]"
        )

    def named(self) -> set[str]:
        """What has to be known whatever happens: types of nodes, of the configuration, and of what runs or ran.

        And those of them that somebody still waits for.
        """
        waited_for = {t for amounts in self.pending.values() for t in amounts}
        waited_for -= set(self.state.types.find_unoffered(POOL))
        return {"t0", self.configured} | waited_for.union(*self.nodes.values(), *self.held.values())

    def some(self, most: int) -> dict[str, int]:
        return {name: self.rng.randint(1, 4) for name in self.rng.sample(POOL, self.rng.randint(1, most))}

    def owner(self) -> str:
        return self.rng.choice(sorted(self.held))

    def apply(self, command: Command) -> list[Effect]:
        effects = super().apply(command)
        self.follow(effects)
        return effects

    def follow(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Allocated) and effect.spec.key in self.pending:
                key, node = effect.spec.key, effect.node_id
                amounts, free = self.pending.pop(key), self.free(node)
                assert all(amount <= free[t] for t, amount in amounts.items()), f"{key} does not fit {node}"
                self.runs(key, amounts, node)
            elif (
                isinstance(effect, ApplicationUpdated)
                and effect.state == "Completed"
                and effect.application_id in self.held
            ):
                del self.held[effect.application_id]
                self.begin(effect.application_id[0])

    def runs(self, key: str, amounts: Amounts, node: str) -> None:
        self.running[key] = (amounts, node)
        self.held[key.partition("/")[0]].update(amounts)

    def free(self, node: str) -> Counter[str]:
        left = Counter(self.nodes[node])
        for amounts, where in self.running.values():
            if where == node:
                left.subtract(amounts)
        return left

    # What happens

    def step(self) -> None:
        self.now_ns += 10**9
        often = (self.ask, self.ask, self.ask, self.join, self.join, self.leave, self.end, self.end, self.end)
        self.rng.choice((*often, self.report, self.resize, self.reconfigure, self.restart, self.wait))()
        more = True
        while more:
            result = self.engine.cycle(self.now_ns, 10)
            self.follow(result.effects)
            more = result.more
        self.check()

    def begin(self, queue: str) -> None:
        name = f"{queue}{next(self.numbers)}"
        self.held[name] = set()
        effects = self.application(name, f"root.{queue}")
        assert any(isinstance(effect, ApplicationAccepted) for effect in effects), effects

    def restart(self) -> None:
        """An application ends with all it has, and another one takes its place."""
        gone = self.owner()
        del self.held[gone]
        for known in (self.running, self.pending):
            for key in [key for key in known if key.partition("/")[0] == gone]:
                del known[key]
        self.apply(UpdateApplications(self.rm_id, remove=(ApplicationRef(gone, self.partition),)))
        self.begin(gone[0])

    def ask(self) -> None:
        """Whatever it names, it is taken in."""
        owner = self.owner()
        key, amounts = f"{owner}/{next(self.numbers)}", self.some(4)
        self.pending[key] = amounts
        effects = self.submit(owner, [key], amounts)
        assert not [effect for effect in effects if isinstance(effect, AllocationRejected)]

    def judge(self, effects: list[Effect], amounts: Amounts, named: set[str]) -> bool:
        """Whether it was accepted. It is refused only where there are too many types with those *named* already."""
        if any(isinstance(effect, NodeRejected | AllocationRejected) for effect in effects):
            assert len(named.union(amounts)) > MOST, "locked out"
            self.refused += 1
            return False
        self.taken_in += 1
        return True

    def join(self) -> None:
        name, capacity = f"n{next(self.numbers)}", {t: 3 * amount for t, amount in self.some(4).items()}
        named = self.named()
        self.nodes[name] = capacity
        if not self.judge(self.node(name, capacity), capacity, named):
            del self.nodes[name]

    def leave(self) -> None:
        if self.nodes:
            name = self.rng.choice(sorted(self.nodes))
            del self.nodes[name]
            for key in [key for key, (_, where) in self.running.items() if where == name]:
                del self.running[key]
            self.node(name, action=NodeAction.DECOMISSION)

    def end(self) -> None:
        keys = sorted((*self.running, *self.pending))
        if keys:
            key = self.rng.choice(keys)
            self.running.pop(key, None)
            self.pending.pop(key, None)
            self.release(key.partition("/")[0], key)

    def report(self) -> None:
        """Something runs already, whatever its node has."""
        if self.nodes:
            owner, node = self.owner(), self.rng.choice(sorted(self.nodes))
            key, amounts, named = f"{owner}/{next(self.numbers)}", self.some(2), self.named()
            if self.judge(self.submit(owner, [key], amounts, node_id=node), amounts, named):
                self.runs(key, amounts, node)

    def resize(self) -> None:
        if self.running:
            key = self.rng.choice(sorted(self.running))
            amounts, named = self.some(2), self.named()
            if self.judge(self.submit(key.partition("/")[0], [key], amounts), amounts, named):
                self.runs(key, amounts, self.running[key][1])

    def reconfigure(self) -> None:
        before, self.configured = self.configured, self.rng.choice(POOL)
        try:
            self.apply(UpdateConfiguration(self.rm_id, self.configuration()))
        except CommandRefused:
            self.configured = before

    def wait(self) -> None:
        self.now_ns += CLEANER_INTERVAL_NS

    # What has to be true

    def check(self) -> None:
        state = self.state
        assert audit.check(state) == []
        types = state.types
        assert len(types.names) <= MOST + ASKED + 1
        assert types.offered <= MOST
        assert not types.find_unoffered(self.named())
        for name, capacity in self.nodes.items():
            assert dict(types.to_resources(state.nodes[name].capacity)) == capacity
            assert dict(types.to_resources(state.nodes[name].free)) == {t: a for t, a in self.free(name).items() if a}
        for path, letters in (("root", "ab"), ("root.a", "a"), ("root.b", "b")):
            used, pending = Counter[str](), Counter[str]()
            for key, (amounts, _) in self.running.items():
                used.update(amounts if key[0] in letters else {})
            for key, amounts in self.pending.items():
                pending.update(amounts if key[0] in letters else {})
            queue = state.queues[path]
            assert dict(types.to_resources(queue.used)) == dict(used)
            shown = dict(types.to_resources(queue.pending))
            shown.pop(shapes.OTHER_TYPES, None)
            offered = set(POOL) - set(types.find_unoffered(POOL))
            assert {t: a for t, a in shown.items() if t in offered} == {
                t: a for t, a in pending.items() if t in offered
            }
            assert all(amount <= pending[t] for t, amount in shown.items())
        assert dict(types.to_resources(state.queues["root.b"].max)) == {self.configured: 1000}
        for key, amounts in self.pending.items():
            assert key in state.requests
            for name in self.nodes:
                free = self.free(name)
                assert any(amount > free[t] for t, amount in amounts.items()), f"{key} fits {name} and waits"


@pytest.mark.parametrize("first", mark_rest_long(range(0, 40, 10)))
def test_types_come_and_go(first: int) -> None:
    refused = taken_in = 0
    for seed in range(first, first + 10):
        cluster = Cluster(seed)
        for _ in range(150):
            cluster.step()
        refused, taken_in = refused + cluster.refused, taken_in + cluster.taken_in
    assert refused > 20
    assert taken_in > 20


def test_the_same_types_come_and_go_in_every_process() -> None:
    """Which index a type gets follows from what was said, and from nothing else."""
    names = []
    for _ in range(2):
        cluster = Cluster(7)
        for _ in range(150):
            cluster.step()
        names.append(cluster.state.types.names)
    assert names[0] == names[1]
