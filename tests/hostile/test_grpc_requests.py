"""Requests that cost more than they weigh, by callers who may send them: empty entries, nesting, extreme numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2
from tests.e2e.harness import application_request, resource
from tests.hostile.attacked import AttackedCore, attacked_core

ALLOCATION: Final = "/si.v1.Scheduler/UpdateAllocation"
OPTIONS: Final = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


EMPTY: Final = {
    "allocations": (ALLOCATION, b"\x22\x00"),
    "asks": (ALLOCATION, b"\x0a\x00"),
    "releases": (ALLOCATION, b"\x12\x02\x0a\x00"),
    "applications": ("/si.v1.Scheduler/UpdateApplication", b"\x0a\x00"),
    "removals": ("/si.v1.Scheduler/UpdateApplication", b"\x12\x00"),
    "nodes": ("/si.v1.Scheduler/UpdateNode", b"\x0a\x00"),
    "answers": ("/kornel.v1.CallbackService/Attach", b"\x12\x00"),
    "settings of a manager": ("/si.v1.Scheduler/RegisterResourceManager", b"\x32\x00"),
    "settings": ("/kornel.v1.ConfigurationService/UpdateConfiguration", b"\x2a\x00"),
    "filters": ("/kornel.v1.EventService/WatchEvents", b"\x0a\x00"),
    "questions": ("/kornel.v1.StatusService/GetStatus", b"\x0a\x00"),
    "what-ifs": ("/kornel.v1.ExplainService/WhatIf", b"\x0a\x00"),
    "lists": ("/kornel.v1.ReadService/ListApplications", b"\x0a\x00"),
    "histories": ("/kornel.v1.HistoryService/ListEvents", b"\x0a\x00"),
    "drains": ("/kornel.v1.AdminService/DrainNode", b"\x0a\x00"),
    "ends": ("/kornel.v1.ManagerService/UnregisterResourceManager", b"\x0a\x00"),
    "healths": ("/grpc.health.v1.Health/Check", b"\x0a\x00"),
    "reflections": ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", b"\x0a\x00"),
}


def end_of(
    channel: grpc.Channel,
    method: str,
    *requests: bytes,
    timeout_s: float = 30,
    metadata: Sequence[tuple[str, str]] = (),
) -> grpc.StatusCode:
    """How a call of *method* ends that sends *requests*; what it is answered is thrown away."""
    stream: Any = channel.stream_stream(method)
    calling = stream(iter(requests), timeout=timeout_s, metadata=metadata)
    with suppress(grpc.RpcError):
        for _ in calling:
            pass
    code: grpc.StatusCode = calling.code()
    return code


@pytest.mark.parametrize("name", EMPTY)
def test_ten_million_empty_entries(core: AttackedCore, name: str) -> None:
    """20 MB of them. Answers are parsed as a whole, because whoever sends them is trusted."""
    method, entry = EMPTY[name]
    raw = entry * (20_000_000 // len(entry))
    with (
        grpc.insecure_channel(core.address, OPTIONS) as channel,
        core.attack(
            refused_bytes=len(raw),
            memory_mib=640 if name == "answers" else 96,
            health_s=2.0 if name == "answers" else 0.25,
        ),
    ):
        assert end_of(channel, method, raw) is not grpc.StatusCode.OK


def test_ten_million_empty_entries_by_the_manager(core: AttackedCore) -> None:
    """Whose stream was accepted may send messages of 64 MiB: they cost what they weigh, three times, and no more."""
    name = si.AllocationRequest(rmID="rm-1").SerializeToString()
    raw = name + b"\x22\x00" * 19_000_000
    with grpc.insecure_channel(core.address, OPTIONS) as channel:

        def requests() -> Iterator[bytes]:
            yield name
            core.serves_bystander(allocations=False)
            yield raw

        with core.attack(refused_bytes=len(raw), memory_mib=128, health_s=0.5):
            stream: Any = channel.stream_stream(ALLOCATION)
            calling = stream(requests(), timeout=30)
            with suppress(grpc.RpcError):
                list(calling)
            assert calling.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def nested(depth: int, tag: int = 1) -> bytes:
    raw = b""
    for _ in range(depth):
        raw = bytes([tag << 3 | 2]) + varint(len(raw)) + raw
    return raw


@pytest.mark.parametrize("name", EMPTY)
def test_deep_nesting(core: AttackedCore, name: str) -> None:
    """A message in a message, 10,000 deep; and groups, which no interface has, as deep."""
    method, _ = EMPTY[name]
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack():
        for tag in (1, 2, 4, 15):
            end_of(channel, method, nested(10_000, tag), timeout_s=1)  # Some are watches, and stay open.
        end_of(channel, method, b"\x7b" * 30_000, timeout_s=1)
        end_of(channel, method, b"\x7b" * 100_000, timeout_s=1)


NUMBERS: Final = (-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1)


def test_extremes_of_every_number(core: AttackedCore) -> None:
    """Sizes, priorities, times and counts at both ends of what a field holds."""
    rm_id = "rm-1"
    clipped = [max(-(2**31), min(2**31 - 1, number)) for number in NUMBERS]
    allocations = si.AllocationRequest(
        rmID=rm_id,
        allocations=[
            si.Allocation(
                allocationKey=f"extreme-{number}-{small}",
                applicationID="app",
                priority=small,
                resourcePerAlloc=resource(vcore=number),
                allocationTags={"creationTime": str(number)},
            )
            for number in NUMBERS
            for small in clipped
        ],
        asks=[
            si.AllocationAsk(
                allocationKey=f"older-{number}",
                applicationID="app",
                maxAllocations=number,
                priority=number,
                resourceAsk=resource(vcore=2**62),
            )
            for number in clipped
        ],
    )
    nodes = si.NodeRequest(
        rmID=rm_id,
        nodes=[
            si.NodeInfo(nodeID=f"extreme-{n}", action=n % 7, schedulableResource=resource(vcore=n)) for n in NUMBERS
        ],  # type: ignore[arg-type]
    )
    applications = application_request("extreme")
    applications.new[0].executionTimeoutMilliSeconds = 2**63 - 1
    answers = [
        callback_pb2.AttachRequest(subscription=callback_pb2.Subscription(rm_id=rm_id, timeout_ms=number))
        for number in NUMBERS
    ]
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack(processor_s=3):
        end_of(channel, "/si.v1.Scheduler/UpdateNode", nodes.SerializeToString())
        end_of(channel, "/si.v1.Scheduler/UpdateApplication", applications.SerializeToString())
        end_of(channel, ALLOCATION, allocations.SerializeToString())
        for answer in answers:
            end_of(channel, "/kornel.v1.CallbackService/Attach", answer.SerializeToString())


def test_asks_that_mean_ten_thousand(core: AttackedCore) -> None:
    """Two hundred asks of 10,000 allocations each: a few are taken, the others are refused."""
    asks = [
        si.AllocationAsk(
            allocationKey=f"many-{number}",
            applicationID="app",
            maxAllocations=10_000,
            resourceAsk=resource(vcore=2**40),
        )
        for number in range(200)
    ]
    raw = si.AllocationRequest(rmID="rm-1", asks=asks).SerializeToString()
    # Ten thousand allocations are made in one go.
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack(processor_s=5, health_s=1.0):
        assert end_of(channel, ALLOCATION, raw) is grpc.StatusCode.OK


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCore]:
    """A core that asks who calls; its bystander shows a token."""
    directory: Path = tmp_path_factory.mktemp("guarded")
    policy = directory / "security.yaml"
    policy.write_text("rules:\n  - who: [anonymous]\n    permissions: [read]\n", encoding="utf-8")
    with attacked_core(directory, "--security", str(policy), rest="off", open_=False) as attacked:
        yield attacked


def test_nothing_of_a_stranger_is_read(guarded: AttackedCore) -> None:
    """38 MB by somebody without a name are refused by who sends them, before any of it was read."""
    raw = b"\x22\x00" * 19_000_000
    before = guarded.memory_mib()
    with grpc.insecure_channel(guarded.address, OPTIONS) as channel:
        for method in (ALLOCATION, "/si.v1.Scheduler/UpdateNode", "/kornel.v1.CallbackService/Attach"):
            assert end_of(channel, method, raw) is grpc.StatusCode.UNAUTHENTICATED
    assert guarded.memory_mib() < before + 32
