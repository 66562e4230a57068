"""The shapes of answers as JSON Schema (rest.md 4, 5 and 8): what clients are promised, and tests hold answers to.

Fields that are not ``required`` are left out when they are empty, 0 or unset. Clients accept further fields.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NAME: Final[Schema] = {"type": "string", "minLength": 1}
FLAG: Final[Schema] = {"type": "boolean"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
POSITIVE: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 2**64 - 1}
UNSIGNED: Final[Schema] = {**COUNT, "maximum": 2**64 - 1}
WHOLE: Final[Schema] = {"type": "integer"}
TIME_NS: Final[Schema] = {"type": "integer", "description": "Nanoseconds since the Unix epoch."}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
TEXT_MAP: Final[Schema] = {"type": "object", "additionalProperties": TEXT}
AMOUNTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "description": "Amounts by resource type: memory in bytes, vcore in thousandths, others counted.",
}
PERCENTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "description": "Whole percent by resource type, cut off.",
}
DURATION: Final[Schema] = {"type": "string", "pattern": r"^-?([0-9.]+(h|m|s|ms|µs|ns))+$"}


def any_case(*words: str, empty: bool = False) -> Schema:
    """One of *words*, in any case, or with *empty* nothing."""
    spelt = ["".join(f"[{letter.lower()}{letter.upper()}]" for letter in word) for word in words]
    return {"type": "string", "pattern": f"^({'|'.join([*([''] if empty else []), *spelt])})$"}


def ref(name: str) -> Schema:
    """The schema called *name*."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(name: str) -> Schema:
    """A list of these."""
    return {"type": "array", "items": ref(name)}


def _object(always: Schema, otherwise: Schema | None = None, **more: Any) -> Schema:
    document: Schema = {"type": "object", "properties": {**always, **(otherwise or {})}, **more}
    return {**document, "required": list(always)} if always else document


_ALLOCATION_FIELDS: Final[Schema] = {
    "allocationTags": TEXT_MAP,
    "requestTime": TIME_NS,
    "resource": AMOUNTS,
    "priority": {"type": "string", "pattern": "^-?[0-9]+$"},
    "applicationId": TEXT,
    "placeholder": FLAG,
    "taskGroupName": TEXT,
    "originator": FLAG,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Error": _object(
        {"status_code": WHOLE, "message": TEXT, "description": TEXT},
        {"StatusCode": WHOLE, "Message": TEXT, "Description": TEXT},
    ),
    "Cluster": _object(
        {"partition": TEXT, "clusterName": TEXT},
        {"startTime": TIME_NS, "rmBuildInformation": {"type": "array", "items": TEXT_MAP}},
    ),
    "Partition": _object(
        {
            "clusterId": TEXT,
            "name": TEXT,
            "capacity": _object({}, {"capacity": AMOUNTS, "usedCapacity": AMOUNTS, "utilization": PERCENTS}),
            "nodeSortingPolicy": _object(
                {"type": TEXT, "resourceWeights": {"type": "object", "additionalProperties": {"type": "number"}}}
            ),
            "preemptionEnabled": FLAG,
            "quotaPreemptionEnabled": FLAG,
            "totalNodes": COUNT,
            "applications": {"type": "object", "additionalProperties": COUNT, "required": ["total"]},
            "state": {"enum": ["Active", "Draining", "Stopped"]},
        },
        {"totalContainers": COUNT, "lastStateTransitionTime": TIME_NS},
    ),
    "Rule": _object(
        {"name": TEXT, "parameters": TEXT_MAP},
        {
            "filter": _object(
                {"type": {"enum": ["allow", "deny"]}},
                {"userList": TEXTS, "groupList": TEXTS, "userExp": TEXT, "groupExp": TEXT},
            ),
            "parentRule": ref("Rule"),
        },
    ),
    "Queue": _object(
        {
            "queuename": TEXT,
            "status": {"enum": ["Active", "Draining", "Stopped"]},
            "partition": TEXT,
            "isLeaf": FLAG,
            "isManaged": FLAG,
            "currentPriority": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
            "sortingPolicy": {"enum": ["fifo", "fair"]},
            "prioritySorting": FLAG,
            "preemptionEnabled": FLAG,
            "isPreemptionFence": FLAG,
            "isPriorityFence": FLAG,
            "preemptionDelay": DURATION,
            "quotaPreemptionDelay": DURATION,
            "isQuotaPreemptionRunning": FLAG,
            "unschedAskBackoff": COUNT,
            "askBackoffDelay": DURATION,
        },
        {
            "pendingResource": AMOUNTS,
            "maxResource": AMOUNTS,
            "guaranteedResource": AMOUNTS,
            "allocatedResource": AMOUNTS,
            "preemptingResource": AMOUNTS,
            "headroom": AMOUNTS,
            "properties": TEXT_MAP,
            "parent": TEXT,
            "template": _object(
                {},
                {
                    "maxApplications": COUNT,
                    "maxResource": AMOUNTS,
                    "guaranteedResource": AMOUNTS,
                    "properties": TEXT_MAP,
                },
            ),
            "children": listed("Queue"),
            "childNames": TEXTS,
            "absUsedCapacity": PERCENTS,
            "maxRunningApps": COUNT,
            "runningApps": COUNT,
            "allocatingAcceptedApps": TEXTS,
            "priorityOffset": WHOLE,
            "quotaPreemptionStartTime": TIME_NS,
            "aboveMax": _object(
                {"resource": AMOUNTS, "course": TEXT},
                {"leaving": AMOUNTS, "since": TIME_NS, "protectedBy": TEXTS},
            ),
        },
    ),
    "Ask": _object(
        {"allocationKey": TEXT},
        {
            **_ALLOCATION_FIELDS,
            "requiredNodeId": TEXT,
            "allocationLog": {
                "type": "array",
                "items": _object({"message": TEXT, "lastOccurrence": TIME_NS, "count": COUNT}),
            },
            "triggeredPreemption": FLAG,
            "schedulingAttempted": FLAG,
            "triggeredScaleUp": FLAG,
        },
    ),
    "Allocation": _object(
        {"allocationKey": TEXT},
        {
            **_ALLOCATION_FIELDS,
            "allocationTime": TIME_NS,
            "allocationDelay": {"type": "integer", "description": "Nanoseconds."},
            "nodeId": TEXT,
            "placeholderUsed": FLAG,
            "preempted": FLAG,
        },
    ),
    "ForeignAllocation": _object(
        {"allocationKey": TEXT},
        {
            "allocationTags": TEXT_MAP,
            "allocationTime": TIME_NS,
            "resource": AMOUNTS,
            "priority": TEXT,
            "nodeId": TEXT,
            "preemptable": FLAG,
        },
    ),
    "Victim": _object(
        {"allocationKey": TEXT, "applicationID": TEXT, "queueName": TEXT, "nodeID": TEXT, "priority": WHOLE},
        {"resource": AMOUNTS},
    ),
    "Preempted": _object(
        {"victim": ref("Victim"), "time": TIME_NS, "kind": TEXT},
        dict.fromkeys(("takenBy", "takenByApplicationID", "takenByQueue", "law", "reason", "alternatives"), TEXT),
    ),
    "Blocker": _object(
        {"kind": TEXT, "level": {"enum": ["application", "user", "queue", "reservation", "node"]}, "name": TEXT},
        {
            "detail": TEXT,
            "shortages": {
                "type": "array",
                "items": _object({"type": TEXT, "limit": WHOLE, "used": WHOLE, "asked": WHOLE, "short": WHOLE}),
            },
            "nodes": COUNT,
            "permanent": FLAG,
            "until": TIME_NS,
        },
        description="One thing in the way, the worst first. permanent: waiting alone does not help.",
    ),
    "PreemptionOutlook": _object(
        {"verdict": {"enum": ["would-help", "under-way", "not-needed", "forbidden", "no-victims"]}},
        {
            "blockedBy": TEXT,
            "outcome": TEXT,
            "detail": TEXT,
            "notBefore": TIME_NS,
            "nodeID": TEXT,
            "victims": listed("Victim"),
            "protections": {
                "type": "array",
                "items": _object({"law": TEXT, "queues": COUNT, "allocations": COUNT, "example": TEXT}),
            },
        },
    ),
    "AskReport": _object(
        {
            "allocationKey": TEXT,
            "applicationID": TEXT,
            "queueName": TEXT,
            "state": TEXT,
            "priority": WHOLE,
            "fittingNodes": COUNT,
        },
        {
            "nodeID": TEXT,
            "resource": AMOUNTS,
            "requestTime": TIME_NS,
            "blockers": listed("Blocker"),
            "position": _object(
                dict.fromkeys(("application", "applicationOf", "queue", "queueOf", "partition", "partitionOf"), COUNT),
                description="Places in line, from 1, and of how many pending asks.",
            ),
            "preemption": ref("PreemptionOutlook"),
            "preempted": ref("Preempted"),
            "failures": {
                "type": "array",
                "items": _object({"message": TEXT, "count": COUNT, "lastOccurrence": TIME_NS}),
            },
        },
    ),
    "ApplicationReport": _object(
        {
            "applicationID": TEXT,
            "queueName": TEXT,
            "state": TEXT,
            "user": TEXT,
            "pendingAsks": COUNT,
            "allocations": COUNT,
            "groupCount": COUNT,
        },
        {
            "usedResource": AMOUNTS,
            "groups": {"type": "array", "items": _object({"size": COUNT, "first": ref("AskReport")})},
            "preempted": listed("Preempted"),
        },
    ),
    "Explanation": _object(
        {},
        {"ask": ref("AskReport"), "application": ref("ApplicationReport"), "lost": ref("Preempted")},
        description="One of the three.",
    ),
    "PreemptionDecision": _object(
        {"id": COUNT, "nextEventID": COUNT, "time": TIME_NS, "kind": TEXT, "outcome": TEXT},
        {
            "law": TEXT,
            "allocationKey": TEXT,
            "applicationID": TEXT,
            "queueName": TEXT,
            "nodeID": TEXT,
            "detail": TEXT,
            "victims": listed("Victim"),
        },
    ),
    "PreemptionKind": _object(
        {
            "name": TEXT,
            "laws": {"type": "array", "items": COUNT},
            "law": TEXT,
            "colour": TEXT,
            "outcomes": {"type": "object", "additionalProperties": ref("PreemptionEnding")},
        },
        description="Decisions bear its name. laws: numbers of those that bind it; law: what lets it act.",
    ),
    "PreemptionEnding": _object(
        {"leaves": FLAG, "tone": TEXT},
        description="leaves: the victims named were told to leave. tone: good, accent, warn, bad or nothing.",
    ),
    "PreemptionBatch": _object(
        {"InstanceUUID": TEXT, "lowestID": COUNT, "nextID": COUNT, "preemptions": listed("PreemptionDecision")}
    ),
    "ResourceHistory": _object(
        {},
        {
            name: {"type": "object", "additionalProperties": AMOUNTS}
            for name in ("resourceUsage", "preemptedResource", "placeholderResource")
        },
        description="By type of instance: amounts times seconds.",
    ),
    "Application": _object(
        {
            "applicationID": TEXT,
            "partition": TEXT,
            "queueName": TEXT,
            "applicationState": {
                "enum": [
                    "New", "Accepted", "Running", "Rejected", "Completing", "Completed", "Failing", "Failed", "Expired",
                    "Resuming",
                ]
            },
            "startTime": {"type": "integer", "description": "Milliseconds since the Unix epoch; negative: never ran."},
            "resourceHistory": ref("ResourceHistory"),
        },
        {
            "usedResource": AMOUNTS,
            "maxUsedResource": AMOUNTS,
            "pendingResource": AMOUNTS,
            "submissionTime": TIME_NS,
            "finishedTime": TIME_NS,
            "requests": listed("Ask"),
            "allocations": listed("Allocation"),
            "user": TEXT,
            "groups": TEXTS,
            "rejectedMessage": TEXT,
            "stateLog": {"type": "array", "items": _object({"time": TIME_NS, "applicationState": TEXT})},
            "lastStateChangeTime": TIME_NS,
            "placeholderData": {
                "type": "array",
                "items": _object(
                    {},
                    {"taskGroupName": TEXT, "count": COUNT, "minResource": AMOUNTS, "replaced": COUNT,
                     "timedout": COUNT},
                ),
            },
            "hasReserved": FLAG,
            "reservations": TEXTS,
            "maxRequestPriority": WHOLE,
            "backoffDeadline": {"type": "string", "format": "date-time"},
        },
    ),
    "Node": _object(
        {"nodeID": TEXT, "attributes": TEXT_MAP, "schedulable": FLAG, "isReserved": FLAG},
        {
            "hostName": TEXT,
            "rackName": TEXT,
            "capacity": AMOUNTS,
            "allocated": AMOUNTS,
            "occupied": AMOUNTS,
            "available": AMOUNTS,
            "utilized": PERCENTS,
            "allocations": listed("Allocation"),
            "foreignAllocations": listed("ForeignAllocation"),
            "reservations": TEXTS,
            "drainedBy": TEXT,
            "drainedSince": TIME_NS,
        },
    ),
    "PartitionNodeUtilization": _object(
        {
            "clusterId": TEXT,
            "partition": TEXT,
            "utilizations": {
                "type": "array",
                "items": _object(
                    {
                        "type": TEXT,
                        "utilization": {
                            "type": "array",
                            "minItems": 10,
                            "maxItems": 10,
                            "items": _object({"bucketName": TEXT}, {"numOfNodes": COUNT, "nodeNames": TEXTS}),
                        },
                    }
                ),
            },
        }
    ),
    "ApplicationSample": _object({"timestamp": TIME_NS, "totalApplications": TEXT}),
    "ContainerSample": _object({"timestamp": TIME_NS, "totalContainers": TEXT}),
    "Configuration": _object(
        {
            "Partitions": {
                "type": "array",
                "items": _object({"Name": TEXT, "Queues": {"type": "array", "items": {"type": "object"}}}),
            },
            "DeadlockDetectionEnabled": FLAG,
            "DeadlockTimeoutSeconds": WHOLE,
        },
        {"Checksum": TEXT, "Extra": TEXT_MAP},
    ),
    "Validation": _object(
        {"allowed": FLAG}, {"reason": TEXT, "checksum": TEXT, "checksumMatch": FLAG, "warnings": TEXTS}
    ),
    "Usage": _object(
        {"queuePath": TEXT},
        {
            "resourceUsage": AMOUNTS,
            "runningApplications": TEXTS,
            "maxResources": AMOUNTS,
            "maxApplications": COUNT,
            "children": listed("Usage"),
        },
    ),
    "UserUsage": _object({"userName": TEXT, "queues": ref("Usage")}, {"groups": TEXT_MAP}),
    "GroupUsage": _object({"groupName": TEXT, "queues": ref("Usage")}, {"applications": TEXTS}),
    "Event": _object(
        {"timestampNano": TIME_NS, "resource": {"type": "object"}},
        {
            "type": COUNT,
            "objectID": TEXT,
            "message": TEXT,
            "eventChangeType": COUNT,
            "eventChangeDetail": COUNT,
            "referenceID": TEXT,
        },
    ),
    "EventBatch": _object(
        {
            "InstanceUUID": TEXT,
            "LowestID": COUNT,
            "HighestID": COUNT,
            "EventRecords": {"type": ["array", "null"], "items": ref("Event")},
        }
    ),
    "Health": _object(
        {
            "Healthy": FLAG,
            "HealthChecks": {
                "type": "array",
                "items": _object({"Name": TEXT, "Succeeded": FLAG}, {"Description": TEXT, "DiagnosisMessage": TEXT}),
            },
        }
    ),
    "Holds": _object(
        {
            "drainedNodes": {
                "type": "array",
                "items": _object(
                    {"partition": TEXT, "nodeID": TEXT, "by": TEXT, "since": TIME_NS, "registered": FLAG}
                ),
            },
        },
        {
            "manager": _object({"rmID": TEXT, "openStreams": COUNT, "gone": FLAG}, {"noStreamSince": TIME_NS}),
            "rollback": _object({"version": COUNT, "since": TIME_NS, "by": TEXT, "keptOut": COUNT}),
        },
        description="What operators did that holds. No manager: none is registered; no rollback: none holds.",
    ),
    "StateDump": _object(
        {"timestamp": TIME_NS},
        {
            "partitions": listed("Partition"),
            "applications": listed("Application"),
            "appHistory": listed("ApplicationSample"),
            "containerHistory": listed("ContainerSample"),
            "nodes": {
                "type": "array",
                "items": _object({"partitionName": TEXT}, {"nodesInfo": listed("Node")}),
            },
            "clusterInfo": listed("Cluster"),
            "queues": listed("Queue"),
            "rmDiagnostics": {"type": "object"},
            "logLevel": TEXT,
            "config": ref("Configuration"),
            "placementRules": {
                "type": "array",
                "items": _object({"partition": TEXT}, {"rules": listed("Rule")}),
            },
            "eventStreams": {"type": "array", "items": _object({"Name": TEXT, "CreatedAt": TEXT})},
        },
    ),
}  # fmt: skip
"""By name. ``Event.resource`` is ``{}``, or has ``resources``: by type an object with a ``value``, absent when 0."""
