"""The shape of ``si.v1``, held against a table that was written from the interface's description.

The table is independent of the .proto file on purpose: a number or type that is changed by accident, in the
file and in the stubs generated from it alike, fails here. Both generations are listed together; nothing else
may exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from kornel.si.v1 import si_pb2

MESSAGES: dict[str, str] = {
    "RegisterResourceManagerResponse": "",
    "RegisterResourceManagerRequest": """
        1 rmID string; 2 version string; 3 policyGroup string; 4 buildInfo map<string,string>;
        5 config string; 6 extraConfig map<string,string>""",
    "AllocationRequest": """
        1 asks rep AllocationAsk; 2 releases AllocationReleasesRequest; 3 rmID string;
        4 allocations rep Allocation""",
    "ApplicationRequest": """
        1 new rep AddApplicationRequest; 2 remove rep RemoveApplicationRequest; 3 rmID string""",
    "NodeRequest": "1 nodes rep NodeInfo; 2 rmID string",
    "AllocationResponse": """
        1 new rep Allocation; 2 released rep AllocationRelease; 3 releasedAsks rep AllocationAskRelease;
        4 rejected rep RejectedAllocationAsk; 5 rejectedAllocations rep RejectedAllocation""",
    "ApplicationResponse": """
        1 rejected rep RejectedApplication; 2 accepted rep AcceptedApplication;
        3 updated rep UpdatedApplication""",
    "NodeResponse": "1 rejected rep RejectedNode; 2 accepted rep AcceptedNode",
    "AddApplicationRequest": """
        1 applicationID string; 2 queueName string; 3 partitionName string; 4 ugi UserGroupInformation;
        5 tags map<string,string>; 6 executionTimeoutMilliSeconds int64; 7 placeholderAsk Resource;
        8 gangSchedulingStyle string""",
    "RemoveApplicationRequest": "1 applicationID string; 2 partitionName string",
    "UserGroupInformation": "1 user string; 2 groups rep string",
    "AcceptedApplication": "1 applicationID string",
    "RejectedApplication": "1 applicationID string; 2 reason string",
    "UpdatedApplication": """
        1 applicationID string; 2 state string; 3 stateTransitionTimestamp int64; 4 message string""",
    "NodeInfo": """
        1 nodeID string; 2 action NodeInfo.ActionFromRM; 3 attributes map<string,string>;
        4 schedulableResource Resource; 5 occupiedResource Resource; 6 existingAllocations rep Allocation""",
    "AcceptedNode": "1 nodeID string",
    "RejectedNode": "1 nodeID string; 2 reason string",
    "Allocation": """
        1 allocationKey string; 2 allocationTags map<string,string>; 3 UUID string;
        5 resourcePerAlloc Resource; 6 priority int32; 7 queueName string; 8 nodeID string;
        9 applicationID string; 10 partitionName string; 11 taskGroupName string; 12 placeholder bool;
        13 allocationID string; 14 originator bool; 15 preemptionPolicy PreemptionPolicy""",
    "PreemptionPolicy": "1 allowPreemptSelf bool; 2 allowPreemptOther bool",
    "AllocationReleasesRequest": """
        1 allocationsToRelease rep AllocationRelease; 2 allocationAsksToRelease rep AllocationAskRelease""",
    "RejectedAllocation": "1 allocationKey string; 2 applicationID string; 3 reason string",
    "AllocationRelease": """
        1 partitionName string; 2 applicationID string; 3 UUID string; 4 terminationType TerminationType;
        5 message string; 6 allocationKey string; 7 allocationID string""",
    "Resource": "1 resources map<string,Quantity>",
    "Quantity": "1 value int64",
    "PredicatesArgs": "1 allocationKey string; 2 nodeID string; 3 allocate bool",
    "PreemptionPredicatesArgs": """
        1 allocationKey string; 2 nodeID string; 3 preemptAllocationKeys rep string; 4 startIndex int32""",
    "PreemptionPredicatesResponse": "1 success bool; 2 index int32",
    "UpdateContainerSchedulingStateRequest": """
        1 applicationID string; 2 allocationKey string;
        3 state UpdateContainerSchedulingStateRequest.SchedulingState; 4 reason string""",
    "UpdateConfigurationRequest": """
        1 configs string; 2 rmID string; 3 policyGroup string; 4 config string;
        5 extraConfig map<string,string>""",
    "EventRecord": """
        1 type EventRecord.Type; 2 objectID string; 3 groupID string; 4 reason string; 5 message string;
        6 timestampNano int64; 7 eventChangeType EventRecord.ChangeType;
        8 eventChangeDetail EventRecord.ChangeDetail; 9 referenceID string; 10 resource Resource""",
    "AllocationAsk": """
        1 allocationKey string; 2 applicationID string; 3 partitionName string; 4 resourceAsk Resource;
        5 maxAllocations int32; 6 priority int32; 7 executionTimeoutMilliSeconds int64;
        8 tags map<string,string>; 9 taskGroupName string; 10 placeholder bool; 11 Originator bool;
        12 preemptionPolicy PreemptionPolicy""",
    "AllocationAskRelease": """
        1 partitionName string; 2 applicationID string; 3 allocationKey string;
        4 terminationType TerminationType; 5 message string""",
    "RejectedAllocationAsk": "1 allocationKey string; 2 applicationID string; 3 reason string",
}

ENUMS: dict[str, str] = {
    "TerminationType": """
        0 UNKNOWN_TERMINATION_TYPE; 1 STOPPED_BY_RM; 2 TIMEOUT; 3 PREEMPTED_BY_SCHEDULER;
        4 PLACEHOLDER_REPLACED; 5 SCHEDULING_FAILED_ON_RM""",
    "NodeInfo.ActionFromRM": """
        0 UNKNOWN_ACTION_FROM_RM; 1 CREATE; 2 UPDATE; 3 DRAIN_NODE; 4 DECOMISSION; 5 DRAIN_TO_SCHEDULABLE;
        6 CREATE_DRAIN""",
    "UpdateContainerSchedulingStateRequest.SchedulingState": """
        0 UNKNOWN_SCHEDULING_STATE; 1 SKIPPED; 2 SCHEDULED; 3 RESERVED; 4 FAILED""",
    "EventRecord.Type": "0 UNKNOWN_EVENTRECORD_TYPE; 1 REQUEST; 2 APP; 3 NODE; 4 QUEUE; 5 USERGROUP",
    "EventRecord.ChangeType": "0 NONE; 1 SET; 2 ADD; 3 REMOVE",
    "EventRecord.ChangeDetail": """
        0 DETAILS_NONE; 100 REQUEST_CANCEL; 101 REQUEST_ALLOC; 102 REQUEST_TIMEOUT;
        200 APP_ALLOC; 201 APP_REQUEST; 202 APP_REJECT; 203 APP_NEW; 204 APP_ACCEPTED; 205 APP_STARTING;
        206 APP_RUNNING; 207 APP_COMPLETING; 208 APP_COMPLETED; 209 APP_FAILING; 210 APP_FAILED;
        211 APP_RESUMING; 212 APP_EXPIRED; 213 APP_CANNOTRUN_QUEUE; 214 APP_RUNNABLE_QUEUE;
        215 APP_CANNOTRUN_QUOTA; 216 APP_RUNNABLE_QUOTA;
        300 NODE_DECOMISSION; 301 NODE_READY; 302 NODE_SCHEDULABLE; 303 NODE_ALLOC; 304 NODE_CAPACITY;
        305 NODE_OCCUPIED; 306 NODE_RESERVATION;
        400 QUEUE_CONFIG; 401 QUEUE_DYNAMIC; 402 QUEUE_TYPE; 403 QUEUE_MAX; 404 QUEUE_GUARANTEED;
        405 QUEUE_APP; 406 QUEUE_ALLOC; 407 QUEUE_PREEMPTION;
        500 ALLOC_CANCEL; 501 ALLOC_PREEMPT; 502 ALLOC_TIMEOUT; 503 ALLOC_REPLACED; 504 ALLOC_NODEREMOVED;
        600 UG_USER_LIMIT; 601 UG_GROUP_LIMIT; 602 UG_APP_LINK; 603 UG_USER_RESOURCE;
        604 UG_GROUP_RESOURCE""",
}

# RPC: request, response, streamed in both directions or in none.
RPCS: dict[str, tuple[str, str, bool]] = {
    "RegisterResourceManager": ("RegisterResourceManagerRequest", "RegisterResourceManagerResponse", False),
    "UpdateAllocation": ("AllocationRequest", "AllocationResponse", True),
    "UpdateApplication": ("ApplicationRequest", "ApplicationResponse", True),
    "UpdateNode": ("NodeRequest", "NodeResponse", True),
}

PROTO = Path(__file__).parents[2] / "proto"
SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}


def entries(text: str) -> set[str]:
    """The entries of one table cell, with single spaces."""
    return {" ".join(entry.split()) for entry in text.split(";") if entry.strip()}


def local_name(descriptor: Descriptor | EnumDescriptor) -> str:
    return descriptor.full_name.removeprefix("si.v1.")


def type_name(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        options = field.message_type.GetOptions()
        if options.map_entry:
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            return f"map<{type_name(key)},{type_name(value)}>"
        name = local_name(field.message_type)
    elif field.enum_type is not None:
        name = local_name(field.enum_type)
    else:
        name = SCALARS[field.type]
    return f"rep {name}" if field.is_repeated else name


def declared_messages() -> Iterator[Descriptor]:
    yield from si_pb2.DESCRIPTOR.message_types_by_name.values()


def declared_enums() -> Iterator[EnumDescriptor]:
    yield from si_pb2.DESCRIPTOR.enum_types_by_name.values()
    for message in declared_messages():
        yield from message.enum_types


def test_nothing_but_the_table_is_declared() -> None:
    """The messages and enums of the file are exactly those of the table."""
    assert {local_name(message) for message in declared_messages()} == set(MESSAGES)
    assert {local_name(enum) for enum in declared_enums()} == set(ENUMS)


@pytest.mark.parametrize("name", MESSAGES)
def test_message_fields(name: str) -> None:
    """Each message has exactly the fields of the table: number, name and type."""
    message = si_pb2.DESCRIPTOR.message_types_by_name[name]
    declared = {f"{field.number} {field.name} {type_name(field)}" for field in message.fields}
    assert declared == entries(MESSAGES[name])


@pytest.mark.parametrize("name", MESSAGES)
def test_json_names_are_the_field_names(name: str) -> None:
    """The JSON form spells every field as upstream does; ``Originator`` keeps its capital."""
    message = si_pb2.DESCRIPTOR.message_types_by_name[name]
    assert [field.json_name for field in message.fields] == [field.name for field in message.fields]


@pytest.mark.parametrize("enum", list(declared_enums()), ids=local_name)
def test_enum_values(enum: EnumDescriptor) -> None:
    """Each enum has exactly the values of the table: number and name."""
    assert {f"{value.number} {value.name}" for value in enum.values} == entries(ENUMS[local_name(enum)])


def test_service() -> None:
    """The service has four RPCs: registration is unary, the other three stream in both directions."""
    service = si_pb2.DESCRIPTOR.services_by_name["Scheduler"]
    declared = {}
    for method in service.methods:
        assert method.client_streaming == method.server_streaming
        request, response = local_name(method.input_type), local_name(method.output_type)
        declared[method.name] = (request, response, method.client_streaming)
    assert service.full_name == "si.v1.Scheduler"
    assert declared == RPCS


def test_secret_extension() -> None:
    """A boolean field option 1059 marks sensitive fields, and no field carries it."""
    extension = si_pb2.DESCRIPTOR.extensions_by_name["si_secret"]
    assert extension.number == 1059
    assert extension.type == FieldDescriptor.TYPE_BOOL
    assert extension.containing_type.full_name == "google.protobuf.FieldOptions"
    marked = [
        field.full_name
        for message in declared_messages()
        for field in message.fields
        if field.GetOptions().HasExtension(si_pb2.si_secret)
    ]
    assert marked == []


def test_no_field_tells_unset_from_default_except_messages() -> None:
    """No scalar field has presence, which would change generated code of some languages."""
    for message in declared_messages():
        for field in message.fields:
            assert field.has_presence == (field.message_type is not None and not field.is_repeated)


def test_provisional_number_is_marked() -> None:
    """Whoever reads the contract sees that the number of SCHEDULING_FAILED_ON_RM has not been confirmed."""
    lines = (PROTO / "si/v1/si.proto").read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if "SCHEDULING_FAILED_ON_RM = 5;" in line)
    assert any("PROVISIONAL" in line for line in lines[at - 3 : at])


def test_each_file_names_its_go_package() -> None:
    """A Go program uses upstream's package for ``si.v1``: one with its own could not link upstream's shims."""
    packages = {
        path.relative_to(PROTO).as_posix(): re.findall(r'^option go_package = "(.*)";$', path.read_text(), re.MULTILINE)
        for path in PROTO.glob("*/v*/*.proto")
    }
    upstream = "github.com/apache/yunikorn-scheduler-interface/lib/go/si;si"
    assert packages.pop("si/v1/si.proto") == [upstream]
    assert len(packages) >= 10
    assert not {name: found for name, found in packages.items() if found != ["kornel/v1;kornelv1"]}
