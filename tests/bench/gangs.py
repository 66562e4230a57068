"""Gangs: placeholders are placed, real asks take their places, the shim confirms (scheduling.md 10)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, Effect, Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2, si_pb2_grpc
from tests.bench import core_process
from tests.bench.core_process import RM

PARTITION = f"[{RM}]default"
AMOUNTS = {"vcore": 1_000, "memory": 1 << 30}


@dataclass(frozen=True, slots=True)
class Workload:
    """*gangs* applications with *members* placeholders each, and as many real asks."""

    gangs: int = 1_000
    members: int = 10
    nodes: int = 1_000
    batch: int = 500

    @property
    def total(self) -> int:
        return self.gangs * self.members

    def members_of_all(self, kind: str) -> list[tuple[str, str]]:
        """(application, key) of every placeholder or real ask."""
        return [(f"app-{gang}", f"{kind}-{gang}-{n}") for gang in range(self.gangs) for n in range(self.members)]


def engine_alone(workload: Workload) -> float:
    """Members per second of processor time, from the placeholders' asks to the last confirmation."""
    engine = Engine()
    engine.apply(RegisterManager(RM, core_process.flat_queues(2)), 0)
    capacity = Resources({"vcore": 16_000, "memory": 64 << 30})
    nodes = (NodeSpec(f"node-{n:05}", NodeAction.CREATE, PARTITION, capacity=capacity) for n in range(workload.nodes))
    engine.apply(UpdateNodes(RM, tuple(nodes)), 0)
    whole = Resources({name: amount * workload.members for name, amount in AMOUNTS.items()})
    added = tuple(
        ApplicationSpec(f"app-{n}", f"root.q{n % 2}", PARTITION, user="bench", placeholder_ask=whole)
        for n in range(workload.gangs)
    )
    engine.apply(UpdateApplications(RM, added), 0)
    size = Resources(AMOUNTS)

    def asks(kind: str, *, placeholder: bool) -> UpdateAllocations:
        specs = [
            AllocationSpec(key, name, PARTITION, size, task_group="members", placeholder=placeholder)
            for name, key in workload.members_of_all(kind)
        ]
        return UpdateAllocations(RM, tuple(specs))

    holding, real = asks("holder", placeholder=True), asks("real", placeholder=False)
    began = time.process_time()
    engine.apply(holding, 1)
    _expect(workload, sum(isinstance(effect, Allocated) for effect in _cycles(engine)), "placeholders were placed")
    engine.apply(real, 2)
    confirmed = 0
    for effect in _cycles(engine):
        if isinstance(effect, Released):
            ended = ReleaseSpec(
                PARTITION, effect.application_id, effect.key, termination=TerminationType.PLACEHOLDER_REPLACED
            )
            answers = engine.apply(UpdateAllocations(RM, releases=(ended,)), 3)
            confirmed += sum(isinstance(answer, Allocated) for answer in answers)
    took = time.process_time() - began
    _expect(workload, confirmed, "members took the place of their placeholder")
    return workload.total / took


def _cycles(engine: Engine) -> list[Effect]:
    effects: list[Effect] = []
    more = True
    while more:
        result = engine.cycle(2, 500)
        effects += result.effects
        more = result.more
    return effects


def _expect(workload: Workload, count: int, what: str) -> None:
    if count != workload.total:
        raise AssertionError(f"{count} of {workload.total} {what}")


async def over_grpc(workload: Workload) -> float:
    """The same over gRPC, per second."""
    async with core_process.connected() as (stub, _, _):
        await core_process.register(stub, core_process.flat_queues(2))
        await core_process.report_nodes(stub, core_process.node_infos(workload.nodes, si_pb2.NodeInfo.CREATE))
        whole = make_resource(**{name: amount * workload.members for name, amount in AMOUNTS.items()})
        await core_process.add_applications(
            stub,
            (
                core_process.application(f"app-{n}", f"root.q{n % 2}", placeholderAsk=whole)
                for n in range(workload.gangs)
            ),
        )
        return await _run_gangs(stub, workload)


async def _run_gangs(stub: si_pb2_grpc.SchedulerAsyncStub, workload: Workload) -> float:
    holding, real = _ask_messages(workload, "holder"), _ask_messages(workload, "real")
    stream: Any = stub.UpdateAllocation()
    # Asks and confirmations are sent at the same time, and a stream takes one message at a time.
    writing = asyncio.Lock()
    began = time.perf_counter()

    async def send(messages: list[si_pb2.AllocationRequest]) -> None:
        for message in messages:
            async with writing:
                await stream.write(message)

    sender = asyncio.create_task(send(holding))
    placed = 0
    while placed < workload.total:
        placed += len((await stream.read()).new)
    await sender
    sender = asyncio.create_task(send(real))
    replaced = 0
    while replaced < workload.total:
        response = await stream.read()
        replaced += len(response.new)
        if response.released:
            ended = si_pb2.AllocationReleasesRequest(allocationsToRelease=response.released)
            await send([si_pb2.AllocationRequest(rmID=RM, releases=ended)])
    took = time.perf_counter() - began
    await sender
    await stream.done_writing()
    return workload.total / took


def _ask_messages(workload: Workload, kind: str) -> list[si_pb2.AllocationRequest]:
    size = make_resource(**AMOUNTS)
    asks = [
        si_pb2.Allocation(
            allocationKey=key,
            applicationID=name,
            resourcePerAlloc=size,
            taskGroupName="members",
            placeholder=kind == "holder",
        )
        for name, key in workload.members_of_all(kind)
    ]
    return [
        si_pb2.AllocationRequest(rmID=RM, allocations=asks[start : start + workload.batch])
        for start in range(0, len(asks), workload.batch)
    ]
