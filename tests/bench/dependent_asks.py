"""Asks that depend on other placements, one answer each: ``python -m tests.bench.dependent_asks``. Target: 616/s.

200 nodes and as many pods as the rule of the run allows, asked about over gRPC by a shim that judges as little as it
can, so that what is measured is the protocol: a core in a process of its own, two streams, and the shim's client.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import NamedTuple

from kornel.shim_client import (
    Allocated,
    Ask,
    CallbackAttachment,
    CallbackHandler,
    Judgement,
    PredicatesQuestion,
    ShimClient,
)
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import flat_queues, node_infos, running_core
from tests.bench.processes import processor_s

CREATE = si.NodeInfo.CREATE


class HostPort(CallbackHandler):
    """A shim whose pods all want the same port of a node, *slots* of them on each."""

    def __init__(self, slots: int, *, in_place: bool) -> None:
        self.slots = slots
        self.in_place = in_place
        self.used: dict[str, int] = {}
        self.questions = 0

    async def predicates(self, question: PredicatesQuestion) -> Judgement:
        """Refuses nodes up to the first one with a free slot."""
        self.questions += 1
        refused: dict[str, str] = {}
        for node in question.node_ids:
            if self.used.get(node, 0) < self.slots:
                if self.in_place:
                    self.used[node] = self.used.get(node, 0) + 1
                return Judgement(refused, in_place=self.in_place)
            refused[node] = "port in use"
        return Judgement(refused)

    def not_placed(self, partition: str, key: str) -> None:
        """Fails: in this run nothing comes in between."""
        raise AssertionError(f"{key} was not placed")


class Run(NamedTuple):
    """Placements a second, questions, and processor time per placement."""

    rate: float
    questions: int
    core_s: float
    shim_s: float


async def measured(nodes: int, pods: int, *, in_place: bool, policy: str) -> Run:
    """What *pods* submitted at once took."""
    slots = -(-pods // nodes)
    config = flat_queues(1).replace("    queues:", f"    nodesortpolicy: {{type: {policy}}}\n    queues:", 1)
    async with running_core(history=False) as (address, pid), ShimClient(address, "bench") as client:
        await client.register(config=config)
        handler = HostPort(slots, in_place=in_place)
        attachment: CallbackAttachment = await client.attach_callbacks(handler, timeout_s=10)
        await client.create_nodes(node_infos(nodes, CREATE))
        await client.add_applications([si.AddApplicationRequest(
            applicationID="app", queueName="root.q0", ugi=si.UserGroupInformation(user="bench"),
        )])  # fmt: skip
        asks = [Ask(f"p{n}", "app", {"vcore": 100, "memory": 1 << 20}, depends_on_placements=True) for n in range(pods)]
        began, core_s, own_s = time.perf_counter(), processor_s(pid), time.process_time()
        await client.submit_asks(asks)
        placed = 0
        async for batch in client.update_batches():
            keys = [update.key for update in batch if isinstance(update, Allocated)]
            if keys and not in_place:
                for update in batch:
                    if isinstance(update, Allocated):
                        handler.used[update.node_id] = handler.used.get(update.node_id, 0) + 1
                attachment.acknowledge(keys)
            placed += len(keys)
            if placed == pods:
                break
        took_s = time.perf_counter() - began
        busy_s = processor_s(pid) - core_s, time.process_time() - own_s
        return Run(pods / took_s, handler.questions, busy_s[0] / pods, busy_s[1] / pods)


def main() -> None:
    """Prints a line for each manner of acknowledging and each node order."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dependent_asks", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for policy in ("fair", "binpacking"):
        for in_place in (False, True):
            runs = [
                asyncio.run(measured(options.nodes, options.pods, in_place=in_place, policy=policy))
                for _ in range(options.runs)
            ]
            rates = [run.rate for run in runs]
            core_ms, shim_ms = (1_000 * min(times) for times in ([r.core_s for r in runs], [r.shim_s for r in runs]))
            said = "with the answer" if in_place else "after new"
            print(
                f"{policy:<11} acknowledged {said:<16} {statistics.median(rates):>6.0f}/s"
                f"  ({min(rates):.0f} to {max(rates):.0f}), {runs[0].questions} questions,"
                f" processor time each: core {core_ms:.2f} ms, shim {shim_ms:.2f} ms"
            )


if __name__ == "__main__":
    main()
