"""The cluster and its partitions as a whole (rest.md 4.1, 4.3, 4.7, 4.11)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from core.rest.answers import json_answer
from core.rest.documents import nodes, partitions, rules
from core.rest.handlers.places import partition_of
from core.rest.turns import Turns
from core.service.runner import PartitionRunner


class ClusterHandlers:
    """R1, R7, R8 and R25. ``started_ns``: when the core began to serve."""

    def __init__(self, runner: PartitionRunner, started_ns: int) -> None:
        self._runner = runner
        self._started_ns = started_ns

    async def clusters(self, _request: Request) -> ASGIApp:
        """R1."""
        return json_answer(self.cluster_documents())

    async def partitions(self, _request: Request) -> ASGIApp:
        """R7."""
        return json_answer(self.partition_documents())

    async def rules(self, request: Request) -> ASGIApp:
        """R8."""
        return json_answer([rules.rule(rule) for rule in partition_of(self._runner, request).rules()])

    async def utilization(self, _request: Request) -> ASGIApp:
        """R25."""
        documents = []
        for views in self._runner.all_views():
            partition, turns = views.partition(), Turns()
            counted = nodes.Utilization(partition.rm_id, partition.name)
            for node in views.node_summaries():
                counted.add(node)
                if turns.over():
                    await turns.pause()
            documents.append(counted.document())
        return json_answer(documents)

    def cluster_documents(self) -> list[dict[str, Any]]:
        """One for each partition."""
        manager = self._runner.manager
        if manager is None:
            return []
        return [partitions.cluster(views.partition(), manager, self._started_ns) for views in self._runner.all_views()]

    def partition_documents(self) -> list[dict[str, Any]]:
        """One for each partition."""
        return [partitions.partition(views.partition()) for views in self._runner.all_views()]

    def rule_documents(self) -> list[dict[str, Any]]:
        """The rules of each partition, as the state dump has them."""
        return [
            {"partition": views.partition().name, "rules": [rules.rule(rule) for rule in views.rules()]}
            for views in self._runner.all_views()
        ]
