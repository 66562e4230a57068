"""Generates a cluster with its asks, as messages. The same workload gives the same messages everywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kornel.si.v1 import si_pb2 as si

GIB = 1 << 30
CORE = 1_000
"""The base units of one core."""

USER = "bench"


@dataclass(frozen=True)
class Workload:
    """Sizes of one run.

    *queues*: the number of children of each queue, level by level from the root; ``(100,)`` is flat and ``(10, 10)``
    nested. *applications*: the number in each leaf. *sizes*: the number of different asks, of 1 to 8 cores and 1 to 16
    GiB; with 1, all ask for one core and one GiB. *node_order*, *application_order*: names of the policies. *batch*:
    asks per message.
    """

    nodes: int = 5_000
    asks: int = 50_000
    queues: tuple[int, ...] = (100,)
    applications: int = 10
    sizes: int = 128
    node_order: str = "fair"
    application_order: str = "fair"
    node_cores: int = 64
    node_gib: int = 256
    batch: int = 1_000
    seed: int = 7

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The full paths of all leaves."""
        paths = ["root"]
        for children in self.queues:
            paths = [f"{path}.q{number}" for path in paths for number in range(children)]
        return tuple(paths)

    @property
    def config(self) -> str:
        """The text of ``queues.yaml`` with these queues."""
        lines = ["partitions:", "  - name: default", f"    nodesortpolicy: {{type: {self.node_order}}}", "    queues:"]
        lines += ["      - name: root", "        submitacl: '*'", "        queues:"]
        lines += self._queue_lines(0, " " * 10)
        return "\n".join(lines) + "\n"

    def _queue_lines(self, level: int, indent: str) -> Iterator[str]:
        for number in range(self.queues[level]):
            yield f"{indent}- name: q{number}"
            if level + 1 < len(self.queues):
                yield f"{indent}  queues:"
                yield from self._queue_lines(level + 1, indent + "    ")
            else:
                yield f"{indent}  properties: {{application.sort.policy: {self.application_order}}}"

    def node_infos(self, first: int = 0) -> list[si.NodeInfo]:
        """Returns equal nodes, counted from *first*."""
        capacity = make_resource(vcore=self.node_cores * CORE, memory=self.node_gib * GIB)
        create = si.NodeInfo.CREATE
        return [
            si.NodeInfo(nodeID=f"node-{number:06}", action=create, schedulableResource=capacity)
            for number in range(first, first + self.nodes)
        ]

    def application_requests(self) -> list[si.AddApplicationRequest]:
        """Returns the applications of every leaf."""
        ugi = si.UserGroupInformation(user=USER)
        return [
            si.AddApplicationRequest(applicationID=self._application_of(leaf, number), queueName=path, ugi=ugi)
            for number in range(self.applications)
            for leaf, path in enumerate(self.leaves)
        ]

    def ask_messages(self, rm_id: str, prefix: str = "ask") -> Iterator[si.AllocationRequest]:
        """Yields all asks in batches. Applications take turns with one ask each; sizes repeat after *sizes* asks."""
        dice = random.Random(self.seed)
        amounts = [
            make_resource(vcore=dice.randint(1, 8) * CORE, memory=dice.randint(1, 16) * GIB) for _ in range(self.sizes)
        ]
        if self.sizes == 1:
            amounts = [make_resource(vcore=CORE, memory=GIB)]
        names = [self._application_of(leaf, n) for n in range(self.applications) for leaf in range(len(self.leaves))]
        for start in range(0, self.asks, self.batch):
            asks = [
                si.Allocation(
                    allocationKey=f"{prefix}-{number}",
                    applicationID=names[number % len(names)],
                    resourcePerAlloc=amounts[number % len(amounts)],
                )
                for number in range(start, min(self.asks, start + self.batch))
            ]
            yield si.AllocationRequest(rmID=rm_id, allocations=asks)

    @staticmethod
    def _application_of(leaf: int, number: int) -> str:
        return f"app-{leaf}-{number}"


def make_resource(**amounts: int) -> si.Resource:
    """Returns amounts in base units."""
    return si.Resource(resources={name: si.Quantity(value=amount) for name, amount in amounts.items()})
