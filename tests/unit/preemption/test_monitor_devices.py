"""How long asks with devices wait for each other when the monitor makes room for them on the same node: it serves one
in each round, so the wait of the last is bounded by their number."""

from __future__ import annotations

from typing import Final

from kornel.core.domain.commands import (
    AllocationSpec,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
)
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, GIVEN_TAG, DeviceSpec, read_wants, want_tags
from kornel.core.domain.effects import Allocated, Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from tests.driven_core import DrivenCore
from tests.request_texts import write_devices

PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
START: Final = 1_000 * SECOND
DEVICES, ASKS = 8, 4
INTERVAL_S, NOTICE_S = 1, 5
CONFIG: Final = f"""
partitions:
  - name: default
    preemption:
      policies: [monitor]
      monitor:
        {{enabled: true, interval_ms: {INTERVAL_S * 1_000}, max_wait_ms: {NOTICE_S * 1_000}, per_round: 1.0,
          natural_factor: 1.0, dead_zone: 0.0}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {{name: owed, resources: {{guaranteed: {{gpu: {ASKS}}}}}}}
          - {{name: other, resources: {{guaranteed: {{gpu: {DEVICES - ASKS}}}}}}}
"""
ONE: Final = Resources({"gpu": 1})


def _spec(key: str, application: str, *, node_id: str = "", given: str = "") -> AllocationSpec:
    tags = (*want_tags(count=1), *([(GIVEN_TAG, given)] if given else []))
    return AllocationSpec(
        key, application, PARTITION, ONE, node_id=node_id, tags=tags, devices=read_wants(tags), allow_preempt_other=True
    )


def full_node() -> Engine:
    """A node with eight devices, each held by a task of the queue that is guaranteed four."""
    core = DrivenCore(CONFIG, now_ns=START)
    devices = write_devices(DeviceSpec(f"g{at}") for at in range(DEVICES))
    core.node("n", {"gpu": DEVICES}, attributes=((DEVICES_ATTRIBUTE, devices),))
    for name in ("owed", "other"):
        core.application(name, f"root.{name}")
    running = (_spec(f"t{at}", "other", node_id="n", given=f"g{at}") for at in range(DEVICES))
    core.apply(UpdateAllocations("rm", tuple(running)))
    return core.engine


def test_asks_with_devices_on_one_node_are_served_one_after_the_other() -> None:
    engine = full_node()
    asks = tuple(_spec(f"k{at}", "owed") for at in range(ASKS))
    engine.apply(UpdateAllocations("rm", asks), START)
    placed: dict[str, int] = {}
    gone: list[str] = []
    second = 0
    while len(placed) < ASKS and second < 200:
        second += 1
        now_ns = START + second * SECOND
        effects = [*engine.preempt(now_ns), *engine.cycle(now_ns, 1_000).effects]
        for effect in effects:
            if isinstance(effect, Allocated):
                placed[effect.spec.key] = second
            elif isinstance(effect, Released):
                gone.append(effect.key)
                leaves = ReleaseSpec(PARTITION, "other", effect.key, TerminationType.PREEMPTED_BY_SCHEDULER)
                engine.apply(UpdateAllocations("rm", releases=(leaves,)), now_ns)
    assert sorted(placed) == [ask.key for ask in asks]
    assert len(gone) == ASKS, "nobody leaves who is not needed"
    assert max(placed.values()) <= INTERVAL_S + ASKS * (NOTICE_S + INTERVAL_S)
    state = engine.partition(PARTITION)
    assert state is not None
    assert state.law_violations == 0
