"""Rules between pods over gRPC: a shim that enforces them with the client library, and a core that asks in turn."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest

from kornel.shim_client import Allocated, Ask, CallbackHandler, Judgement, PredicatesQuestion, ShimClient
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import CONFIG, create, running_core
from tests.kubernetes_rules import (
    Ended,
    Placed,
    Pod,
    depends_on_placements,
    find_violations,
    random_pods,
    random_topology,
    refuse_node,
)
from tests.patience import PATIENCE_S

APPLICATION = si.AddApplicationRequest(
    applicationID="app", queueName="root.a", ugi=si.UserGroupInformation(user="u")
)  # fmt: skip
PODS = 60


class PodJudge(CallbackHandler):
    """Judges with what it has in place. *manner*: ``tags``, ``answers``, ``at once``, or ``silent``."""

    def __init__(self, dice: random.Random, manner: str) -> None:
        self.dice = dice
        self.manner = manner
        self.topology = random_topology(dice)
        self.pods = random_pods(dice, PODS)
        self.in_place: dict[str, str] = {}
        self.asked = 0
        self.dependent = {key for key, pod in self.pods.items() if depends_on_placements(pod, self.pods.values())}

    async def predicates(self, question: PredicatesQuestion) -> Judgement:
        self.asked += 1
        pod = self.pods[question.key]
        self.in_place.pop(pod.key, None)
        refused = self._refused(pod, question.node_ids)
        at_once = self.manner == "at once" and pod.key in self.dependent
        allowed = [node for node in question.node_ids if node not in refused]
        if at_once and allowed:
            self.in_place[pod.key] = allowed[0]
        elif self.dice.random() < 0.3:
            await asyncio.sleep(0)  # So that answers go out in another order than questions came.
        says = self.manner == "answers" and pod.key in self.dependent
        return Judgement(refused, says, at_once and bool(allowed))

    def not_placed(self, partition: str, key: str) -> None:
        self.in_place.pop(key, None)

    def _refused(self, pod: Pod, nodes: tuple[str, ...]) -> Mapping[str, str]:
        reasons = {node: refuse_node(pod, node, self.in_place, self.pods, self.topology) for node in nodes}
        return {node: reason for node, reason in reasons.items() if reason}


async def play(seed: int, manner: str) -> tuple[list[str], int]:
    """What is wrong with the placements of one random cluster, and how many there were."""
    dice = random.Random(seed)
    judge = PodJudge(dice, manner)
    history: list[Placed | Ended] = []
    async with running_core() as core, ShimClient(core.address, "rm-1") as client:
        await client.register(config=CONFIG)
        attachment = await client.attach_callbacks(judge, timeout_s=PATIENCE_S)
        await client.create_nodes([create(node, vcore=30_000) for node in judge.topology])
        await client.add_applications([APPLICATION])
        tagged = judge.dependent if manner in ("tags", "at once") else set()
        await client.submit_asks(
            [Ask(key, "app", {"vcore": 1000}, depends_on_placements=key in tagged) for key in judge.pods]
        )

        async def listen() -> None:
            async for update in client.updates():
                if isinstance(update, Allocated):
                    history.append(Placed(update.key, update.node_id))
                    judge.in_place[update.key] = update.node_id
                    attachment.acknowledge([update.key])

        listening = asyncio.create_task(listen())
        seen = (-1, -1)
        while seen != (judge.asked, len(history)):  # The shim refuses the rest, and its clock stands.
            seen = judge.asked, len(history)
            await client.flush()
            await client.status()
            await core.settle()
        assert not listening.done(), listening
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return list(find_violations(history, judge.pods, judge.topology)), len(history)


@pytest.mark.parametrize("manner", ["tags", "answers", "at once"])
async def test_no_rule_between_pods_is_broken(manner: str) -> None:
    for seed in range(3):
        wrong, placed = await play(seed, manner)
        assert wrong == [], f"seed {seed}"
        assert placed > 10, f"seed {seed}"


async def test_a_shim_that_says_nothing_sees_rules_broken() -> None:
    """So the test above can fail."""
    assert any([(await play(seed, "silent"))[0] for seed in range(3)])
