"""A shim that starts again and reports what runs, with the tags that the core gave it, finds the same books."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, read_wants, want_tags
from kornel.core.domain.effects import Allocated, AllocationRejected
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from tests.properties.machine.device_rules import DEVICES
from tests.request_texts import write_devices

SECOND = 10**9
PARTITION = "[rm]default"
CONFIG = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
NODES = ("n0", "n1", "n2")

_WANTS: tuple[dict[str, Any], ...] = (
    {"count": 1}, {"count": 2, "linked": True}, {"count": 3}, {"fraction": "0.5"}, {"fraction": "0.3"},
    {"memory": "8Gi"}, {"memory": "20Gi"}, {"count": 1, "types": ("B",)},
)  # fmt: skip


def _begin() -> Engine:
    engine = Engine()
    engine.apply(RegisterManager("rm", CONFIG), SECOND)
    report = ((DEVICES_ATTRIBUTE, write_devices(DEVICES)),)
    nodes = (NodeSpec(name, NodeAction.CREATE, PARTITION, report, Resources({"vcore": 100})) for name in NODES)
    engine.apply(UpdateNodes("rm", tuple(nodes)), SECOND)
    engine.apply(UpdateApplications("rm", (ApplicationSpec("app", "root.a", PARTITION, "user"),)), SECOND)
    return engine


def _state(engine: Engine) -> PartitionState:
    state = engine.partition(PARTITION)
    assert state is not None
    assert audit.check(state) == []
    return state


def _held(engine: Engine) -> dict[tuple[str, str], dict[str, int]]:
    """What is held of each device, by whom."""
    return {
        (node.node_id, device.spec.device_id): {holder.key: share for holder, share in device.holders.items()}
        for node in _state(engine).nodes.values()
        for device in node.devices or ()
    }


@given(st.lists(st.sampled_from(_WANTS), max_size=14), st.sets(st.integers(0, 13)), st.randoms(use_true_random=False))
def test_a_restart_finds_the_same_devices(wants: list[dict[str, Any]], ended: set[int], dice: Any) -> None:
    engine = _begin()
    running: dict[str, AllocationSpec] = {}
    for number, want in enumerate(wants):
        tags = want_tags(**want)
        spec = AllocationSpec(
            f"k{number}", "app", PARTITION, Resources({"vcore": 1}), tags=tags, devices=read_wants(tags)
        )
        engine.apply(UpdateAllocations("rm", (spec,)), SECOND)
        effects = engine.cycle(SECOND, 100).effects
        for effect in effects:
            if isinstance(effect, Allocated):
                told = effect.spec._replace(node_id=effect.node_id, tags=effect.tags, devices=read_wants(effect.tags))
                running[effect.spec.key] = told
        gone = f"k{number - 1}"
        if number in ended and gone in running:
            del running[gone]
            engine.apply(UpdateAllocations("rm", releases=(ReleaseSpec(PARTITION, "app", gone),)), SECOND)
    before = _held(engine)

    again = _begin()
    reports = list(running.values())
    dice.shuffle(reports)
    effects = again.apply(UpdateAllocations("rm", tuple(reports)), SECOND)
    assert not [effect for effect in effects if isinstance(effect, AllocationRejected)]
    assert _held(again) == before
    # Reported once more, nothing changes either.
    assert not [
        e for e in again.apply(UpdateAllocations("rm", tuple(reports)), SECOND) if "Rejected" in type(e).__name__
    ]
    assert _held(again) == before
