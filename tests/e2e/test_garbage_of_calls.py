"""A call leaves nothing behind, however busy the core is with asks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any, Final

import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.core.service.machine.garbage import FREEZE_EVERY, GarbageKeeper
from tests.e2e.harness import running_core
from tests.patience import PATIENCE_S
from tests.waiting import until

CALLS: Final = 60
CALLS_AT_ONCE: Final = 4


@pytest.fixture
def keeper() -> Iterator[GarbageKeeper]:
    """One that works. The collector is left as it was found."""
    thresholds = gc.get_threshold()
    yield GarbageKeeper()
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def remembered_calls() -> int:
    """How many calls gRPC's Python objects still describe, those set aside among them."""
    gc.unfreeze()
    return sum(type(each).__name__ == "_HandlerCallDetails" for each in gc.get_objects())


@pytest.mark.parametrize("method", ["/grpc.health.v1.Health/Check", "/nobody.v1.Knows/This"])
async def test_calls_of_a_busy_core_are_forgotten(keeper: GarbageKeeper, method: str) -> None:
    """gRPC describes each call in a reference cycle, which must be freed before everything is set aside."""
    async with running_core(garbage=keeper) as core:
        check: Any = core.channel.unary_unary(method)
        await HealthStub(core.channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)  # type: ignore[attr-defined]
        gc.collect()
        before = remembered_calls()
        gc.freeze()
        tasks = len(asyncio.all_tasks())
        for number in range(CALLS):
            calling = check(b"", timeout=PATIENCE_S)
            await calling.code()
            # The client knows the end of a call before the core is through with it.
            await until(lambda: len(asyncio.all_tasks()) <= tasks, "the call to be over")
            if number % CALLS_AT_ONCE == 0:
                keeper.count_stored(FREEZE_EVERY)
        assert remembered_calls() <= before + 2 * CALLS_AT_ONCE
