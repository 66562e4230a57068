"""Samples, health, configurations and the state dump (rest.md 4.8 to 4.10, 4.13, 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kornel.core.domain.health import HealthCheck, HealthReport
from kornel.core.rest.documents.history import UsageSample
from kornel.core.telling.encoding.documents import (
    Described,
    Document,
    Kind,
    always,
    apart,
    if_any,
    if_set,
    listed,
    nested,
)
from kornel.core.telling.encoding.values import ANYTHING, FLAG, TEXT, TEXT_MAP, TEXTS, TIME_NS, WHOLE, write_with
from kornel.core.telling.encoding.yunikorn.applications import APPLICATION
from kornel.core.telling.encoding.yunikorn.cluster import CLUSTER, PARTITION, RULE
from kornel.core.telling.encoding.yunikorn.nodes import NODE
from kornel.core.telling.encoding.yunikorn.queues import QUEUE

_NUMBER_AS_TEXT: Final = write_with(TEXT, str)
"""Writes a number as text, as YuniKorn does."""

APPLICATION_SAMPLE: Final = Document(
    "ApplicationSample",
    UsageSample,
    {"timestamp": always(TIME_NS, "at_ns"), "totalApplications": always(_NUMBER_AS_TEXT, "applications")},
    left_out=("allocations",),
)

CONTAINER_SAMPLE: Final = Document(
    "ContainerSample",
    UsageSample,
    {"timestamp": always(TIME_NS, "at_ns"), "totalContainers": always(_NUMBER_AS_TEXT, "allocations")},
    left_out=("applications",),
)

HEALTH: Final = Document(
    "Health",
    HealthReport,
    {
        "Healthy": always(FLAG, "healthy"),
        "HealthChecks": always(
            listed(
                Document(
                    "",
                    HealthCheck,
                    {
                        "Name": always(TEXT, "name"),
                        "Succeeded": always(FLAG, "succeeded"),
                        "Description": always(TEXT, "description", promised=False),
                        "DiagnosisMessage": always(TEXT, "diagnosis", promised=False),
                    },
                )
            ),
            "checks",
        ),
    },
    left_out=("at_ns",),
)


class Verdict(NamedTuple):
    """The result of validating a configuration; fields that are ``None`` are left out."""

    allowed: bool
    reason: str | None = None
    checksum: str | None = None
    checksum_match: bool | None = None
    warnings: Sequence[str] = ()


VALIDATION: Final = Document(
    "Validation",
    Verdict,
    {
        "allowed": always(FLAG, "allowed"),
        "reason": if_set(TEXT, "reason"),
        "checksum": if_set(TEXT, "checksum"),
        "checksumMatch": if_set(FLAG, "checksum_match"),
        "warnings": if_any(TEXTS, "warnings"),
    },
)


_CONFIGURED_PARTITION: Final = Document(
    "",
    Described,
    {
        "Name": apart(TEXT, promised=True),
        "Queues": apart(Kind({"type": "array", "items": ANYTHING.schema}), promised=True),
    },
)

CONFIGURATION: Final = Document(
    "Configuration",
    Described,
    {
        "Partitions": apart(listed(_CONFIGURED_PARTITION), promised=True),
        "DeadlockDetectionEnabled": apart(FLAG, promised=True),
        "DeadlockTimeoutSeconds": apart(WHOLE, promised=True),
        "Checksum": apart(TEXT),
        "Extra": apart(TEXT_MAP),
    },
)


class PartitionPart(NamedTuple):
    """The part of a state dump about one partition, as documents."""

    partition: str
    documents: Sequence[dict[str, Any]]


PARTITION_NODES: Final = Document(
    "",
    PartitionPart,
    {
        "partitionName": always(TEXT, "partition"),
        "nodesInfo": always(Kind(listed(NODE).schema), "documents", promised=False),
    },
)

PARTITION_RULES: Final = Document(
    "",
    PartitionPart,
    {
        "partition": always(TEXT, "partition"),
        "rules": always(Kind(listed(RULE).schema), "documents", promised=False),
    },
)


class OpenStream(NamedTuple):
    """A client that follows the events."""

    host: str
    opened: str


OPEN_STREAM: Final = Document("", OpenStream, {"Name": always(TEXT, "host"), "CreatedAt": always(TEXT, "opened")})

STATE_DUMP: Final = Document(
    "StateDump",
    Described,
    {
        "timestamp": apart(TIME_NS, promised=True),
        "partitions": apart(listed(PARTITION)),
        "applications": apart(listed(APPLICATION)),
        "appHistory": apart(listed(APPLICATION_SAMPLE)),
        "containerHistory": apart(listed(CONTAINER_SAMPLE)),
        "nodes": apart(listed(PARTITION_NODES)),
        "clusterInfo": apart(listed(CLUSTER)),
        "queues": apart(listed(QUEUE)),
        "rmDiagnostics": apart(ANYTHING),
        "logLevel": apart(TEXT),
        "config": apart(nested(CONFIGURATION)),
        "placementRules": apart(listed(PARTITION_RULES)),
        "eventStreams": apart(listed(OPEN_STREAM)),
    },
)

DUMP_KEYS: Final = tuple(STATE_DUMP.rows)
"""The parts of a state dump, in order."""
