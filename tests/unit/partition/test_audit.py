"""The audit sees what it is there to see: one wrong amount of each kind is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.domain.application_states import AppState
from core.model.allocations import identity
from core.partition import audit
from core.partition.state import PartitionState
from tests.scenarios.language import Stage

Damage = Callable[[PartitionState], object]


def partition() -> PartitionState:
    stage = Stage()
    stage.play(["node n1", "node n2", "foreign f node=n1 vcore=1", "app app1", "ask k", "cycle", "ask big vcore=99000"])
    state = stage.engine.partition("[rm-1]default")
    assert state is not None
    return state


def _bump(vector: list[int]) -> None:
    vector[0] += 1


def _prioritise(state: PartitionState) -> None:
    state.queues["root.a"].priority = 7


def _release_and_preempt(state: PartitionState) -> None:
    state.requests["k"].released = state.requests["k"].preempted = True


def _miscount(state: PartitionState) -> None:
    state.allocation_count = 5


@pytest.mark.parametrize(
    ("rule", "damage"),
    [
        ("I4", lambda state: _bump(state.nodes["n1"].allocated)),
        ("I4", lambda state: _bump(state.nodes["n1"].occupied)),
        ("I4", lambda state: _bump(state.nodes["n2"].free)),
        ("I5", lambda state: state.root.max.clear()),
        ("I7", lambda state: state.node_order.discard(state.nodes["n2"])),
        ("I9", lambda state: _bump(state.applications["app1"].pending)),
        ("I1", lambda state: _bump(state.applications["app1"].real)),
        ("I1", lambda state: _bump(state.applications["app1"].placeholder)),
        ("I1", lambda state: _bump(state.queues["root.a"].used)),
        ("I1", lambda state: _bump(state.root.pending)),
        ("A.1-1", lambda state: _bump(state.root.preempting)),
        ("A.1-1", lambda state: _bump(state.root.claimed)),
        ("I9", _prioritise),
        ("I8", lambda state: state.requests.pop("k")),
        ("I8", lambda state: state.nodes.pop("n1" if state.requests["k"].node is state.nodes["n1"] else "n2")),
        ("I11", _release_and_preempt),
        ("I1", _miscount),
        ("I9", lambda state: state.applications["app1"].groups.clear()),
    ],
)
def test_damage_is_found(rule: str, damage: Damage) -> None:
    """Each invariant notices when its amount is wrong."""
    state = partition()
    assert audit.check(state) == []
    damage(state)
    assert rule in {broken.rule for broken in audit.check(state)}


def test_the_fixture_is_what_it_seems() -> None:
    """One allocation runs, one ask waits."""
    state = partition()
    assert state.applications["app1"].state is AppState.RUNNING
    assert [request.pending for request in state.requests.values()] == [False, True]


def test_a_shared_key_that_lost_track_is_found() -> None:
    """I8: who shares a key with whom follows from the records."""
    stage = Stage()
    stage.play(["app app1", "ask k legacy maxallocations=2"])
    state = stage.engine.partition("[rm-1]default")
    assert state is not None
    assert audit.check(state) == []
    del state.instances["k"][1]
    assert [broken.rule for broken in audit.check(state)] == ["I8"]


def test_no_key_can_pass_for_one_of_several() -> None:
    """The names under which the core keeps instances of a key are refused as keys."""
    stage = Stage()
    assert stage.play(["app app1", f"ask {identity('k', 1)}"])[1].endswith(" invalid-key")
