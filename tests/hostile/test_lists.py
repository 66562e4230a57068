"""Long lists and audits over gRPC, as many at once as one connection may have: whoever asks for health goes between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import grpc
import pytest

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import read_pb2, read_pb2_grpc, status_pb2, status_pb2_grpc
from tests.bench.core_process import node_infos
from tests.hostile.attacked import AttackedCore, attacked_core

NODES: Final = 5_000
AT_ONCE: Final = 30
OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


@pytest.fixture(scope="module")
def large_core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCore]:
    """A core with 5,000 nodes."""
    with attacked_core(tmp_path_factory.mktemp("large")) as core, grpc.insecure_channel(core.address) as channel:
        requests = (
            si.NodeRequest(rmID="rm-1", nodes=node_infos(NODES, si.NodeInfo.CREATE)[first : first + 500])
            for first in range(0, NODES, 500)
        )
        taken = 0
        for response in si_pb2_grpc.SchedulerStub(channel).UpdateNode(requests):
            taken += len(response.accepted)
            if taken == NODES:
                break
        yield core


def test_lists_at_once(large_core: AttackedCore) -> None:
    wanted = read_pb2.ListNodesRequest(page_size=NODES)
    with grpc.insecure_channel(large_core.address, OPTIONS) as channel, large_core.attack(processor_s=10):
        call = read_pb2_grpc.ReadServiceStub(channel).ListNodes
        futures = [call.future(wanted, timeout=60) for _ in range(AT_ONCE)]
        assert {len(future.result().nodes) for future in futures} == {NODES}


def test_audits_at_once(large_core: AttackedCore) -> None:
    wanted = status_pb2.GetStatusRequest(audit=True)
    with grpc.insecure_channel(large_core.address, OPTIONS) as channel, large_core.attack(processor_s=10):
        call = status_pb2_grpc.StatusServiceStub(channel).GetStatus
        futures = [call.future(wanted, timeout=60) for _ in range(AT_ONCE)]
        assert {future.code() for future in futures} == {grpc.StatusCode.OK}
