"""The limit of the cycle, the list of policies and the bounds on victims, as a shim over gRPC meets them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kornel.si.v1 import si_pb2 as si
from tests.e2e.preemption_wire import Shim, running_shim
from tests.preemption_notation import Case, TaskCase
from tests.waiting import until

NODES = 16


def config(preemption: str, most: int = 1000) -> str:
    """Leaf ``v`` with *most* as its max, ``a`` with all of the cluster guaranteed, and ``d``."""
    return f"""
partitions:
  - name: default
    preemption: {preemption}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {{name: v, resources: {{max: {{f: {most}}}}}, properties: {{quota.preemption.delay: 1s}}}}
          - {{name: a, resources: {{guaranteed: {{f: {NODES}}}}}}}
          - {{name: d}}
"""


FULL = Case(
    "full",
    nodes=tuple((f"n{number}", {"f": 1}) for number in range(1, NODES + 1)),
    running=tuple(TaskCase("v", f"v{number}", {"f": 1}, f"n{number}", number) for number in range(1, NODES + 1)),
)
HALVES = replace(
    FULL,
    nodes=(("n1", {"f": NODES}),),
    running=tuple(replace(task, node="n1") for task in FULL.running),
)


async def ask_for_all(shim: Shim) -> None:
    """One ask for each task that runs, old enough to preempt."""
    for number in range(1, NODES + 1):
        await shim.ask(TaskCase("a", f"k{number}", {"f": 1}))
    await shim.core.settle()


async def outcome(shim: Shim, key: str) -> str:
    report = (await shim.client.explain(key, "default")).ask
    return report.preemption.outcome


async def test_a_quarter_of_the_cluster_per_interval() -> None:
    """Four of sixteen at once, four more each second, whether the allocation cycle or a round gets there first."""
    async with running_shim(config("{cycle: {limit: 0.25}}")) as shim:
        await shim.set_up(FULL)
        await ask_for_all(shim)
        for so_far in (4, 8, 12, 16):
            await shim.lost(so_far)
            await shim.pass_seconds(0.9)
            assert len(shim.victims()) == so_far
            if so_far < NODES:
                waiting = [
                    key for key in (f"k{n}" for n in range(1, NODES + 1)) if await outcome(shim, key) != "TRIGGERED"
                ]
                assert {await outcome(shim, key) for key in waiting} == {"ROUND_LIMIT"}
            await shim.pass_seconds(0.1)
        await shim.confirm()
        await until(lambda: sum(key.startswith("k") for key in shim.placed) == NODES, "all asks to be placed")


@pytest.mark.parametrize(
    "preemption",
    [
        "{cycle: {limit: 0.0}}", "{policies: [required-node, quota, monitor]}",
        "{policies: [required-node, quota], monitor: {enabled: true}}",
    ],
)  # fmt: skip
async def test_nobody_goes_for_a_guarantee(preemption: str) -> None:
    """With a limit of 0, or without the policies, however much time passes and although the monitor's switch is on."""
    async with running_shim(config(preemption)) as shim:
        await shim.set_up(FULL)
        await ask_for_all(shim)
        for _ in range(20):
            await shim.pass_seconds(3)
        assert shim.victims() == []


async def test_nobody_leaves_a_node_without_the_policy() -> None:
    """An ask that must run on a full node waits there until room frees itself."""
    async with running_shim(config("{policies: [guarantee, quota, monitor]}")) as shim:
        await shim.set_up(FULL)
        await shim.ask(TaskCase("d", "d1", {"f": 1}, required_node=True))
        await shim.pass_seconds(20)
        assert shim.victims() == []
        assert await outcome(shim, "d1") == "POLICY_OFF"
        await shim.client.release([shim.client.release_of("app-v", "v1", si.STOPPED_BY_RM)])
        await until(lambda: shim.placed.get("d1") == "n1", "the ask to be placed")


async def test_no_max_is_enforced_without_the_policy() -> None:
    """However far it is lowered."""
    text = "{quotapreemptionenabled: true, policies: [guarantee, required-node, monitor]}"
    async with running_shim(config(text)) as shim:
        await shim.set_up(FULL)
        await shim.client.update_configuration(config(text, 1))
        await shim.pass_seconds(20)
        assert shim.victims() == []


async def test_an_ask_takes_no_more_victims_than_its_bound() -> None:
    """Three of four: nobody goes, and explain says why. Its neighbour of three gets its room."""
    async with running_shim(config("{governor: {victims: {guarantee: {ask: 3}}}}")) as shim:
        await shim.set_up(HALVES)
        await shim.ask(TaskCase("a", "large", {"f": 4}))
        await shim.core.settle()
        assert shim.victims() == []
        assert await outcome(shim, "large") == "VICTIM_LIMIT"
        await shim.ask(TaskCase("a", "small", {"f": 3}))
        await shim.lost(3)
        await shim.core.settle()
        assert len(shim.victims()) == 3


async def test_a_lowered_max_is_enforced_in_parts() -> None:
    """Six of fifteen in each second."""
    text = "{quotapreemptionenabled: true, governor: {victims: {quota: {interval: 6}}}}"
    async with running_shim(config(text)) as shim:
        await shim.set_up(FULL)
        await shim.client.update_configuration(config(text, 1))
        await shim.core.settle()
        for so_far in (6, 12, 15, 15):
            await shim.pass_seconds(1)
            await shim.lost(so_far)
            assert len(shim.victims()) == so_far
