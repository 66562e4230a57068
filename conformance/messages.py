"""Request messages with the contract's values: a node of 10 vcore, an ask of 1000, a release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kornel.si.v1 import si_pb2 as si

VCORE: Final = "vcore"
NODE_VCORE: Final = 10_000
NODE_MEMORY: Final = 10
ASK_VCORE: Final = 1_000
USER: Final = "tester"

PARTITION_ATTRIBUTE: Final = "si/node-partition"
FOREIGN_TAG: Final = "foreign"
DEPENDENT_TAG: Final = "kornel.dependsOnPlacements"
REQUIRED_NODE_TAG: Final = "yunikorn.apache.org/requiredNode"
DEVICES_ATTRIBUTE: Final = "kornel.devices"
COUNT_TAG: Final = "kornel.gpu.count"
FRACTION_TAG: Final = "kornel.gpu.fraction"
MEMORY_TAG: Final = "kornel.gpu.memory"
GIVEN_TAG: Final = "kornel.gpu.devices"
FORCE_TAG: Final = "application.create.force"


def make_amounts(resources: Mapping[str, int]) -> si.Resource:
    """Returns amounts by resource type as a message. An empty mapping gives a resource message that is present but
    empty."""
    return si.Resource(resources={name: si.Quantity(value=value) for name, value in resources.items()})


def read_amounts(resource: si.Resource) -> dict[str, int]:
    """Returns the amounts of a message by resource type."""
    return {name: quantity.value for name, quantity in resource.resources.items()}


def node_info(
    node_id: str,
    action: si.NodeInfo.ActionFromRM.ValueType = si.NodeInfo.CREATE,
    capacity: Mapping[str, int] | None = None,
    attributes: Mapping[str, str] | None = None,
) -> si.NodeInfo:
    """Returns a node entry. If *capacity* is ``None``, none is sent."""
    return si.NodeInfo(
        nodeID=node_id,
        action=action,
        attributes=attributes or {},
        schedulableResource=None if capacity is None else make_amounts(capacity),
    )


def full_node(node_id: str, vcore: int = NODE_VCORE, memory: int = NODE_MEMORY) -> si.NodeInfo:
    """Returns the contract's n1: a schedulable node of 10 vcore and 10 memory."""
    return node_info(node_id, capacity={VCORE: vcore, "memory": memory})


def application(
    application_id: str,
    queue: str = "root.a",
    *,
    user: str | None = USER,
    groups: tuple[str, ...] = (),
    partition: str = "",
    tags: Mapping[str, str] | None = None,
    gang: Mapping[str, int] | None = None,
    gang_timeout_ms: int = 0,
    gang_style: str = "",
) -> si.AddApplicationRequest:
    """Returns an application to add. If *user* is ``None``, it has no user information at all. *gang* is its
    ``placeholderAsk``."""
    return si.AddApplicationRequest(
        applicationID=application_id,
        queueName=queue,
        partitionName=partition,
        ugi=None if user is None else si.UserGroupInformation(user=user, groups=groups),
        tags=tags or {},
        placeholderAsk=None if gang is None else make_amounts(gang),
        executionTimeoutMilliSeconds=gang_timeout_ms,
        gangSchedulingStyle=gang_style,
    )


def allocation(
    key: str,
    vcore: int | None = ASK_VCORE,
    *,
    app: str = "app",
    node: str = "",
    priority: int = 0,
    partition: str = "",
    tags: Mapping[str, str] | None = None,
    resources: Mapping[str, int] | None = None,
    group: str = "",
    placeholder: bool = False,
    policy: tuple[bool, bool] | None = None,
) -> si.Allocation:
    """Returns an ask, or, with *node*, an allocation that runs there.

    Use *resources* instead of *vcore* for other types; if both are ``None``, no resource is sent. *policy* is the pair
    (allowPreemptSelf, allowPreemptOther).
    """
    wanted = {VCORE: vcore} if resources is None and vcore is not None else resources
    return si.Allocation(
        allocationKey=key,
        applicationID=app,
        nodeID=node,
        priority=priority,
        partitionName=partition,
        allocationTags=tags or {},
        resourcePerAlloc=None if wanted is None else make_amounts(wanted),
        taskGroupName=group,
        placeholder=placeholder,
        preemptionPolicy=None
        if policy is None
        else si.PreemptionPolicy(allowPreemptSelf=policy[0], allowPreemptOther=policy[1]),
    )


def make_foreign(key: str, vcore: int, node: str, kind: str = "default") -> si.Allocation:
    """Returns load of another scheduler."""
    return allocation(key, vcore, app="", node=node, tags={FOREIGN_TAG: kind})


def release(
    key: str,
    termination: int = si.STOPPED_BY_RM,
    *,
    app: str = "app",
    partition: str = "",
) -> si.AllocationRelease:
    """Returns a release. With an empty *key* it releases everything of *app*. *termination* may be a number that no
    version of the proto defines."""
    return si.AllocationRelease(
        partitionName=partition,
        applicationID=app,
        allocationKey=key,
        terminationType=si.TerminationType.ValueType(termination),
    )
