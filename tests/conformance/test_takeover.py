"""Cases 158 and 159 with real programs: the simulated cluster takes over from the example shim at a served core."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kornel.shim_mock.run import RM_ID
from kornel.v1 import manager_pb2, manager_pb2_grpc, status_pb2, status_pb2_grpc
from tests.conformance.processes import finished, running, served_core
from tests.patience import PATIENCE_S
from tests.prepared import kill_program
from tests.waiting import wait_until

SCENARIO = """
name: successor
queues: {partitions: [{name: default, queues: [{name: root, submitacl: "*", queues: [{name: a}]}]}]}
nodes: [{name: node, count: 2, resources: {vcore: 4}}]
applications: [{id: work, queue: root.a, tasks: [{name: worker, count: 6, resources: {vcore: 1}, runtime: 500ms}]}]
settle: 200ms
expectations: [all pods placed within 2m, no law violations, nothing lost]
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A core in a process of its own."""
    with served_core(tmp_path) as where:
        yield where


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """What the successor does."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return str(path)


def status(address: str) -> status_pb2.GetStatusResponse:
    with grpc.insecure_channel(address) as channel:
        return status_pb2_grpc.StatusServiceStub(channel).GetStatus(
            status_pb2.GetStatusRequest(audit=True), timeout=PATIENCE_S
        )


def works(address: str) -> bool:
    """Whether the example has all running that its node has room for."""
    return any(partition.allocation_count == 4 for partition in status(address).partitions)


def test_another_program_takes_over_the_same_rm(address: str, scenario: str, tmp_path: Path) -> None:
    """It begins afresh, gets all it asks for, and its books agree with the core's."""
    with running(
        "kornel.shim_client.example", "--core", address, "--rm-id", RM_ID, log=tmp_path / "example.log"
    ) as example:
        wait_until(lambda: works(address), "the example to have its tasks running")
        # Two programs must not speak for one RM: the first one ends before it could report anything again.
        kill_program(example)
        done = finished("kornel.shim_mock", "run", scenario, "--core", address)
    assert done.returncode == 0, done.stdout + done.stderr
    after = status(address)
    assert after.rm_id == RM_ID
    assert [partition.invariant_violations for partition in after.partitions] == [0]


def test_another_rm_takes_over_after_the_first_is_unregistered(address: str, scenario: str, tmp_path: Path) -> None:
    """Before that it is served beside the first one, or refused, and changes nothing of it."""
    with running(
        "kornel.shim_client.example", "--core", address, "--rm-id", "first", log=tmp_path / "example.log"
    ) as example:
        wait_until(lambda: works(address), "the example to have its tasks running")
        beside = finished("kornel.shim_mock", "run", scenario, "--core", address)
        assert beside.returncode in (0, 2), beside.stdout + beside.stderr
        assert works(address)
        # The example would register again as soon as it is told that it is unknown.
        kill_program(example)
        with grpc.insecure_channel(address) as channel:
            manager = manager_pb2_grpc.ManagerServiceStub(channel)
            try:
                manager.UnregisterResourceManager(
                    manager_pb2.UnregisterResourceManagerRequest(rm_id="first"), timeout=PATIENCE_S
                )
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    pytest.skip("the core does not serve kornel.v1.ManagerService")
                raise
        done = finished("kornel.shim_mock", "run", scenario, "--core", address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert status(address).rm_id == RM_ID
