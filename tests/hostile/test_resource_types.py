"""Made-up resource types by the hundred thousand: they cost the asks that name them, and nobody else."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Final

import grpc

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1.configuration_pb2 import UpdateConfigurationRequest
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from tests.e2e.harness import CONFIG, allocation_request, ask, create, node_request, release_request
from tests.hostile.attacked import AttackedCore
from tests.hostile.test_grpc_requests import OPTIONS

ROUNDS: Final = 40
ASKS: Final = 20
TYPES: Final = 100
LONG_ASKS: Final = 250
PATIENCE_S: Final = 60


def requests() -> Iterator[si.AllocationRequest]:
    """Asks with types that nobody has ever heard of, and their ends; the last ones stay."""
    for number in range(ROUNDS):
        asks = [ask(f"hostile-{number}-{at}", vcore=1) for at in range(ASKS)]
        for at, request in enumerate(asks):
            for t in range(TYPES):
                request.resourcePerAlloc.resources[f"example.com/{number}-{at}-{t}"].value = 1
        yield allocation_request(*asks)
        if number < ROUNDS - 1:
            yield release_request(
                *(
                    si.AllocationRelease(
                        applicationID="app",
                        allocationKey=request.allocationKey,
                        terminationType=si.STOPPED_BY_RM,
                    )
                    for request in asks
                )
            )


def test_made_up_types_lock_nobody_out(core: AttackedCore) -> None:
    """80,000 types in asks that come and go: memory and health hold, and a node with a new type is accepted."""
    with grpc.insecure_channel(core.address) as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        with core.attack(processor_s=10):
            for answer in stub.UpdateAllocation(requests(), timeout=PATIENCE_S):
                assert not answer.rejectedAllocations
        node = create("gpus", vcore=1)
        node.schedulableResource.resources["example.com/gpu"].value = 8
        taken = next(iter(stub.UpdateNode(iter([node_request(node)]), timeout=PATIENCE_S)))
        assert [accepted.nodeID for accepted in taken.accepted] == ["gpus"]


def test_large_demands_of_withdrawn_asks_leave_little(core: AttackedCore) -> None:
    """Asks of a thousand types, each with a name of 800 letters, and each withdrawn before the next one comes, so that
    the core never has more than one of them. Each is nearly a megabyte, several times in memory while it is read."""
    answered: queue.SimpleQueue[si.AllocationResponse] = queue.SimpleQueue()

    def requests() -> Iterator[si.AllocationRequest]:
        for number in range(LONG_ASKS):
            request = ask(f"long-{number}", vcore=1)
            for t in range(1_000):
                request.resourcePerAlloc.resources[f"{number}-{t}".ljust(800, "x")].value = 1
            yield allocation_request(request)
            end = release_request(
                si.AllocationRelease(
                    applicationID="app", allocationKey=request.allocationKey, terminationType=si.STOPPED_BY_RM
                )
            )
            end.allocations.add(allocationKey="asks-for-nothing", applicationID="app")  # Only a refusal is answered.
            yield end
            answered.get(timeout=20)

    with grpc.insecure_channel(core.address, OPTIONS) as channel:
        few = {"event.ringBufferCapacity": "1000"}  # Events are bounded by themselves, and no part of this.
        update = UpdateConfigurationRequest(rm_id="rm-1", config=CONFIG, extra_config=few)
        ConfigurationServiceStub(channel).UpdateConfiguration(update, timeout=PATIENCE_S)
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack(processor_s=20, memory_mib=80):
        refused = []
        for answer in si_pb2_grpc.SchedulerStub(channel).UpdateAllocation(requests(), timeout=PATIENCE_S):
            refused += [entry.allocationKey for entry in answer.rejectedAllocations]
            answered.put(answer)
        assert refused == ["asks-for-nothing"] * LONG_ASKS


def test_asks_with_tens_of_thousands_of_types_are_refused(core: AttackedCore) -> None:
    """Thirty asks of 60,000 types each: nothing of them is kept, and none holds up the others."""
    asks = []
    for number in range(30):
        request = ask(f"hostile-{number}", vcore=1)
        for t in range(60_000):
            request.resourcePerAlloc.resources[f"{number}t{t:x}"].value = 1
        asks.append(allocation_request(request))
    with grpc.insecure_channel(core.address) as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        with core.attack(refused_bytes=sum(request.ByteSize() for request in asks)):
            answers = stub.UpdateAllocation(iter(asks), timeout=PATIENCE_S)
            refused = [entry.reason for answer in answers for entry in answer.rejectedAllocations]
        assert len(refused) == 30
        assert all("more than 1024 resource types" in reason for reason in refused)


def test_nodes_with_too_many_types_are_refused(core: AttackedCore) -> None:
    """Twenty nodes with 2,000 types each: each is refused, and says why."""
    requests = []
    for number in range(20):
        node = create(f"hostile-{number}", vcore=1)
        for t in range(2_000):
            node.schedulableResource.resources[f"example.com/{number}-{t}"].value = 1
        requests.append(node_request(node))
    with grpc.insecure_channel(core.address) as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        with core.attack(refused_bytes=sum(request.ByteSize() for request in requests)):
            answers = stub.UpdateNode(iter(requests), timeout=PATIENCE_S)
            refused = [entry.reason for answer in answers for entry in answer.rejected]
            assert len(refused) == 20
            assert all("more than 1024 resource types in one partition" in reason for reason in refused)
