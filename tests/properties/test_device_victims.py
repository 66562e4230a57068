"""Victims for asks with devices, on a node where nobody is protected, against every set of victims that there is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, read_wants, want_tags
from kornel.core.domain.effects import Allocated, PreemptionDecided, Released
from kornel.core.domain.resources import Resources
from kornel.core.state.books import audit
from tests.driven_core import DrivenCore
from tests.properties.machine.device_rules import DEVICES, GIB
from tests.request_texts import write_devices

SECOND = 10**9
PARTITION = "[rm]default"
CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {name: owed, resources: {guaranteed: {part: 9000}}, properties: {preemption.delay: 1s}}
          - {name: other}
"""
CAPACITY = 5_000

_HELD = st.tuples(st.sampled_from([d.device_id for d in DEVICES]), st.sampled_from((200, 300, 500, 1000)))
_WANTS: tuple[dict[str, Any], ...] = (
    {"count": 1}, {"count": 2, "linked": True}, {"count": 2}, {"count": 3}, {"fraction": "0.5"}, {"fraction": "0.9"},
    {"memory": "8Gi"}, {"memory": "24Gi"}, {"count": 2, "types": ("B",)},
)  # fmt: skip


def _spec(
    key: str, application: str, amount: int, want: dict[str, Any], device: str = "", required_node: str = ""
) -> AllocationSpec:
    tags = (*want_tags(**want), *((("kornel.gpu.devices", device),) if device else ()))
    return AllocationSpec(
        key, application, PARTITION, Resources({"part": amount}), node_id="n" if device else "",
        allow_preempt_other=not device, created_s=1, tags=tags, devices=read_wants(tags),
        required_node=required_node,
    )  # fmt: skip


def _finds(want: dict[str, Any], left: dict[str, int]) -> bool:
    """Whether an ask that wants *want* finds it where so many thousandths of each device are left."""
    usable = [d for d in DEVICES if not want.get("types") or d.type in want["types"]]
    if "count" in want:
        whole = [d for d in usable if left[d.device_id] == 1000]
        if not want.get("linked"):
            return len(whole) >= want["count"]
        return any(sum(d.link == link for d in whole) >= want["count"] for link in ("x", "y"))
    if "fraction" in want:
        return any(left[d.device_id] >= round(float(want["fraction"]) * 1000) for d in usable)
    memory = int(want["memory"].removesuffix("Gi")) * GIB
    return any(left[d.device_id] * d.memory >= memory * 1000 for d in usable)


def _suffices(gone: Sequence[str], running: dict[str, tuple[str, int]], want: dict[str, Any], amount: int) -> bool:
    left = {device.device_id: 1000 for device in DEVICES}
    free = CAPACITY
    for key, (device, share) in running.items():
        if key not in gone:
            left[device] -= share
            free -= share
    return free >= amount and _finds(want, left)


@given(st.lists(_HELD, max_size=9), st.sampled_from(_WANTS), st.sampled_from((100, 1000, 2500)), st.booleans())
def test_a_plan_is_found_where_there_is_one_and_takes_nobody_without_need(
    held: list[tuple[str, int]], want: dict[str, Any], amount: int, required: bool
) -> None:
    """For a guarantee, and on a node that the ask requires."""
    core = DrivenCore(CONFIG, now_ns=SECOND)
    core.node("n", {"part": CAPACITY}, attributes=((DEVICES_ATTRIBUTE, write_devices(DEVICES)),))
    for name in ("owed", "other"):
        core.application(name, f"root.{name}")
    running: dict[str, tuple[str, int]] = {}
    for number, (device, share) in enumerate(held):
        key = f"r{number}"
        have = {"count": 1} if share == 1000 else {"fraction": str(share / 1000)}
        effects = core.send(_spec(key, "other", share, have, device))
        if any(isinstance(effect, Allocated) for effect in effects):
            running[key] = (device, share)
    core.send(_spec("k", "owed", amount, want, required_node="n" if required else ""))
    effects = [effect for at in (2, 3, 4) for effect in core.engine.cycle(at * SECOND, 1000).effects]
    assert audit.check(core.state) == []
    assert core.state.law_violations == 0
    placed = [effect for effect in effects if isinstance(effect, Allocated)]
    victims = [effect.key for effect in effects if isinstance(effect, Released)]
    keys = list(running)
    if _suffices((), running, want, amount):
        assert placed
        assert not victims
        return
    possible = any(
        _suffices(some, running, want, amount)
        for count in range(1, len(keys) + 1)
        for some in combinations(keys, count)
    )
    assert bool(victims) is possible, [effect for effect in effects if isinstance(effect, PreemptionDecided)]
    if victims:
        assert _suffices(victims, running, want, amount)
        assert not any(_suffices([v for v in victims if v != one], running, want, amount) for one in victims)
