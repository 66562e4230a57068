"""What somebody may cost who has registered: large requests that look lawful, and many of them at once."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import pytest

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import configuration_pb2 as pb
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from kornel.v1.manager_pb2 import UnregisterResourceManagerRequest
from kornel.v1.manager_pb2_grpc import ManagerServiceStub
from tests.e2e.harness import CONFIG, application_request, resource
from tests.hostile.attacked import AttackedCore
from tests.hostile.test_grpc_requests import ALLOCATION, OPTIONS

APPLICATION = "/si.v1.Scheduler/UpdateApplication"
NODE = "/si.v1.Scheduler/UpdateNode"


def send(core: AttackedCore, method: str, first: bytes, raw: bytes) -> grpc.StatusCode:
    """How a stream of the manager ends, over a connection of its own, that brings *raw* after it was accepted."""
    with grpc.insecure_channel(core.address, OPTIONS) as channel:
        accepted = threading.Event()

        def requests() -> Iterator[bytes]:
            yield first
            accepted.wait(2)  # Whoever is not accepted by then is judged as a stranger.
            yield raw

        stream: Any = channel.stream_stream(method)
        calling = stream(requests(), timeout=30)
        with suppress(grpc.RpcError):
            for _ in calling:
                accepted.set()
        code: grpc.StatusCode = calling.code()
        return code


def test_large_requests_over_many_connections(core: AttackedCore) -> None:
    """Six of 38 MB: together they are more than may be ahead, so the furthest are cut."""
    name = si.AllocationRequest(rmID="rm-1").SerializeToString()
    raw = name + b"\x22\x00" * 19_000_000
    codes: list[grpc.StatusCode] = []
    # A message is held in parts and as a whole, so 128 MiB ahead may take twice that.
    with core.attack(refused_bytes=6 * len(raw), memory_mib=448, health_s=1.0):
        senders = [threading.Thread(target=lambda: codes.append(send(core, ALLOCATION, name, raw))) for _ in range(6)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    assert grpc.StatusCode.OK not in codes


def test_applications_of_users_with_very_many_groups(core: AttackedCore) -> None:
    """200 of 19,000 groups each: refused one by one, as no directory gives anybody as many."""
    template = application_request("app").new[0]
    request = si.ApplicationRequest(rmID="rm-1")
    for number in range(200):
        application = request.new.add()
        application.CopyFrom(template)
        application.applicationID = f"crowd-{number}"
        application.ugi.groups.extend(f"g{group}" for group in range(19_000))
    raw = request.SerializeToString()
    with core.attack(refused_bytes=len(raw), memory_mib=112, health_s=0.5):
        assert send(core, APPLICATION, si.ApplicationRequest(rmID="rm-1").SerializeToString(), raw) is not None


@pytest.mark.parametrize("field", ["applicationID", "partitionName", "taskGroupName"])
def test_asks_with_names_of_a_megabyte_leave_nothing(core: AttackedCore, field: str) -> None:
    """Hundred asks, one after the other, each with another name and each refused. Kept for the next ask of its kind,
    each would take three times what it weighs."""
    answered: queue.SimpleQueue[si.AllocationResponse] = queue.SimpleQueue()
    numbers = iter(range(100))

    def requests() -> Iterator[si.AllocationRequest]:
        for number in numbers:
            ask = si.Allocation(allocationKey=f"long-{number}", resourcePerAlloc=resource(vcore=1))
            setattr(ask, field, f"{number}" + "x" * 1_000_000)
            yield si.AllocationRequest(rmID="rm-1", allocations=[ask])
            answered.get(timeout=20)

    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack(refused_bytes=100_000_000):
        for answer in si_pb2_grpc.SchedulerStub(channel).UpdateAllocation(requests(), timeout=60):
            assert answer.rejected or answer.rejectedAllocations
            answered.put(answer)


def test_nodes_with_very_many_allocations_of_their_own(core: AttackedCore) -> None:
    """Twenty that bring 4,900 each, all of them empty: 200 KB, and lawful but for the allocations."""
    name = si.NodeRequest(rmID="rm-1").SerializeToString()
    node = si.NodeInfo(nodeID="laden", action=si.NodeInfo.CREATE).SerializeToString() + b"\x32\x00" * 4_900
    raw = name + si.NodeRequest(nodes=[si.NodeInfo.FromString(node)] * 20).SerializeToString()
    with core.attack(processor_s=6, health_s=0.5):
        assert send(core, NODE, name, raw) is not None


def test_answers_that_the_manager_never_reads(core: AttackedCore) -> None:
    """Entries with long names over all three streams, each of them refused: they are read no further than 16 MiB of
    answers wait."""
    name = "never-reads"
    pad = "\U0001f600" * 1_000
    ended = threading.Event()

    def allocations() -> Iterator[si.AllocationRequest]:
        entry = si.Allocation(applicationID=pad, resourcePerAlloc=resource(vcore=1))
        while not ended.is_set():
            request = si.AllocationRequest(rmID=name, allocations=[entry] * 200)
            for number, asked in enumerate(request.allocations):
                asked.allocationKey = f"{pad}{number}"
            yield request

    def applications() -> Iterator[si.ApplicationRequest]:
        entry = si.AddApplicationRequest(applicationID=pad, queueName=f"root.{pad}", partitionName="default")
        while not ended.is_set():
            yield si.ApplicationRequest(rmID=name, new=[entry] * 200)

    def nodes() -> Iterator[si.NodeRequest]:
        entry = si.NodeInfo(nodeID=pad, action=si.NodeInfo.CREATE, schedulableResource=resource(vcore=-1))
        while not ended.is_set():
            yield si.NodeRequest(rmID=name, nodes=[entry] * 200)

    # Three times 16 MiB, and as much again of what is on its way between client and engine.
    with ExitStack() as opened, core.attack(memory_mib=128, processor_s=30):
        channel = opened.enter_context(grpc.insecure_channel(core.address, OPTIONS))
        si_pb2_grpc.SchedulerStub(channel).RegisterResourceManager(
            si.RegisterResourceManagerRequest(rmID=name, config=CONFIG), timeout=60
        )
        calls: list[Any] = []
        for method, requests in ((ALLOCATION, allocations), (APPLICATION, applications), (NODE, nodes)):
            channel = opened.enter_context(grpc.insecure_channel(core.address, OPTIONS))
            calling: Any = channel.stream_stream(method, request_serializer=lambda request: request.SerializeToString())
            calls.append(calling(requests()))
        ended.wait(15)
        ended.set()
        for call in calls:
            call.cancel()
        ManagerServiceStub(channel).UnregisterResourceManager(UnregisterResourceManagerRequest(rm_id=name), timeout=60)


def test_updating_very_many_queues(core: AttackedCore) -> None:
    """All 60,000 change, and then go again: a few at a time, while what the shim brings waits."""
    few = CONFIG + "          - {name: x}\n"
    queues = "".join(f"          - {{name: q{number}}}\n" for number in range(60_000))
    limited = queues.replace("}\n", ", maxapplications: 3}\n")
    with grpc.insecure_channel(core.address) as channel, core.attack(memory_mib=512, processor_s=30):
        update = ConfigurationServiceStub(channel).UpdateConfiguration
        for text in (CONFIG + queues, CONFIG + limited, few):
            update(pb.UpdateConfigurationRequest(rm_id="rm-1", config=text), timeout=120)


def test_registering_very_many_queues(core: AttackedCore) -> None:
    """They are built beside those in force, a few at a time, and the core ends within its grace. The last test: it
    takes the place of the bystander."""
    queues = "".join(f"          - {{name: q{number}}}\n" for number in range(60_000))
    assert core.bystander is not None
    core.bystander.close()
    core.bystander = None
    with grpc.insecure_channel(core.address) as channel, core.attack(memory_mib=512, processor_s=20, health_s=0.5):
        register = si_pb2_grpc.SchedulerStub(channel).RegisterResourceManager
        for text in (CONFIG + queues, CONFIG + queues + "# again\n"):
            register(si.RegisterResourceManagerRequest(rmID="rm-1", config=text), timeout=120)
    began = time.monotonic()
    core.process.send_signal(signal.SIGTERM)
    assert core.process.wait(30) == 0
    assert time.monotonic() - began < 5
