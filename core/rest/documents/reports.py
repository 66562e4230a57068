"""Samples, health and the state dump (rest.md 4.8, 4.13, 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from core.domain.health import HealthReport
from core.rest.documents.values import present
from core.rest.history import UsageSample

DUMP_KEYS: Final = (
    "timestamp", "partitions", "applications", "appHistory", "containerHistory", "nodes", "clusterInfo", "queues",
    "rmDiagnostics", "logLevel", "config", "placementRules", "eventStreams",
)  # fmt: skip
"""The parts of a state dump."""


def application_sample(sample: UsageSample) -> dict[str, Any]:
    """How many applications were running. A number as text, as upstream has it."""
    return {"timestamp": sample.at_ns, "totalApplications": str(sample.applications)}


def container_sample(sample: UsageSample) -> dict[str, Any]:
    """How many allocations there were. A number as text, as upstream has it."""
    return {"timestamp": sample.at_ns, "totalContainers": str(sample.allocations)}


def health(report: HealthReport) -> dict[str, Any]:
    """A health report; its keys are capitalised."""
    return {
        "Healthy": report.healthy,
        "HealthChecks": [
            {
                "Name": check.name,
                "Succeeded": check.succeeded,
                "Description": check.description,
                "DiagnosisMessage": check.diagnosis,
            }
            for check in report.checks
        ],
    }


def state_dump(parts: Mapping[str, Any]) -> dict[str, Any]:
    """*parts* by their keys, in order; what is empty is left out, what has another key is refused."""
    unknown = sorted(parts.keys() - set(DUMP_KEYS))
    if unknown:
        raise ValueError(f"a state dump has no {', '.join(unknown)}")
    return present({key: parts.get(key) for key in DUMP_KEYS})
