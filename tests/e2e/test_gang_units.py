"""Gangs that start, wait and preempt as a whole, with a simulated cluster over gRPC.

It judges each message of the core: none leaves a gang running in part. All other situations are in
``tests/scenarios/gang-units.txt`` and ``tests/scenarios/preemption/gang-units.txt``, for the engine alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from kornel.shim_client import CallbackHandler, PredicatesQuestion, PreemptionQuestion
from kornel.v1 import explain_pb2
from tests.e2e.gang_wire import CORE, GangCluster, running_cluster


def configuration(gangs: str = "units", **guaranteed: Mapping[str, int]) -> str:
    """Queues below root by name, with their guarantees; their asks may preempt after a second."""
    queues = [
        {
            "name": name,
            "properties": {"preemption.delay": "1s"},
            **({"resources": {"guaranteed": size}} if size else {}),
        }
        for name, size in guaranteed.items()
    ]
    root = {"name": "root", "submitacl": "*", "queues": queues}
    return json.dumps({"partitions": [{"name": "default", "queues": [root], "gang": {"scheduling": gangs}}]})


def cores(count: int) -> dict[str, int]:
    return {"vcore": count * CORE}


def placed_in(cluster: GangCluster, name: str) -> list[list[str]]:
    """Returns the placeholders of *name* in the messages that started some."""
    found = [[key for key in batch if key.startswith(f"{name}-")] for batch in cluster.batches]
    return [batch for batch in found if batch]


async def test_m1_nobody_ends_for_three_of_four_places() -> None:
    """Twelve of sixteen tasks may lawfully end. When the guarantee that keeps the others is gone, all of them are asked
    to end in one message, and the gang starts in one message after the last one."""
    async with running_cluster(configuration(a={"vcore": 16}, v={"vcore": 4})) as cluster:
        await cluster.create_nodes({"n1": cores(16)})
        await cluster.submit_tasks("v", "root.v", 16, cores(1))
        await cluster.submit_gang("g", "root.a", {"g": (4, cores(4))})
        await cluster.wait(300)
        assert cluster.ended == []
        assert cluster.running("g") == 0
        explained = await cluster.explain("g-g0")
        assert "GANG_INCOMPLETE" in explained
        assert "3 of 4 places" in explained
        assert "law 2" in explained
        cluster.slow = True
        await cluster.client.update_configuration(configuration(a={"vcore": 16}, v={}))
        await cluster.wait(60)
        assert len(cluster.ended) == 16
        assert sorted(cluster.batches[-1]) == sorted(f"-v-{at}" for at in range(16))
        await cluster.let_end(*[f"v-{at}" for at in range(15)])
        assert cluster.running("g") == 0
        await cluster.let_end()
        assert cluster.running("g") == 4
        assert placed_in(cluster, "g") == [["g-g0", "g-g1", "g-g2", "g-g3"]]


async def _submit_two_gangs(gangs: str) -> None:
    async with running_cluster(configuration(gangs=gangs, a={})) as cluster:
        await cluster.create_nodes({"n1": cores(16)})
        for name in ("g", "h"):
            await cluster.submit_gang(name, "root.a", {"g": (10, cores(1))})
        assert [cluster.running(name) for name in ("g", "h")] == [10, 0]


async def test_m2_one_of_two_gangs_runs_and_the_cluster_would_notice_half_a_gang() -> None:
    """With each placeholder for itself, the cluster reports the gang that gets a part of its members."""
    await _submit_two_gangs("units")
    with pytest.raises(AssertionError, match=r"has \d+ of 10"):
        await _submit_two_gangs("upstream")


class Predicates(CallbackHandler):
    """Refuses the nodes of *refused* by member, with and without victims. It gives its first answer once it was asked
    about both members."""

    def __init__(self) -> None:
        self.refused: dict[str, set[str]] = {}
        self.asked: list[str] = []
        self._all_asked = asyncio.Event()

    async def _note_question(self, key: str) -> None:
        self.asked.append(key)
        if {"g-g0", "g-g1"} <= set(self.asked):
            self._all_asked.set()
        if key.startswith("g-"):
            await self._all_asked.wait()

    async def predicates(self, question: PredicatesQuestion) -> Mapping[str, str]:
        await self._note_question(question.key)
        return {node: "volume" for node in question.node_ids if node in self.refused.get(question.key, ())}

    async def preemption_predicates(self, question: PreemptionQuestion) -> int | None:
        await self._note_question(question.key)
        if question.node_id in self.refused.get(question.key, ()):
            return None
        return question.start_index


async def test_nobody_ends_before_the_shim_agrees_about_all_members() -> None:
    """One member is refused everywhere: nobody ends. Then it is refused on two of three nodes: the third is used."""
    handler = Predicates()
    async with running_cluster(configuration(a={"vcore": 4}, v={}), handler) as cluster:
        await cluster.create_nodes({f"n{at}": cores(2) for at in range(3)})
        await cluster.submit_tasks("v", "root.v", 3, cores(2))
        handler.refused = {"g-g1": {"n0", "n1", "n2"}}
        await cluster.submit_gang("g", "root.a", {"g": (2, cores(2))})
        await cluster.wait(120)
        assert "g-g0" in handler.asked
        assert "g-g1" in handler.asked
        assert cluster.ended == []
        handler.refused = {"g-g1": {"n0", "n2"}}
        await cluster.wait(610)  # Only the shim's mind has changed, so its no lasts ten minutes.
        assert len(cluster.ended) == 2
        assert placed_in(cluster, "g") == [["g-g0", "g-g1"]]
        assert cluster.nodes["task-g-g1"] == "n1"


async def test_what_if_names_the_time_when_the_limit_of_one_interval_has_room() -> None:
    """Four of now three cores were served just now, so nobody leaves for the next gang before the second is over."""
    async with running_cluster(configuration(a={"vcore": 9}, v={}).replace("1s", "0s")) as cluster:
        cluster.slow = True
        await cluster.create_nodes({"n0": cores(6)})
        await cluster.submit_tasks("x", "root.v", 3, cores(2))
        await cluster.create_nodes({"n1": cores(3)})
        await cluster.submit_tasks("y", "root.v", 1, cores(2))
        await cluster.submit_gang("g", "root.a", {"g": (2, cores(2))})
        assert len(cluster.ended) == 2
        await cluster.lose_node("n0")
        asked = explain_pb2.SupposedAsk(queue="root.a", resources=cores(2), count=1, user="ann")
        alone = await cluster.client.what_if(explain_pb2.WhatIfRequest(ask=asked))
        asked.gang = True
        gang = await cluster.client.what_if(explain_pb2.WhatIfRequest(ask=asked))
        assert [victim.key for each in gang.preemptions for victim in each.victims] == ["y-0"]
        assert gang.preemptions[0].not_before_ns == alone.preemptions[0].not_before_ns
