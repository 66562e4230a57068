"""Gangs that start, wait, preempt and are preempted as a whole, with a simulated cluster over gRPC.

``tests/scenarios/gang-units.txt`` and ``tests/scenarios/preemption/gang-units.txt`` have the same situations for the
engine alone. Here the cluster also judges each message of the core: none leaves a gang running in part.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from kornel.shim_client import CallbackHandler, PredicatesQuestion, PreemptionQuestion, Topology
from kornel.v1 import explain_pb2
from tests.e2e.gang_wire import CORE, GangCluster, running_cluster


def configuration(topology: tuple[str, ...] = (), gangs: str = "units", **guaranteed: Mapping[str, int]) -> str:
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
    partition: dict[str, Any] = {"name": "default", "queues": [root], "gang": {"scheduling": gangs}}
    return json.dumps({"partitions": [partition | ({"topology": topology} if topology else {})]})


def cores(count: int, memory: int = 0) -> dict[str, int]:
    return {"vcore": count * CORE} | ({"memory": memory} if memory else {})


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


async def test_m2_of_five_gangs_two_run_at_a_time() -> None:
    """Ten cores, five gangs of four: whoever runs has all members, and each has its turn."""
    async with running_cluster(configuration(a={})) as cluster:
        await cluster.create_nodes({"n1": cores(5), "n2": cores(5)})
        names = ["g", "h", "i", "j", "k"]
        for name in names:
            await cluster.submit_gang(name, "root.a", {"g": (4, cores(1))})
        had_a_turn: list[str] = []
        while len(had_a_turn) < len(names):
            now = [name for name in names if cluster.running(name)]
            assert [cluster.running(name) for name in now] == [4] * min(2, len(names) - len(had_a_turn))
            had_a_turn.append(now[0])
            await cluster.end_application(now[0])
        assert had_a_turn == names


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


async def test_m2_of_four_gangs_that_preempt_none_holds_a_part() -> None:
    """Queues of two gangs each are owed room for one: two plans, and the other gangs have their turn afterwards."""
    guaranteed = {"vcore": 4}
    async with running_cluster(configuration(a=guaranteed, b=guaranteed, v={})) as cluster:
        await cluster.create_nodes({f"n{at}": cores(4) for at in range(2)})
        await cluster.submit_tasks("v", "root.v", 8, cores(1))
        cluster.slow = True
        for name, queue in (("g", "a"), ("h", "b"), ("i", "a"), ("j", "b")):
            await cluster.submit_gang(name, f"root.{queue}", {"g": (4, cores(1))})
        await cluster.wait(30)
        assert len(cluster.ended) == 8
        await cluster.let_end(*cluster.ended[:7])
        assert [cluster.running(name) for name in "ghij"] in ([4, 0, 0, 0], [0, 4, 0, 0])
        await cluster.let_end()
        assert [cluster.running(name) for name in "ghij"] == [4, 4, 0, 0]
        await cluster.end_application("g")
        await cluster.end_application("h")
        assert [cluster.running(name) for name in "ghij"] == [0, 0, 4, 4]


async def test_several_task_groups_and_two_types_are_one_plan() -> None:
    """A driver lacks memory, one of two executors lacks cores, the other one finds idle room."""
    async with running_cluster(configuration(a={"vcore": 6, "memory": 8}, v={})) as cluster:
        await cluster.create_nodes({"n1": cores(4, memory=6), "n2": cores(4, memory=6)})
        await cluster.submit_tasks("much", "root.v", 1, cores(3, memory=1))
        await cluster.submit_tasks("large", "root.v", 1, cores(1, memory=5))
        cluster.slow = True
        await cluster.submit_gang(
            "g", "root.a", {"driver": (1, cores(2, memory=4)), "executor": (2, cores(2, memory=2))}
        )
        await cluster.wait(30)
        assert sorted(cluster.batches[-1]) == ["-large-0", "-much-0"]
        await cluster.let_end("much-0")
        assert cluster.running("g") == 0
        await cluster.let_end("large-0")
        assert placed_in(cluster, "g") == [["g-driver0", "g-executor0", "g-executor1"]]


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


async def test_a_member_that_may_run_nowhere_keeps_all_waiting() -> None:
    """The shim is asked about both members. Once it agrees to the other node, both start at once."""
    handler = Predicates()
    async with running_cluster(configuration(a={}), handler) as cluster:
        await cluster.create_nodes({"n1": cores(2)})
        handler.refused = {"g-g1": {"n1"}}
        await cluster.submit_gang("g", "root.a", {"g": (2, cores(1))})
        await cluster.wait(40)
        assert {"g-g0", "g-g1"} <= set(handler.asked)
        assert cluster.nodes == {}
        await cluster.create_nodes({"n2": cores(2)})
        await cluster.wait(40)
        assert placed_in(cluster, "g") == [["g-g0", "g-g1"]]
        assert cluster.nodes["task-g-g1"] == "n2"


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


async def test_a_member_that_fails_to_start_comes_back_alone() -> None:
    """The gang ran as a whole; the cluster itself lost one member, and the others go on. Nobody ends twice for it."""
    async with running_cluster(configuration(a={"vcore": 4}, v={})) as cluster:
        await cluster.create_nodes({"n1": cores(4)})
        await cluster.submit_tasks("v", "root.v", 2, cores(2))
        cluster.broken_starts = {"g-g1"}
        await cluster.submit_gang("g", "root.a", {"g": (2, cores(2))})
        await cluster.wait(60)
        assert len(cluster.ended) == 2
        assert placed_in(cluster, "g") == [["g-g0", "g-g1"], ["g-g1"]]
        assert cluster.running("g") == 2


async def test_a_place_that_is_lost_with_its_node_is_sought_anew() -> None:
    """Two of three tasks were asked to end when the node of one is lost: the third ends for it, and all start at
    once."""
    async with running_cluster(configuration(a={"vcore": 4}, v={})) as cluster:
        await cluster.create_nodes({f"n{at}": cores(2) for at in range(3)})
        await cluster.submit_tasks("v", "root.v", 3, cores(2))
        cluster.slow = True
        await cluster.submit_gang("g", "root.a", {"g": (2, cores(2))})
        await cluster.wait(30)
        assert len(cluster.ended) == 2
        await cluster.lose_node(cluster.nodes[cluster.ended[0]])
        await cluster.wait(2)
        assert sorted(cluster.ended) == ["v-0", "v-1", "v-2"]
        await cluster.let_end(cluster.ended[1])
        assert cluster.running("g") == 0
        await cluster.let_end()
        assert placed_in(cluster, "g") == [["g-g0", "g-g1"]]


async def test_a_plan_that_loses_a_node_for_good_is_called_off() -> None:
    """A guarantee keeps the third task: no other victim is asked to end, and the decision says what the plan has cost.
    The gang saves places by age then, and another task of a queue that is owed nothing is not placed at once."""
    async with running_cluster(configuration(a={"vcore": 4}, v={"vcore": 2})) as cluster:
        await cluster.create_nodes({f"n{at}": cores(2) for at in range(3)})
        await cluster.submit_tasks("v", "root.v", 3, cores(2))
        cluster.slow = True
        await cluster.submit_gang("g", "root.a", {"g": (2, cores(2))})
        await cluster.wait(30)
        assert len(cluster.ended) == 2
        lost = cluster.nodes[cluster.ended[0]]
        await cluster.lose_node(lost)
        await cluster.wait(2)
        explained = await cluster.explain("g-g0")
        assert f"node {lost} was removed" in explained
        assert "2 victims were asked to leave" in explained
        await cluster.let_end()
        await cluster.submit_tasks("other", "root.v", 1, cores(2))
        assert cluster.running("other") == 0
        await cluster.wait(120)
        assert len(cluster.ended) == 2
        assert cluster.running("g") == cluster.running("other") == 0


async def test_m3_one_of_two_gangs_ends_as_a_whole() -> None:
    """Two cores are wanted, two gangs of eight run: one of them runs as before, nothing of the other one does."""
    async with running_cluster(configuration(a={"vcore": 2}, v={})) as cluster:
        await cluster.create_nodes({f"n{at}": cores(4) for at in range(4)})
        for name in ("curie", "darwin"):
            await cluster.submit_gang(name, "root.v", {"g": (8, cores(1))})
            assert cluster.running(name) == 8
        await cluster.submit_tasks("urgent", "root.a", 2, cores(1))
        await cluster.wait(30)
        assert cluster.running("urgent") == 2
        assert sorted(cluster.running(name) for name in ("curie", "darwin")) == [0, 8]
        assert len(cluster.ended) == 8


async def test_m3_other_tasks_end_before_members() -> None:
    """Beside a gang of eight, two single tasks run, which end although the gang is younger."""
    async with running_cluster(configuration(a={"vcore": 2}, v={})) as cluster:
        await cluster.create_nodes({"n1": cores(10)})
        await cluster.submit_tasks("single", "root.v", 2, cores(1))
        await cluster.submit_gang("curie", "root.v", {"g": (8, cores(1))})
        await cluster.submit_tasks("urgent", "root.a", 2, cores(1))
        await cluster.wait(30)
        assert sorted(cluster.ended) == ["single-0", "single-1"]
        assert cluster.running("curie") == 8


async def test_m3_members_beyond_the_minimum_end_one_by_one() -> None:
    """A gang of eight with a minimum of six gives up two, and as a whole the rest if more is wanted."""
    async with running_cluster(configuration(a={"vcore": 4}, v={})) as cluster:
        await cluster.create_nodes({"n1": cores(8)})
        await cluster.submit_gang("curie", "root.v", {"g": (8, cores(1))}, minimum=6)
        assert cluster.running("curie") == 8
        await cluster.submit_tasks("urgent", "root.a", 2, cores(1))
        await cluster.wait(30)
        assert cluster.running("curie") == 6
        await cluster.submit_tasks("more", "root.a", 1, cores(1))
        await cluster.wait(30)
        assert cluster.running("more") == 1
        assert cluster.running("curie") == 0


async def test_a_gang_preempts_in_a_rack_though_others_have_room() -> None:
    """Both free nodes are of different racks. Two of the four tasks of a rack end, as many as are needed; where it
    cannot be freed, the answer names racks."""
    rack = Topology(required="rack")
    config = configuration(topology=("rack",), a={"vcore": 8}, v={"vcore": 4})
    async with running_cluster(config) as cluster:
        nodes = {"n1": cores(4), "n2": cores(4), "n3": cores(4), "n4": cores(2)}
        await cluster.create_nodes(nodes, {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r3"})
        await cluster.submit_tasks("v", "root.v", 7, cores(2))
        await cluster.end_application("v")
        cluster.slow = True
        await cluster.submit_tasks("w", "root.v", 7, cores(2))
        racks = {key: "r1" if node in ("n1", "n2") else node for key, node in cluster.nodes.items()}
        await cluster.submit_gang("g", "root.a", {"g": (2, cores(4))}, topology=rack)
        await cluster.wait(30)
        assert {racks[key] for key in cluster.ended} == {"r1"}
        assert len(cluster.ended) == 4
        await cluster.submit_gang("h", "root.a", {"g": (3, cores(4))}, topology=rack)
        await cluster.wait(30)
        assert "rack r1: " in await cluster.explain("h-g0")
        await cluster.let_end()
        assert placed_in(cluster, "g") == [["g-g0", "g-g1"]]
        assert {cluster.nodes[key] for key in ("task-g-g0", "task-g-g1")} == {"n1", "n2"}


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
