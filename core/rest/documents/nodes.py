"""Nodes, and how full they are (rest.md 4.6, 4.7)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from core.domain.resources import Resources
from core.rest.documents.values import amounts, percents, present, texts
from core.rest.documents.work import allocations, foreign
from core.telling.nodes.node_views import NodeSummary, NodeView

BUCKETS: Final = tuple(f"{10 * k}-{10 * k + 10}%" for k in range(10))


def node(view: NodeView, *, summary: bool = False) -> dict[str, Any]:
    """One node. *summary*: without what runs there. ``attributes`` is always there: the web page fails without."""
    return {
        "nodeID": view.node_id,
        "attributes": texts(view.attributes),
        "schedulable": view.schedulable,
        "isReserved": bool(view.reservations),
        **present(
            {
                "hostName": view.host,
                "rackName": view.rack,
                "capacity": amounts(view.capacity),
                "allocated": amounts(view.allocated),
                "occupied": amounts(view.occupied),
                "available": amounts(view.available),
                "utilized": _utilized(view.allocated, view.capacity),
                "allocations": None if summary else allocations(view.allocations),
                "foreignAllocations": [] if summary else [foreign(load) for load in view.foreign],
                "reservations": list(view.reservations),
                "drainedBy": view.operator_drain.by if view.operator_drain is not None else "",
                "drainedSince": view.operator_drain.at_ns if view.operator_drain is not None else 0,
            }
        ),
    }


class Utilization:
    """Counts nodes by how much of each type they have allocated; to be fed with every node of a partition."""

    def __init__(self, rm_id: str, partition: str) -> None:
        self._rm_id = rm_id
        self._partition = partition
        self._nodes: dict[str, list[list[str]]] = {}

    def add(self, node: NodeSummary | NodeView) -> None:
        """One more node."""
        used = node.allocated
        for name, whole in node.capacity.items():
            buckets = self._nodes.get(name)
            if buckets is None:
                buckets = self._nodes[name] = [[] for _ in BUCKETS]
            buckets[bucket(used.get(name, 0), whole)].append(node.node_id)

    def document(self) -> dict[str, Any]:
        """What has been counted. A partition without nodes has an empty list: the web page fails without."""
        return {
            "clusterId": self._rm_id,
            "partition": self._partition,
            "utilizations": [
                {"type": name, "utilization": [_bucket(k, nodes) for k, nodes in enumerate(self._nodes[name])]}
                for name in sorted(self._nodes)
            ],
        }


def bucket(used: int, whole: int) -> int:
    """In which of the ten a node belongs: 10 % is in the first, 11 % in the second, all above 100 % in the last."""
    if used <= 0:
        percent = 0
    elif whole <= 0:
        percent = 100
    else:
        percent = used * 100 // whole
    return min(max(-(-percent // 10) - 1, 0), 9)


def _bucket(k: int, nodes: list[str]) -> dict[str, Any]:
    return {"bucketName": BUCKETS[k], **present({"numOfNodes": len(nodes), "nodeNames": nodes})}


@lru_cache(maxsize=4_096)  # Nodes of a cluster are alike, and so is what they hold.
def _utilized(allocated: Resources, capacity: Resources) -> dict[str, int]:
    return percents(allocated, Resources({name: amount for name, amount in capacity.items() if amount > 0}))
