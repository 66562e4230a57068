"""What an ask says about the topology, from the client library to the engine's values and back."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain.topology import TopologyRequest, Wish, read_request
from kornel.core.service.wire.scheduler_wire import Decoder
from kornel.shim_client import Ask, Topology
from kornel.si.v1 import si_pb2 as si


@pytest.mark.parametrize(
    ("topology", "read"),
    [
        (Topology(required="rack"), TopologyRequest(Wish.REQUIRED, "rack")),
        (Topology(preferred="rack", slice_size=4), TopologyRequest(Wish.PREFERRED, "rack", 4)),
        (Topology(spread="zone"), TopologyRequest(Wish.SPREAD, "zone")),
    ],
)
def test_the_engine_reads_what_the_library_wrote(topology: Topology, read: TopologyRequest) -> None:
    ask = Ask("k", "app", {"vcore": 1}, task_group="g", topology=topology)
    newer = si.AllocationRequest(rmID="rm", allocations=[ask.to_g3()])
    older = si.AllocationRequest(rmID="rm", asks=[ask.to_g2()])
    for message in (newer, older):
        (command,) = Decoder().allocation_commands(message)
        assert [spec.topology for spec in command.allocations] == [read]


def test_an_ask_without_one_says_nothing() -> None:
    message = si.AllocationRequest(rmID="rm", allocations=[Ask("k", "app", {"vcore": 1}).to_g3()])
    (command,) = Decoder().allocation_commands(message)
    assert command.allocations[0].topology is None


@pytest.mark.parametrize("wrong", [{}, {"required": "rack", "spread": "zone"}, {"required": "rack", "slice_size": -1}])
def test_a_topology_names_one_level(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"one level|members"):
        Topology(**wrong)


@pytest.mark.parametrize(
    ("tags", "flaw"),
    [
        ({"kornel.topology.sliceSize": "2"}, "names no level"),
        ({"kornel.topology.required": "rack", "kornel.topology.spread": "zone"}, "one of required"),
        ({"kornel.topology.required": "rack", "kornel.topology.sliceSize": "0"}, "not 1 to"),
        ({"kornel.topology.required": "rack", "kornel.topology.sliceSize": "many"}, "'many'"),
    ],
)
def test_tags_that_make_no_sense_say_why(tags: dict[str, str], flaw: str) -> None:
    found = read_request(tags.items())
    assert found is not None
    assert flaw in found.flaw
