"""Serves the routes about the cluster and its partitions as a whole (rest.md 4.1, 4.3, 4.7, 4.11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.domain.secrets import without_secrets
from kornel.core.rest.documents.reports import PARTITION_RULES, PartitionPart
from kornel.core.rest.handlers.places import partition_of
from kornel.core.rest.serving.listing import PAGE_PARAMETERS, page_answer
from kornel.core.rest.serving.rows import IN_PARTITION, PREFIX, Row
from kornel.core.service.machine.loop_time import in_turns
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.encoding.yunikorn.cluster import CLUSTER, PARTITION, RULE, ClusterEntry
from kornel.core.telling.encoding.yunikorn.nodes import UTILIZATION, Utilization


class ClusterHandlers:
    """Serves routes R1, R7, R8 and R25, with pages of Kornel's own. *started_ns*: when the core began to serve."""

    def __init__(self, reader: CoreReader, started_ns: int) -> None:
        self._reader = reader
        self._started_ns = started_ns

    @Row(f"{PREFIX}/clusters", "clusters", "Cluster", [CLUSTER], PAGE_PARAMETERS)
    async def clusters(self, request: Request) -> ASGIApp:
        """Returns the clusters."""
        return await page_answer(request, _keyed_documents(self.cluster_documents(), "partition"), dict)

    @Row(f"{PREFIX}/partitions", "partitions", "Cluster", [PARTITION], PAGE_PARAMETERS)
    async def partitions(self, request: Request) -> ASGIApp:
        """Returns all partitions."""
        return await page_answer(request, _keyed_documents(self.partition_documents(), "name"), dict)

    @Row(f"{IN_PARTITION}/placementrules", "placementRules", "Partition", [RULE], PAGE_PARAMETERS)
    async def list_rules(self, request: Request) -> ASGIApp:
        """Returns the placement rules in force, in the order in which they are tried."""
        found = enumerate(partition_of(self._reader, request).rules())
        return await page_answer(request, ((f"{place:06}", rule) for place, rule in found), RULE.write)

    @Row(f"{PREFIX}/scheduler/node-utilizations", "nodeUtilizations", "Cluster", [UTILIZATION], PAGE_PARAMETERS)
    async def count_nodes(self, request: Request) -> ASGIApp:
        """Returns the numbers of nodes by how full they are, by partition and resource type."""
        documents = []
        for views in self._reader.partitions():
            partition = views.partition()
            counted = Utilization(partition.rm_id, partition.name)
            async for node in in_turns(views.node_summaries()):
                counted.add(node)
            documents.append(counted.to_document())
        return await page_answer(request, _keyed_documents(documents, "partition"), dict)

    def cluster_documents(self) -> list[dict[str, Any]]:
        """Returns one document for each partition, as ``ws/v1/clusters`` lists them."""
        return [
            CLUSTER.write(
                ClusterEntry(
                    views.partition(),
                    manager._replace(build_info=tuple(without_secrets(dict(manager.build_info)).items())),
                    self._started_ns,
                )
            )
            for manager in self._reader.managers
            for views in self._reader.partitions(manager.rm_id)
        ]

    def partition_documents(self) -> list[dict[str, Any]]:
        """Returns one document for each partition, as ``ws/v1/partitions`` lists them."""
        return [PARTITION.write(views.partition()) for views in self._reader.partitions()]

    def rule_documents(self) -> list[dict[str, Any]]:
        """Returns the rules of each partition, as the state dump has them."""
        return [
            PARTITION_RULES.write(PartitionPart(views.partition().name, [RULE.write(rule) for rule in views.rules()]))
            for views in self._reader.partitions()
        ]


def _keyed_documents(documents: Iterable[dict[str, Any]], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((document[name], document) for document in documents)
