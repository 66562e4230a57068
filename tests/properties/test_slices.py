"""Slices change nothing, nor does cleverness: budget 1 against one big cycle, the engine against plain rules."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.effects import Allocated
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.options import EngineOptions
from tests.driven_core import DrivenCore
from tests.examples import scale_examples
from tests.oracles.plain_scheduler import PlainApplication, PlainAsk, PlainNode, PlainQueue, PlainScheduler
from tests.properties.shim import PARTITION, RM, SECOND, WIDTH, Operation, Shim, random_history

EXTREME: Final = (-(2**31), 2**31 - 1, 1_500_000_000)
"""What is shown of them is cut at the ends of a 32-bit integer."""


def _effects(shim: Shim) -> list[str]:
    return [line for line in shim.log if not line.startswith("cycle")]


def _compare_slices(variant: int, history: list[Operation], *, gangs: bool) -> None:
    whole, sliced = (Shim(variant, preemption=False, gangs=gangs, budget=budget) for budget in (10**6, 1))
    for operation in history:
        for shim in (whole, sliced):
            shim.perform(operation)
            shim.settle()
    assert _effects(whole) == _effects(sliced)


@settings(max_examples=scale_examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 23), st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=15, max_size=100), st.booleans()
)
def test_slices_of_one_decide_like_one_cycle(variant: int, history: list[Operation], gangs: bool) -> None:
    """Without preemption many cycles of budget 1 give the effects of one big cycle, in the same order (S-20)."""
    _compare_slices(variant, history, gangs=gangs)


def test_slices_over_long_histories() -> None:
    """The same over long histories."""
    for seed in range(8):
        _compare_slices(seed, list(random_history(seed + 100, 250)), gangs=seed % 2 == 1)


@dataclass
class _Pair:
    """One random cluster twice: in the engine and under the plain rules."""

    dice: random.Random
    core: DrivenCore
    plain: PlainScheduler
    leaves: dict[str, PlainQueue]
    applications: dict[str, PlainApplication]
    arrivals: int = 0

    def ask(self) -> None:
        """Add a few asks at one moment, in one request."""
        specs: list[AllocationSpec] = []
        for _ in range(self.dice.randint(1, 12)):
            name = self.dice.choice(sorted(self.applications))
            amounts = {"vcore": self.dice.randint(0, 4), "memory": self.dice.randint(0, 3)}
            if not any(amounts.values()):
                continue
            self.arrivals += 1
            created = self.core.now_ns // SECOND - self.dice.choice((0, 0, 0, 1, 5))
            priority = self.dice.choice((0, 0, 0, 1, 2, *EXTREME))
            key = f"k{self.arrivals}"
            application = self.applications[name]
            application.asks.append(PlainAsk(key, amounts, priority, created, self.arrivals))
            application.submitted = min(application.submitted, created)
            specs.append(AllocationSpec(key, name, PARTITION, Resources(amounts), priority, created_s=created))
        self.core.send(*specs)

    def place(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """What the engine and the plain rules place now."""
        placed: list[tuple[str, str]] = []
        more = True
        while more:
            result = self.core.engine.cycle(self.core.now_ns, self.dice.randint(1, 20))
            placed += [(e.spec.key, e.node_id) for e in result.effects if isinstance(e, Allocated)]
            more = result.more
        return placed, self.plain.place_all()

    def release(self) -> None:
        running = [
            (name, ask)
            for name, application in sorted(self.applications.items())
            for ask in application.asks
            if ask.node
        ]
        for name, ask in self.dice.sample(running, len(running) // 3):
            self.plain.release(ask.key, ask.node)
            self.core.release(name, ask.key)


def _queues(dice: random.Random, depth: int) -> Iterator[PlainQueue]:
    """Random children of one parent."""
    for number in range(dice.randint(1, 3)):
        queue = PlainQueue(
            f"q{number}",
            guaranteed=_limits(dice, 3, 8),
            most=_limits(dice, 8, 20),
            fair=dice.random() < 0.5,
            by_priority=dice.random() < 0.7,
            offset=dice.choice((0, 0, 1, -1, *EXTREME)),
            fenced=dice.random() < 0.2,
        )
        if depth and dice.random() < 0.5:
            queue.children = list(_queues(dice, depth - 1))
            queue.guaranteed = {}
            queue.most = {name: 30 + amount for name, amount in queue.most.items()}
        yield queue


def _limits(dice: random.Random, least: int, most: int) -> dict[str, int]:
    return {name: dice.randint(least, most) for name in ("vcore", "memory") if dice.random() < 0.4}


def _yaml(queue: PlainQueue, indent: str) -> str:
    def amounts(values: dict[str, int]) -> str:
        return "{" + ", ".join(f"{n}: {v}m" if n == "vcore" else f"{n}: {v}" for n, v in values.items()) + "}"

    lines = [f"{indent}- name: {queue.name}"]
    if queue.name == "root":
        lines.append(f"{indent}  submitacl: '*'")
    limits = [(name, values) for name, values in (("guaranteed", queue.guaranteed), ("max", queue.most)) if values]
    if limits and queue.name != "root":
        lines += [f"{indent}  resources:", *(f"{indent}    {name}: {amounts(values)}" for name, values in limits)]
    sort, order = ("fair" if queue.fair else "fifo"), ("enabled" if queue.by_priority else "disabled")
    lines += [
        f"{indent}  properties:",
        f"{indent}    application.sort.policy: {sort}",
        f"{indent}    application.sort.priority: {order}",
        f'{indent}    priority.offset: "{queue.offset}"',
        f"{indent}    priority.policy: {'fence' if queue.fenced else 'default'}",
    ]
    if queue.children:
        lines += [f"{indent}  queues:", *(_yaml(child, indent + "    ") for child in queue.children)]
    return "\n".join(lines)


def _leaves(queue: PlainQueue, path: str) -> Iterator[tuple[str, PlainQueue]]:
    if not queue.children:
        yield path, queue
    for child in queue.children:
        yield from _leaves(child, f"{path}.{child.name}")


def _cluster(seed: int) -> _Pair:
    dice = random.Random(seed)
    root = PlainQueue("root", children=list(_queues(dice, 1)), by_priority=dice.random() < 0.7)
    binpacking = dice.random() < 0.5
    policy = "binpacking" if binpacking else "fair"
    text = (
        f"partitions:\n  - name: default\n    nodesortpolicy: {{type: {policy}}}\n"
        f"    queues:\n{_yaml(root, '      ')}\n"
    )
    core = DrivenCore(text, rm_id=RM, engine=Engine(EngineOptions(reservation_delay_ns=None)))
    nodes = [
        PlainNode(f"n{number}", {"vcore": dice.randint(3, 8), "memory": dice.randint(3, 8)})
        for number in range(dice.randint(1, 5))
    ]
    for node in nodes:
        core.node(node.name, node.total)
    leaves = dict(_leaves(root, "root"))
    pair = _Pair(dice, core, PlainScheduler(root, nodes, binpacking=binpacking), leaves, {})
    for path, leaf in leaves.items():
        for number in range(dice.randint(1, 3)):
            application = PlainApplication(f"{path}-{number}", dice.choice((98, 99, 100)))
            leaf.applications.append(application)
            pair.applications[application.name] = application
    for application in sorted(pair.applications.values(), key=lambda a: a.submitted):
        core.now_ns = application.submitted * SECOND
        core.application(application.name, application.name.rsplit("-", 1)[0])
    core.now_ns = 100 * SECOND
    return pair


@settings(max_examples=scale_examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_the_engine_places_like_the_plain_rules(seed: int) -> None:
    """The same asks go to the same nodes in the same order as when everything is sorted for every allocation."""
    pair = _cluster(seed)
    for _ in range(4):
        pair.core.now_ns += SECOND
        pair.ask()
        mine, plain = pair.place()
        assert mine == plain
        pair.release()
        mine, plain = pair.place()
        assert mine == plain
