"""How much of a search among devices is done at once: a gang whose members want different devices preempts on a
cluster that is just small enough for all ways to be tried."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    UpdateAllocations,
)
from kornel.core.domain.devices import (
    DEVICES_ATTRIBUTE,
    GIVEN_TAG,
    DeviceRequest,
    DeviceSpec,
    read_wants,
    want_tags,
)
from kornel.core.domain.effects import Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.laws import freed_devices
from kornel.core.model.devices import NodeDevices
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.policies.device_sharing import Sharing, Wanting
from kornel.core.preemption.guarantee.gangs import search as gang_search
from tests.bench.opcodes import counted
from tests.driven_core import DrivenCore
from tests.request_texts import write_devices
from tests.unit.model.test_ask_group import Asks

PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
NOW: Final = 1_000 * SECOND
NODES, MEMBERS = 16, 8
MOST_AT_ONCE: Final = 400
"""The most times that devices of a node are copied, or given to somebody, in one step. That takes about five
milliseconds."""
CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.delay: 1s}
        queues:
          - {name: owed, resources: {guaranteed: {vcore: 900}}}
          - {name: other}
"""
ONE: Final = Resources({"vcore": 1_000})
HELD: Final = ({"count": 2}, {"count": 1}, {"fraction": "0.5"}, {"count": 2})
WANTED: Final = (
    {"count": 4, "linked": True}, {"count": 3}, {"fraction": "0.7"}, {"fraction": "0.4"}, {"memory": "30Gi"},
    {"count": 8},
)  # fmt: skip


def full_cluster(rng: random.Random) -> Engine:
    """Nodes with eight devices, four tasks on each."""
    core = DrivenCore(CONFIG, now_ns=NOW)
    devices = write_devices(DeviceSpec(f"g{at}", rng.choice("AB"), 80 << 30, "ab"[at % 2]) for at in range(8))
    for n in range(NODES):
        core.node(f"n{n}", {"vcore": 90_000}, attributes=((DEVICES_ATTRIBUTE, devices),))
    ask = Resources({"vcore": 1_000 * MEMBERS})
    core.application("other", "root.other")
    core.application("owed", "root.owed", placeholder_ask=ask, gang_style="Hard")
    running = []
    for n in range(NODES):
        for at in range(4):
            wants = rng.choice(HELD)
            held = f"g{2 * at},g{2 * at + 1}" if wants.get("count") == 2 else f"g{2 * at}"
            running.append(_spec(f"t{n}-{at}", "other", wants, node_id=f"n{n}", given=held))
    core.apply(UpdateAllocations("rm", tuple(running)))
    return core.engine


def _spec(key: str, application: str, wants: Mapping[str, Any], *, given: str = "", **more: Any) -> AllocationSpec:
    tags = (*want_tags(**wants), *([(GIVEN_TAG, given)] if given else []))
    return AllocationSpec(key, application, PARTITION, ONE, tags=tags, devices=read_wants(tags), **more)


def test_a_step_of_a_search_among_devices_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    engine = full_cluster(rng)
    done, steps = 0, []
    take_step, copy, put = gang_search.GangSearch.take_step, NodeDevices.copy, NodeDevices.put_on_paper

    def measured(search: gang_search.GangSearch, *given: Any) -> Any:
        nonlocal done
        done = 0
        try:
            return take_step(search, *given)
        finally:
            steps.append(done)

    def counted_copy(devices: NodeDevices) -> NodeDevices:
        nonlocal done
        done += 1
        return copy(devices)

    def counted_put(devices: NodeDevices, taken: Any) -> None:
        nonlocal done
        done += 1
        put(devices, taken)

    monkeypatch.setattr(gang_search.GangSearch, "take_step", measured)
    monkeypatch.setattr(NodeDevices, "copy", counted_copy)
    monkeypatch.setattr(NodeDevices, "put_on_paper", counted_put)
    asks = (
        _spec(
            f"m{at}", "owed", rng.choice(WANTED), task_group="g", placeholder=True, allow_preempt_other=True
        )
        for at in range(MEMBERS)
    )  # fmt: skip
    engine.apply(UpdateAllocations("rm", tuple(asks)), NOW)
    now, gone = NOW, 0
    while not gone and now < NOW + 400 * SECOND:
        now += SECOND // 10
        gone = sum(isinstance(effect, Released) for effect in engine.cycle(now, 1_000).effects)
    assert gone
    assert len(steps) > MEMBERS, "all ways are tried, beyond the one that was found first"
    assert max(steps) <= MOST_AT_ONCE


def test_checking_which_victims_are_needed_for_devices_is_small() -> None:
    """Six parts on eight devices that have different memory, which none of them wants: there are 262,144 ways."""
    node = Node("n", (), [0])
    node.devices = NodeDevices([DeviceSpec(f"g{at}", memory=at << 30) for at in range(8)])
    made, members = Asks(), []
    for at in range(6):
        ask = made.made(0)
        ask.shape = Shape(ask.shape.resources, ask.shape.pairs, devices=DeviceRequest(share=500 + at))
        members.append(ask)
    instructions, enough = counted(lambda: freed_devices.could_share(node, members, (), {}))
    assert enough
    assert instructions < 100_000


def test_devices_between_which_nobody_can_tell_are_tried_once() -> None:
    """Three members want six of sixteen devices each. One look at each member shows that this does not work."""
    devices = NodeDevices([DeviceSpec(f"g{at}", memory=at << 30) for at in range(16)])
    made = Asks()
    members = []
    for _ in range(3):
        ask = made.made(0)
        ask.shape = Shape(ask.shape.resources, ask.shape.pairs, devices=DeviceRequest(number=6))
        members.append(ask)
    search = Sharing(devices, [Wanting(ask.shape.devices, ask) for ask in members if ask.shape.devices is not None])
    assert not search.serve_all()
    assert not search.cut_short
    assert search.steps < 10
