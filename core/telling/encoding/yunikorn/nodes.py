"""Writes nodes, the load of other schedulers on them, and how full they are (rest.md 4.6, 4.7)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.telling.allocations.allocation_views import ForeignView
from kornel.core.telling.encoding.documents import Document, always, if_any, listed
from kornel.core.telling.encoding.records import made
from kornel.core.telling.encoding.values import (
    AMOUNTS,
    COUNT,
    FLAG,
    PERCENTS,
    TAGS,
    TEXT,
    TEXTS,
    TIME_NS,
    TRUTH,
    drained_at_ns,
    drained_by,
    percents_of,
    write_with,
)
from kornel.core.telling.encoding.yunikorn.applications import ALLOCATIONS
from kornel.core.telling.nodes.device_views import DeviceHolder, DeviceView
from kornel.core.telling.nodes.node_views import NodeDomain, NodeSummary, NodeView

BUCKETS: Final = tuple(f"{10 * k}-{10 * k + 10}%" for k in range(10))


def _is_preemptable(static: bool) -> bool:
    return not static


FOREIGN: Final = Document(
    "ForeignAllocation",
    ForeignView,
    {
        "allocationKey": always(TEXT, "key"),
        "allocationTags": if_any(TAGS, "tags"),
        "allocationTime": if_any(TIME_NS, "since_ns"),
        "resource": if_any(AMOUNTS, "resources"),
        "priority": always(write_with(TEXT, str), "priority", promised=False),
        "nodeId": if_any(TEXT, "node_id"),
        # Static load is never preempted.
        "preemptable": if_any(FLAG, made(_is_preemptable, "static")),
    },
)


@lru_cache(maxsize=4_096)  # Many nodes of a cluster have the same capacity and load.
def _percents_used(allocated: Resources, capacity: Resources) -> dict[str, int]:
    return percents_of(allocated, Resources({name: amount for name, amount in capacity.items() if amount > 0}))


NODE_DOMAIN: Final = Document("NodeDomain", NodeDomain, {"level": always(TEXT, "level"), "name": always(TEXT, "name")})

DEVICE_HOLDER: Final = Document(
    "DeviceHolder",
    DeviceHolder,
    {
        "allocationKey": always(TEXT, "key"),
        "applicationId": always(TEXT, "application_id"),
        "share": always(COUNT, "share"),
    },
)

DEVICE: Final = Document(
    "Device",
    DeviceView,
    {
        "id": always(TEXT, "device_id"),
        "type": if_any(TEXT, "type"),
        "memory": if_any(COUNT, "memory"),
        "link": if_any(TEXT, "link"),
        # Thousandths of the device, as the shares of its holders are.
        "free": always(COUNT, "free"),
        "leaving": if_any(FLAG, "leaving"),
        "holders": if_any(listed(DEVICE_HOLDER), "holders"),
    },
)

NODE: Final = Document(
    "Node",
    NodeView,
    {
        "nodeID": always(TEXT, "node_id"),
        # This is always sent, because the web page of YuniKorn fails without it.
        "attributes": always(TAGS, "attributes"),
        "schedulable": always(FLAG, "schedulable"),
        "isReserved": always(TRUTH, "reservations"),
        "hostName": if_any(TEXT, "host"),
        "rackName": if_any(TEXT, "rack"),
        "capacity": if_any(AMOUNTS, "capacity"),
        "allocated": if_any(AMOUNTS, "allocated"),
        "occupied": if_any(AMOUNTS, "occupied"),
        "available": if_any(AMOUNTS, "available"),
        "utilized": if_any(PERCENTS, made(_percents_used, "allocated", "capacity")),
        "allocations": if_any(ALLOCATIONS, "allocations"),
        "foreignAllocations": if_any(listed(FOREIGN), "foreign"),
        "reservations": if_any(TEXTS, "reservations"),
        "drainedBy": if_any(TEXT, made(drained_by, "operator_drain")),
        "drainedSince": if_any(TIME_NS, made(drained_at_ns, "operator_drain")),
        "domains": if_any(listed(NODE_DOMAIN), "domains"),
        "devices": if_any(listed(DEVICE), "devices"),
    },
    left_out=("drained_by_shim",),
)

write_node: Final = NODE.write
write_node_summary: Final = NODE.writing_without("allocations", "foreignAllocations")


class _Bucket(NamedTuple):
    name: str
    nodes: Sequence[str]


class _TypeUse(NamedTuple):
    type: str
    buckets: Sequence[_Bucket]


class _PartitionUse(NamedTuple):
    rm_id: str
    partition: str
    types: Sequence[_TypeUse]


_BUCKET: Final = Document(
    "",
    _Bucket,
    {
        "bucketName": always(TEXT, "name"),
        "numOfNodes": if_any(COUNT, made(len, "nodes")),
        "nodeNames": if_any(TEXTS, "nodes"),
    },
)

_TYPE_USE: Final = Document(
    "",
    _TypeUse,
    {
        "type": always(TEXT, "type"),
        "utilization": always(listed(_BUCKET, minItems=len(BUCKETS), maxItems=len(BUCKETS)), "buckets"),
    },
)

UTILIZATION: Final = Document(
    "PartitionNodeUtilization",
    _PartitionUse,
    {
        "clusterId": always(TEXT, "rm_id"),
        "partition": always(TEXT, "partition"),
        # This is an empty list for a partition without nodes, because the web page of YuniKorn fails without a list.
        "utilizations": always(listed(_TYPE_USE), "types"),
    },
)


class Utilization:
    """Counts nodes by how much of each type they have allocated. Every node of a partition has to be added."""

    def __init__(self, rm_id: str, partition: str) -> None:
        self._rm_id = rm_id
        self._partition = partition
        self._nodes: dict[str, list[list[str]]] = {}

    def add(self, node: NodeSummary | NodeView) -> None:
        """Counts one more node."""
        used = node.allocated
        for name, whole in node.capacity.items():
            buckets = self._nodes.get(name)
            if buckets is None:
                buckets = self._nodes[name] = [[] for _ in BUCKETS]
            buckets[bucket_of(used.get(name, 0), whole)].append(node.node_id)

    def to_document(self) -> dict[str, Any]:
        """Returns the counts as a document."""
        types = [
            _TypeUse(name, [_Bucket(*pair) for pair in zip(BUCKETS, self._nodes[name], strict=True)])
            for name in sorted(self._nodes)
        ]
        return UTILIZATION.write(_PartitionUse(self._rm_id, self._partition, types))


def bucket_of(used: int, whole: int) -> int:
    """Returns the index of a node's bucket among the ten: 10 % is in the first, 11 % in the second, all above 100 % in
    the last."""
    if used <= 0:
        percent = 0
    elif whole <= 0:
        percent = 100
    else:
        percent = used * 100 // whole
    return min(max(-(-percent // 10) - 1, 0), 9)
