"""Applications that wait for nothing share their empty containers, so that a hundred thousand of them take little."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.model import applications as module
from kornel.core.model.applications import Application
from kornel.core.model.orders import group_order

PARTITION = "[rm]default"
CONFIG = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
MANY = 1_000
MOST_BLOCKS = 16
"""The most blocks of memory of an application without asks: its spec and ID included, the shim's texts not."""
MOST_WAITING_BYTES = 4_096
"""The most bytes of an application with two asks, with all that the engine knows of it: specs and texts included."""

SHARED = (
    module.NOBODY_WAITS, module.NOTHING_LENT, module.NOTHING_SPENT, module.NO_GROUPS, module.NO_REQUESTS,
    module.NO_TASK_GROUPS, group_order.NONE_OFFERED, group_order.NO_ENTRIES,
)  # fmt: skip


def engine_with_node() -> Engine:
    engine = Engine()
    engine.apply(RegisterManager("rm", CONFIG), 0)
    capacity = Resources({"vcore": 10 * MANY, "memory": 1 << 40})
    engine.apply(UpdateNodes("rm", (NodeSpec("n", NodeAction.CREATE, PARTITION, capacity=capacity),)), 0)
    return engine


def added(start: int, end: int) -> tuple[ApplicationSpec, ...]:
    return tuple(ApplicationSpec(f"app-{n}", "root.a", PARTITION, user="ann") for n in range(start, end))


def wait(engine: Engine, start: int, end: int) -> None:
    """Adds applications, a hundred in each message, with two asks that find no room."""
    for at in range(start, end, 100):
        specs = added(at, at + 100)
        engine.apply(UpdateApplications("rm", specs), 0)
        asks = tuple(
            AllocationSpec(
                f"ask-{spec.application_id}-{n}",
                spec.application_id,
                PARTITION,
                Resources({"vcore": 11 * MANY, "memory": 1 << 30}),
            )
            for spec in specs
            for n in range(2)
        )
        engine.apply(UpdateAllocations("rm", asks), 0)
        while engine.cycle(1, 100).more:
            pass


def containers(application: Application) -> list[object]:
    order = application.order
    return [
        application.asks, application.groups, application.task_groups, application.backoff_room,
        application.held_groups, application.spent, application._lower, order.groups, order._entries,
    ]  # fmt: skip


def test_an_application_takes_few_blocks_of_memory() -> None:
    """What it has nothing in is not made."""
    engine = engine_with_node()
    engine.apply(UpdateApplications("rm", added(0, MANY)), 0)
    specs = added(MANY, 2 * MANY)
    gc.collect()
    before = sys.getallocatedblocks()
    effects = engine.apply(UpdateApplications("rm", specs), 0)
    effects.clear()
    assert (sys.getallocatedblocks() - before) / MANY <= MOST_BLOCKS


def test_an_application_whose_asks_are_placed_gives_its_containers_back() -> None:
    """All that is left of asks that were placed are the allocations."""
    engine = engine_with_node()
    state = engine.partition(PARTITION)
    assert state is not None
    engine.apply(UpdateApplications("rm", added(0, 2)), 0)
    first, second = state.applications.values()
    size = Resources({"vcore": 1})
    asks = tuple(
        AllocationSpec(f"k-{n}", f"app-{n % 2}", PARTITION, size, priority=n % 4, required_node="" if n < 8 else "x")
        for n in range(9)
    )
    engine.apply(UpdateAllocations("rm", asks), 0)
    assert all(len(found) > 0 for found in (first.asks, first.groups, first._lower, first.order.groups))  # type: ignore[arg-type]
    while engine.cycle(1, 10).more:
        pass
    assert len(first.allocations) == len(second.allocations) == 4
    assert all(any(found is shared for shared in SHARED) for found in containers(second))
    assert list(first.asks) == ["k-8"]
    assert second.priority < 0
    assert not any(SHARED)


@pytest.mark.long
def test_a_waiting_application_takes_little_memory() -> None:
    """One with two asks of a size that no node has room for, each with amounts of its own, as a journal brings them."""
    engine = engine_with_node()
    tracemalloc.start(1)
    try:
        wait(engine, 0, MANY)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        wait(engine, MANY, 3 * MANY)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    state = engine.partition(PARTITION)
    assert state is not None
    assert all(len(application.asks) == 2 for application in state.applications.values())
    assert taken / (2 * MANY) <= MOST_WAITING_BYTES
