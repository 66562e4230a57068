"""Clients of either generation and this core understand each other's bytes.

Two small .proto files, one as a G2 client would have it and one as a G3 client would, are compiled into
descriptor pools of their own. Messages go through serialisation in both directions, and nothing that one side
does not know is lost on its way through it.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from grpc_tools import protoc

from kornel.si.v1 import si_pb2

G2 = """
syntax = "proto3";
package si.v1;
message AllocationRequest {
  repeated AllocationAsk asks = 1;
  AllocationReleasesRequest releases = 2;
  string rmID = 3;
}
message AllocationAsk {
  string allocationKey = 1;
  string applicationID = 2;
  string partitionName = 3;
  Resource resourceAsk = 4;
  int32 maxAllocations = 5;
  int32 priority = 6;
  int64 executionTimeoutMilliSeconds = 7;
  map<string, string> tags = 8;
  string taskGroupName = 9;
  bool placeholder = 10;
  bool Originator = 11;
}
message AllocationReleasesRequest {
  repeated AllocationRelease allocationsToRelease = 1;
  repeated AllocationAskRelease allocationAsksToRelease = 2;
}
message AllocationRelease {
  string partitionName = 1;
  string applicationID = 2;
  string UUID = 3;
  TerminationType terminationType = 4;
  string message = 5;
}
message AllocationAskRelease {
  string partitionName = 1;
  string applicationID = 2;
  string allocationKey = 3;
  TerminationType terminationType = 4;
  string message = 5;
}
message AllocationResponse {
  repeated Allocation new = 1;
  repeated AllocationRelease released = 2;
  repeated AllocationAskRelease releasedAsks = 3;
  repeated RejectedAllocationAsk rejected = 4;
}
message RejectedAllocationAsk {
  string allocationKey = 1;
  string applicationID = 2;
  string reason = 3;
}
message Allocation {
  string allocationKey = 1;
  string UUID = 3;
  Resource resourcePerAlloc = 5;
  string nodeID = 8;
  string applicationID = 9;
}
message NodeInfo {
  string nodeID = 1;
  int32 action = 2;
  Resource schedulableResource = 4;
  Resource occupiedResource = 5;
  repeated Allocation existingAllocations = 6;
}
message Resource { map<string, Quantity> resources = 1; }
message Quantity { int64 value = 1; }
enum TerminationType {
  UNKNOWN_TERMINATION_TYPE = 0;
  STOPPED_BY_RM = 1;
  TIMEOUT = 2;
  PREEMPTED_BY_SCHEDULER = 3;
  PLACEHOLDER_REPLACED = 4;
}
"""

G3 = """
syntax = "proto3";
package si.v1;
message AllocationRequest {
  reserved 1;
  AllocationReleasesRequest releases = 2;
  string rmID = 3;
  repeated Allocation allocations = 4;
}
message Allocation {
  reserved 3, 7, 13;
  string allocationKey = 1;
  map<string, string> allocationTags = 2;
  Resource resourcePerAlloc = 5;
  int32 priority = 6;
  string nodeID = 8;
  string applicationID = 9;
  string partitionName = 10;
  string taskGroupName = 11;
  bool placeholder = 12;
  bool originator = 14;
  PreemptionPolicy preemptionPolicy = 15;
}
message PreemptionPolicy {
  bool allowPreemptSelf = 1;
  bool allowPreemptOther = 2;
}
message AllocationReleasesRequest {
  reserved 2;
  repeated AllocationRelease allocationsToRelease = 1;
}
message AllocationRelease {
  reserved 3, 7;
  string partitionName = 1;
  string applicationID = 2;
  TerminationType terminationType = 4;
  string message = 5;
  string allocationKey = 6;
}
message AllocationResponse {
  reserved 3, 4;
  repeated Allocation new = 1;
  repeated AllocationRelease released = 2;
  repeated RejectedAllocation rejectedAllocations = 5;
}
message RejectedAllocation {
  string allocationKey = 1;
  string applicationID = 2;
  string reason = 3;
}
message Resource { map<string, Quantity> resources = 1; }
message Quantity { int64 value = 1; }
enum TerminationType {
  UNKNOWN_TERMINATION_TYPE = 0;
  STOPPED_BY_RM = 1;
  TIMEOUT = 2;
  PREEMPTED_BY_SCHEDULER = 3;
  PLACEHOLDER_REPLACED = 4;
}
"""


class Client:
    """Message classes of a client that was generated from another .proto text."""

    def __init__(self, text: str, scratch: Path) -> None:
        source = scratch / "client.proto"
        source.write_text(text, encoding="utf-8")
        image = scratch / "client.binpb"
        wellknown = files("grpc_tools") / "_proto"
        arguments = ["protoc", f"-I{scratch}", f"-I{wellknown}", f"--descriptor_set_out={image}", str(source)]
        assert protoc.main(arguments) == 0
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes()).file:
            self._pool.Add(file)

    def new(self, name: str, **fields: Any) -> Any:
        """A message of type *name*. Nested ones are given as dicts, which protobuf turns into messages."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"si.v1.{name}"))(**fields)

    def read(self, message: Message) -> Any:
        """What this client makes of a *message* it receives."""
        return type(self.new(message.DESCRIPTOR.name)).FromString(message.SerializeToString())


def received(message: Message) -> Any:
    """What the core makes of a client's *message*."""
    return getattr(si_pb2, message.DESCRIPTOR.name).FromString(message.SerializeToString())


def quantities(**amounts: int) -> dict[str, Any]:
    return {"resources": {name: {"value": value} for name, value in amounts.items()}}


def as_dict(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message)


@pytest.fixture
def g2(tmp_path: Path) -> Client:
    return Client(G2, tmp_path)


@pytest.fixture
def g3(tmp_path: Path) -> Client:
    return Client(G3, tmp_path)


def test_g2_request_arrives_complete(g2: Client) -> None:
    """Every field a G2 client sets in asks and releases is read under the same name."""
    ask = {
        "allocationKey": "k",
        "applicationID": "app",
        "partitionName": "gpu",
        "resourceAsk": quantities(vcore=1000, memory=2**40),
        "maxAllocations": 1,
        "priority": -7,
        "executionTimeoutMilliSeconds": 2**40,
        "tags": {"creationTime": "1700000000"},
        "taskGroupName": "workers",
        "placeholder": True,
        "Originator": True,
    }
    releases = {
        "allocationsToRelease": [{"applicationID": "app", "UUID": "u-1", "terminationType": 4}],
        "allocationAsksToRelease": [{"applicationID": "app", "allocationKey": "k", "terminationType": 2}],
    }
    sent = g2.new("AllocationRequest", rmID="rm-1", asks=[ask], releases=releases)
    request = received(sent)
    assert as_dict(request) == as_dict(sent)
    assert request.asks[0].Originator
    assert request.asks[0].priority == -7
    assert not request.asks[0].HasField("preemptionPolicy")
    assert request.releases.allocationsToRelease[0].UUID == "u-1"


def test_g2_node_arrives_with_what_runs_on_it(g2: Client) -> None:
    """Occupied resources and existing allocations of a G2 node registration are read."""
    existing = {"allocationKey": "k", "UUID": "u-1", "applicationID": "app", "nodeID": "n1"}
    sent = g2.new(
        "NodeInfo",
        nodeID="n1",
        action=1,
        schedulableResource=quantities(vcore=8000),
        occupiedResource=quantities(vcore=500),
        existingAllocations=[existing],
    )
    node = received(sent)
    assert node.action == si_pb2.NodeInfo.CREATE
    assert node.occupiedResource.resources["vcore"].value == 500
    assert node.existingAllocations[0].UUID == "u-1"


def test_g3_request_arrives_complete(g3: Client) -> None:
    """Every field a G3 client sets in allocations and releases is read under the same name."""
    allocation = {
        "allocationKey": "k",
        "allocationTags": {"foreign": "static"},
        "resourcePerAlloc": quantities(vcore=-1, pods=1),
        "priority": 2**31 - 1,
        "nodeID": "n1",
        "applicationID": "app",
        "partitionName": "[rm-1]default",
        "taskGroupName": "workers",
        "placeholder": True,
        "originator": True,
        "preemptionPolicy": {"allowPreemptOther": True},
    }
    releases = {"allocationsToRelease": [{"applicationID": "app", "allocationKey": "k"}]}
    sent = g3.new("AllocationRequest", rmID="rm-1", allocations=[allocation], releases=releases)
    request = received(sent)
    assert as_dict(request) == as_dict(sent)
    assert request.allocations[0].preemptionPolicy.allowPreemptOther


def test_empty_policy_is_not_an_absent_one(g3: Client) -> None:
    """An empty preemption policy, which says false twice, stays apart from none at all."""
    sent = g3.new("Allocation", allocationKey="k", preemptionPolicy={})
    assert received(sent).HasField("preemptionPolicy")
    assert not received(g3.new("Allocation", allocationKey="k")).HasField("preemptionPolicy")


RESPONSE = {
    "new": [{"allocationKey": "k", "applicationID": "app", "nodeID": "n1", "UUID": "u", "allocationID": "k-0"}],
    "released": [{"partitionName": "[rm-1]default", "applicationID": "app", "allocationKey": "k", "UUID": "u"}],
    "releasedAsks": [{"applicationID": "app", "allocationKey": "p", "terminationType": 2}],
    "rejected": [{"allocationKey": "x", "applicationID": "app", "reason": "no-resources: none"}],
    "rejectedAllocations": [{"allocationKey": "y", "applicationID": "app", "reason": "invalid-key: empty"}],
}


def test_g2_client_reads_its_part_of_a_response(g2: Client) -> None:
    """A G2 client finds its lists in a response for both generations, and keeps what it does not know."""
    response = si_pb2.AllocationResponse(**RESPONSE)
    read = g2.read(response)
    assert read.new[0].UUID == "u"
    assert read.releasedAsks[0].terminationType == si_pb2.TIMEOUT
    assert [refusal.allocationKey for refusal in read.rejected] == ["x"]
    assert received(read) == response


def test_g3_client_reads_its_part_of_a_response(g3: Client) -> None:
    """A G3 client finds its lists in a response for both generations, and keeps what it does not know."""
    response = si_pb2.AllocationResponse(**RESPONSE)
    read = g3.read(response)
    assert read.released[0].allocationKey == "k"
    assert [refusal.allocationKey for refusal in read.rejectedAllocations] == ["y"]
    assert received(read) == response


def test_unknown_fields_and_enum_numbers_survive(g3: Client) -> None:
    """A field and a termination type of the future pass through the core's classes unchanged."""
    future_field = b"\xc2\x3e\x05hello"  # field 1000, length-delimited
    sent = g3.new("AllocationRelease", applicationID="app", terminationType=77).SerializeToString() + future_field
    read = si_pb2.AllocationRelease.FromString(sent)
    assert read.terminationType == 77
    assert read.applicationID == "app"
    assert read.SerializeToString() == sent


def test_newest_termination_type_reaches_older_clients(g2: Client, g3: Client) -> None:
    """A client that does not know SCHEDULING_FAILED_ON_RM reads its number and does not fail."""
    release = si_pb2.AllocationRelease(terminationType=si_pb2.SCHEDULING_FAILED_ON_RM)
    assert g2.read(release).terminationType == 5
    assert g3.read(release).terminationType == 5
