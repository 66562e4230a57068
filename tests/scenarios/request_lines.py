"""The lines of a scenario about nodes and applications, as entries of requests."""

from __future__ import annotations

from typing import Final

from kornel.core.domain.commands import ApplicationSpec, NodeAction, NodeSpec
from kornel.core.domain.partition_names import full_partition_name
from kornel.core.domain.resources import Resources
from kornel.core.service.wire import APPLICATION_TIME_TAG, creation_time
from tests.scenarios.language import RM, Line, time_ns

ALLOCATIONS: Final = frozenset({"ask", "run", "resize-ask", "foreign", "existing"})
NODE_ACTIONS: Final = {
    "node": NodeAction.CREATE,
    "resize": NodeAction.UPDATE,
    "drain": NodeAction.DRAIN_NODE,
    "undrain": NodeAction.DRAIN_TO_SCHEDULABLE,
    "decommission": NodeAction.DECOMISSION,
}
RELEASES: Final = frozenset({"release", "release-foreign", "withdraw"})
REQUESTS: Final = frozenset({*ALLOCATIONS, *NODE_ACTIONS, *RELEASES, "app", "remove-app"})


def partition_of(line: Line) -> str:
    return full_partition_name(RM, line.options.get("partition", ""))


def make_node(line: Line) -> NodeSpec:
    action: int = NODE_ACTIONS[line.directive]
    if line.flag("draining"):
        action = NodeAction.CREATE_DRAIN
    default = Resources({"vcore": 10_000, "memory": 10}) if line.directive == "node" else None
    return NodeSpec(
        node_id="" if line.name == "-" else line.name,
        action=int(line.options.get("action", action)),
        partition=partition_of(line),
        attributes=tuple(
            (key.removeprefix("attr."), value) for key, value in line.options.items() if key.startswith("attr.")
        ),
        capacity=line.resources(default),
        occupied=line.amounts("occupied"),
    )


def topology_tags(text: str) -> tuple[tuple[str, str], ...]:
    """The tags that ``required:rack:4`` stands for."""
    wish, _, rest = text.partition(":")
    level, _, size = rest.partition(":")
    tags = ((f"kornel.topology.{wish}", level),) if text else ()
    return (*tags, ("kornel.topology.sliceSize", size)) if size else tags


def make_application(line: Line) -> ApplicationSpec:
    options = line.options
    tags = [(key.removeprefix("tag."), value) for key, value in options.items() if key.startswith("tag.")]
    if line.flag("force"):
        tags.append(("application.create.force", "true"))
    return ApplicationSpec(
        application_id="" if line.name == "-" else line.name,
        queue=options.get("queue", "root.a"),
        partition=partition_of(line),
        user=options.get("user", "user"),
        groups=tuple(options["groups"].split(",")) if "groups" in options else (),
        tags=tuple(tags),
        placeholder_timeout_ms=time_ns(options.get("timeout", "0s")) // 10**6,
        placeholder_ask=line.amounts("gang"),
        gang_style=options.get("style", ""),
        created_s=creation_time(tags, APPLICATION_TIME_TAG),
    )
