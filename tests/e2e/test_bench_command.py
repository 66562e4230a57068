"""``kornel bench`` against a running core: what it prints, whom it leaves alone, what it leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import grpc

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import status_pb2, status_pb2_grpc
from tests.e2e.harness import CONFIG
from tests.e2e.test_command import kornel, serving
from tests.e2e.test_unregister import answered
from tests.patience import PATIENCE_S

SMALL = ("--nodes", "20", "--asks", "200", "--queues", "2", "--applications", "2", "--batch", "50", "--singly", "20")


def registered(channel: grpc.Channel) -> str:
    """The resource manager of the core; empty: none."""
    answer = status_pb2_grpc.StatusServiceStub(channel).GetStatus(status_pb2.GetStatusRequest(), timeout=PATIENCE_S)
    assert bool(answer.rm_id) == bool(answer.partitions)
    return answer.rm_id


def test_figures_and_nothing_left_behind(tmp_path: Path) -> None:
    """Rates and latencies as text and as JSON; afterwards nobody is registered."""
    with serving(tmp_path, "--rest-address", "off") as (_, address), grpc.insecure_channel(address) as channel:
        said = kornel("bench", "--core", address, *SMALL)
        assert said.returncode == 0, said.stderr
        assert "200 asks of 4 applications in 2 queues on 20 nodes" in said.stdout
        assert "single asks" in said.stdout
        assert registered(channel) == ""
        found = json.loads(kornel("bench", "--core", address, *SMALL, "--json").stdout)
        assert found["allocations_per_s"] > 0
        assert 0 < found["single_p50_ms"] <= found["single_p99_ms"]
        assert registered(channel) == ""


def test_a_core_with_a_shim_is_left_alone_unless_forced(tmp_path: Path) -> None:
    """Exit 1 naming who is there; --force unregisters it, once somebody has agreed."""
    with serving(tmp_path, "--rest-address", "off") as (_, address), grpc.insecure_channel(address) as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), timeout=PATIENCE_S)
        refused = kornel("bench", "--core", address, *SMALL)
        assert refused.returncode == 1
        assert "'rm-1'" in refused.stderr
        assert "--force" in refused.stderr
        assert registered(channel) == "rm-1"
        nobody_to_ask = kornel("bench", "--core", address, *SMALL, "--force")
        assert nobody_to_ask.returncode == 2
        assert "rm-1 and all its nodes" in nobody_to_ask.stderr
        assert "give --yes" in nobody_to_ask.stderr
        assert registered(channel) == "rm-1"
        assert answered("n", "bench", "--core", address, *SMALL, "--force") == (1, True, True)
        assert registered(channel) == "rm-1"
        assert kornel("bench", "--core", address, *SMALL, "--force", "--yes").returncode == 0
        assert registered(channel) == ""


def test_what_the_core_refuses_is_said(tmp_path: Path) -> None:
    """A policy that there is not: the core's words, exit 1; and so when no core answers."""
    with serving(tmp_path, "--rest-address", "off") as (_, address):
        refused = kornel("bench", "--core", address, *SMALL, "--node-order", "random")
        assert refused.returncode == 1
        assert "INVALID_ARGUMENT" in refused.stderr
    nobody = kornel("bench", "--core", address, *SMALL)
    assert nobody.returncode == 1
    assert f"no core answers at {address}" in nobody.stderr
