"""A shim that starts again and reports what runs, with the tags that the core gave it, finds the same books."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, read_wants, want_tags
from kornel.core.domain.effects import Allocated, AllocationRejected
from kornel.core.state.books import audit
from tests.driven_core import DrivenCore
from tests.properties.machine.device_rules import DEVICES
from tests.request_texts import write_devices

SECOND = 10**9
CONFIG = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
NODES = ("n0", "n1", "n2")

_WANTS: tuple[dict[str, Any], ...] = (
    {"count": 1}, {"count": 2, "linked": True}, {"count": 3}, {"fraction": "0.5"}, {"fraction": "0.3"},
    {"memory": "8Gi"}, {"memory": "20Gi"}, {"count": 1, "types": ("B",)},
)  # fmt: skip


def _begin() -> DrivenCore:
    core = DrivenCore(CONFIG, now_ns=SECOND)
    for name in NODES:
        core.node(name, {"vcore": 100}, attributes=((DEVICES_ATTRIBUTE, write_devices(DEVICES)),))
    core.application("app", "root.a")
    return core


def _held(core: DrivenCore) -> dict[tuple[str, str], dict[str, int]]:
    """What is held of each device, by whom."""
    assert audit.check(core.state) == []
    return {
        (node.node_id, device.spec.device_id): {holder.key: share for holder, share in device.holders.items()}
        for node in core.state.nodes.values()
        for device in node.devices or ()
    }


@given(st.lists(st.sampled_from(_WANTS), max_size=14), st.sets(st.integers(0, 13)), st.randoms(use_true_random=False))
def test_a_restart_finds_the_same_devices(wants: list[dict[str, Any]], ended: set[int], dice: Any) -> None:
    core = _begin()
    running: dict[str, AllocationSpec] = {}
    for number, want in enumerate(wants):
        tags = want_tags(**want)
        core.submit("app", [f"k{number}"], {"vcore": 1}, tags=tags, devices=read_wants(tags))
        for effect in core.cycle():
            if isinstance(effect, Allocated):
                told = effect.spec._replace(node_id=effect.node_id, tags=effect.tags, devices=read_wants(effect.tags))
                running[effect.spec.key] = told
        gone = f"k{number - 1}"
        if number in ended and gone in running:
            del running[gone]
            core.release("app", gone)
    before = _held(core)

    again = _begin()
    reports = list(running.values())
    dice.shuffle(reports)
    for _ in range(2):  # Reported once more, nothing changes either.
        assert not [effect for effect in again.send(*reports) if isinstance(effect, AllocationRejected)]
        assert _held(again) == before
