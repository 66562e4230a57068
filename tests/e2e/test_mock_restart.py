"""The simulated cluster outlives its core: a core that is killed and started again gets everything reported again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from kornel.v1.read_pb2 import GetApplicationRequest
from kornel.v1.read_pb2_grpc import ReadServiceStub
from kornel.v1.status_pb2 import GetStatusRequest, PartitionStatus
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.test_command import environment, serving
from tests.patience import PATIENCE_S
from tests.prepared import kill_program, python
from tests.waiting import wait_until

SCENARIO = """
name: survivor
queues:
  partitions:
    - name: default
      queues:
        - name: root
          submitacl: "*"
          queues:
            - name: prod
              properties: {preemption.delay: 1s}
              resources: {guaranteed: {vcore: 4}}
            - name: batch
nodes:
  - {name: node, count: 2, resources: {vcore: 4, memory: 8Gi}}
  - {name: closed, count: 1, resources: {vcore: 4, memory: 8Gi}, drain: 0s}
applications:
  - id: long
    queue: root.batch
    tasks:
      - {name: worker, count: 12, resources: {vcore: 1, memory: 1Gi}, runtime: 2h, restart: true}
  - id: late
    queue: root.prod
    at: AT
    tasks:
      - {name: server, count: 4, resources: {vcore: 1, memory: 1Gi}, runtime: 2h}
releases: {delay: 100ms}
duration: DURATION
timeout: 3h
expectations: [nothing lost]
"""


@contextmanager
def playing(
    tmp_path: Path, address: str, duration: str, *options: str, late: str = "1h"
) -> Iterator[subprocess.Popen[str]]:
    """The simulated cluster in a process of its own."""
    scenario = tmp_path / "survivor.yaml"
    scenario.write_text(SCENARIO.replace("DURATION", duration).replace("AT", late), encoding="utf-8")
    process = subprocess.Popen(
        [python(), "-m", "kornel.shim_mock", "run", str(scenario), "--core", address, *options],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        kill_program(process)
        process.communicate()


def placements(address: str) -> dict[str, str]:
    """The node of each allocation that the core knows; empty while it knows none."""
    found = {}
    with grpc.insecure_channel(address) as channel:
        reader = ReadServiceStub(channel)
        for partition in list_partitions(channel):
            for name in ("long", "late"):
                with suppress(grpc.RpcError):  # It is not there yet.
                    asked = GetApplicationRequest(partition=partition.name, application_id=name)
                    allocations = reader.GetApplication(asked, timeout=PATIENCE_S).allocations
                    found.update({each.key: each.node_id for each in allocations})
    return found


def list_partitions(channel: grpc.Channel) -> list[PartitionStatus]:
    return list(StatusServiceStub(channel).GetStatus(GetStatusRequest(), timeout=PATIENCE_S).partitions)


def count_allocations(address: str) -> int:
    """Returns how many allocations the core has. No command is started, which may take longer than a run."""
    with grpc.insecure_channel(address) as channel:
        return sum(partition.allocation_count for partition in list_partitions(channel))


def test_what_runs_stays_where_it_is_and_the_story_goes_on(tmp_path: Path) -> None:
    """Allocations keep node and key, a drained node stays closed, and what the scenario has next happens."""
    address = f"unix:{tmp_path}/core.sock"
    with serving(tmp_path, "--grpc", address) as (core, _), playing(tmp_path, address, "1h", late="15s") as cluster:
        wait_until(lambda: count_allocations(address) == 8, "all to be placed that has room")
        before = placements(address)
        kill_program(core)
        again = tmp_path / "again"
        again.mkdir()
        with serving(again, "--grpc", address):
            wait_until(lambda: placements(address), "what runs to be reported again")
            for key, node in placements(address).items():
                assert before.get(key, node) == node, key
            wait_until(
                lambda: sum(key.startswith("late-server") for key in placements(address)) == 4,
                "the second application to preempt what it is guaranteed",
            )
            after = placements(address)
            assert set(after.values()) == {"node-0", "node-1"}
            assert len(after) == 8
            assert cluster.poll() is None
            kept = before.keys() & after.keys()
            assert len(kept) >= 4
            assert {key: before[key] for key in kept} == {key: after[key] for key in kept}


@pytest.mark.long
def test_a_run_judges_itself_across_the_restart(tmp_path: Path) -> None:
    """A run with a restart of the core in it ends by itself, with status 0 and a line about the restart."""
    address = f"unix:{tmp_path}/core.sock"
    with serving(tmp_path, "--grpc", address) as (core, _), playing(tmp_path, address, "12s") as cluster:
        wait_until(lambda: count_allocations(address) == 8, "all to be placed that has room")
        kill_program(core)
        again = tmp_path / "again"
        again.mkdir()
        with serving(again, "--grpc", address):
            output, errors = cluster.communicate(timeout=PATIENCE_S)
    assert cluster.returncode == 0, output + errors
    assert "anomaly" not in output
    assert "the core was started again: everything is reported again" in output
    assert "PASSED" in output


@pytest.mark.long
def test_a_run_may_end_with_its_core(tmp_path: Path) -> None:
    """With --no-reconnect, a core that has forgotten the cluster ends the run with status 3 and its reason."""
    address = f"unix:{tmp_path}/core.sock"
    with (
        serving(tmp_path, "--grpc", address) as (core, _),
        playing(tmp_path, address, "1h", "--no-reconnect") as cluster,
    ):
        wait_until(lambda: count_allocations(address) == 8, "all to be placed that has room")
        kill_program(core)
        again = tmp_path / "again"
        again.mkdir()
        with serving(again, "--grpc", address):
            _, errors = cluster.communicate(timeout=PATIENCE_S)
    assert cluster.returncode == 3
    assert "ended by the core" in errors
