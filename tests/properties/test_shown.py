"""What is kept of earlier answers is what would be made afresh, whatever has happened since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations import allocation_views
from kornel.core.telling.applications import application_views
from kornel.core.telling.encoding.yunikorn import applications, nodes, usage
from kornel.core.telling.nodes.node_views import NodeView
from kornel.core.telling.reader import PartitionReader, ReadableEngine, Reader
from tests.examples import mark_rest_long, scale_examples
from tests.properties.machine import driver
from tests.properties.machine.journal import Call
from tests.properties.machine.world import World
from tests.properties.shim import WIDTH, Operation, Shim, random_history

HISTORIES = st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=15, max_size=100)
VARIANTS = st.integers(0, 23)


def _encode_head(view: NodeView) -> bytes:
    return orjson.dumps(nodes.write_node_summary(view))


def _leave_out_work(nodes: list[bytes]) -> list[dict[str, Any]]:
    return [{**orjson.loads(text), "allocations": None, "foreignAllocations": None} for text in nodes]


def _told(views: PartitionReader) -> dict[str, list[bytes]]:
    """The long lists as REST tells them."""
    return {
        "applications": [
            b"".join(applications.encode_parts(parts))
            for parts in views.application_parts("", applications.encode_head)
        ],
        "ended": [
            orjson.dumps(applications.write_application(view))
            for view in (*views.finished_applications(), *views.rejected_applications())
        ],
        "nodes": [orjson.dumps(nodes.write_node(view)) for view in views.nodes()],
        "nodes in short": [head for _, head in views.node_heads(_encode_head)],
    }


class Kept:
    """A reader that has been asked before, beside one that is new each time."""

    def __init__(self, engine: ReadableEngine, now_ns: Callable[[], int]) -> None:
        self.engine, self._now_ns = engine, now_ns
        self._reader = Reader(engine, now_ns)

    def check(self) -> None:
        """Fails if lists made of what is kept differ from those made of nothing."""
        for views in self._reader.partitions():
            kept = _told(views)
            assert kept == _told(Reader(self.engine, self._now_ns)[views.name])
            short, whole = map(_leave_out_work, (kept["nodes in short"], kept["nodes"]))
            assert short == whole, "the head of a node is the node without what runs there"
            single = [orjson.loads(orjson.dumps(applications.write_application(view))) for view in views.applications()]
            assert [orjson.loads(text) for text in kept["applications"]] == single, "one by one they are the same"
            state = self.engine.partition(views.name)
            assert state is not None
            _check_use(state, views)


def _check_use(state: PartitionState, views: PartitionReader) -> None:
    """Use of users, summed up in steps, is that of their applications."""
    for view in views.users():
        if view is None:
            continue
        owned = [a for a in state.applications.values() if a.user == view.user and a.allocations]
        assert view.usage.applications == tuple(sorted(a.application_id for a in owned))
        held = [
            sum(x) for x in zip(*[a.confirmed_amounts() for a in owned], *[a.placeholder for a in owned], strict=True)
        ]
        assert view.usage.used == state.types.to_resources(held)
        assert list(views.users(view.user))[-1] == view
        assert usage.USER.write(view)["userName"] == view.user


def _play(variant: int, history: list[Operation], *, gangs: bool) -> None:
    shim = Shim(variant, gangs=gangs)
    kept = Kept(shim.engine, lambda: shim.now_ns)
    for operation in history:
        shim.perform(operation)
        kept.check()
        shim.settle()
        kept.check()


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications of some size are told in pieces, and what is kept is tidied up early."""
    monkeypatch.setattr(application_views, "_PIECE", 3)
    monkeypatch.setattr(allocation_views, "_SPARE", 0)


@settings(max_examples=scale_examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(VARIANTS, HISTORIES, st.booleans())
def test_any_history(variant: int, history: list[Operation], gangs: bool) -> None:
    """After every operation and every cycle."""
    _play(variant, history, gangs=gangs)


@pytest.mark.parametrize("seed", mark_rest_long(range(4)))
def test_long_histories(seed: int) -> None:
    """Histories in which everything has happened to everything, gangs included."""
    _play(seed, list(random_history(seed, 120)), gangs=seed % 2 == 1)


class _Watched(World):
    """Looks at what is kept after every call."""

    _kept: Kept | None = None

    def play(self, call: Call) -> bool:
        more = super().play(call)
        if self._kept is None or self._kept.engine is not self.engine:
            self._kept = Kept(self.engine, lambda: self.now_ns)
        self._kept.check()
        return more


@pytest.mark.parametrize("seed", mark_rest_long(range(3)))
def test_whatever_a_shim_can_do(seed: int) -> None:
    """Callbacks, preemption, reconfiguration, recovery and faults as well."""
    assert driver.episode(f"shown/{seed}", 300, _Watched()).calls
