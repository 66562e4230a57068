"""What is kept of earlier answers is what would be made afresh, whatever has happened since."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.partition.state import PartitionState
from core.partition.views.door import PartitionViews
from core.rest.documents import applications, nodes, users
from tests.examples import scale_examples
from tests.properties.machine import driver
from tests.properties.machine.journal import Call
from tests.properties.machine.world import World
from tests.properties.shim import WIDTH, Operation, Shim, random_history

HISTORIES = st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=15, max_size=100)
VARIANTS = st.integers(0, 23)


def _told(views: PartitionViews) -> dict[str, list[bytes]]:
    """The long lists as REST tells them."""
    return {
        "applications": [
            b"".join(applications.told(parts)) for parts in views.application_parts("", applications.head)
        ],
        "nodes": [orjson.dumps(nodes.node(view)) for view in views.nodes()],
    }


def check_kept(state: PartitionState, now_ns: int) -> None:
    """Lists made of what is kept equal those made of nothing; what is kept stays, to be found out of date later."""
    views = PartitionViews(state, "rm", now_ns)
    kept = _told(views)
    allocations = [(request, request.view) for request in state.requests.values()]
    heads = [(application, application.shown) for application in state.applications.values()]
    for request, _ in allocations:
        request.view = None
    for application, _ in heads:
        application.shown = None
    assert kept == _told(views)
    single = [orjson.loads(orjson.dumps(applications.application(view))) for view in views.applications()]
    assert [orjson.loads(text) for text in kept["applications"]] == single, "one by one they are the same"
    for request, view in allocations:
        request.view = view
    for application, shown in heads:
        application.shown = shown
    _check_use(state, views)


def _check_use(state: PartitionState, views: PartitionViews) -> None:
    """Use of users, summed up in steps, is that of their applications."""
    for view in views.users():
        if view is None:
            continue
        owned = [a for a in state.applications.values() if a.user == view.user and a.allocations]
        assert view.usage.applications == tuple(sorted(a.application_id for a in owned))
        held = [sum(x) for x in zip(*[a.confirmed() for a in owned], *[a.placeholder for a in owned], strict=True)]
        assert view.usage.used == state.types.resources(held)
        assert list(views.user(view.user))[-1] == view
        assert users.user(view)["userName"] == view.user


def _play(variant: int, history: list[Operation], *, gangs: bool) -> None:
    shim = Shim(variant, gangs=gangs)
    for operation in history:
        shim.perform(operation)
        check_kept(shim.state, shim.now_ns)
        shim.settle()
        check_kept(shim.state, shim.now_ns)


@settings(max_examples=scale_examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(VARIANTS, HISTORIES, st.booleans())
def test_any_history(variant: int, history: list[Operation], gangs: bool) -> None:
    """After every operation and every cycle."""
    _play(variant, history, gangs=gangs)


@pytest.mark.parametrize("seed", range(4))
def test_long_histories(seed: int) -> None:
    """Histories in which everything has happened to everything, gangs included."""
    _play(seed, list(random_history(seed, 120)), gangs=seed % 2 == 1)


class _Watched(World):
    """Looks at what is kept after every call."""

    def play(self, call: Call) -> bool:
        more = super().play(call)
        for name in self.engine.partition_names():
            state = self.engine.partition(name)
            assert state is not None
            check_kept(state, self.now_ns)
        return more


def test_whatever_a_shim_can_do() -> None:
    """Callbacks, preemption, reconfiguration, recovery and faults as well."""
    for seed in range(3):
        assert driver.episode(f"shown/{seed}", 300, _Watched()).calls
