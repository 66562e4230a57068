"""The audit sees what it is there to see: one wrong amount of each kind is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import identity_of
from kornel.core.model.users import Account, AccountKind
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.rooms import hold_back, park_below
from tests.scenarios.stage import Stage

Damage = Callable[[PartitionState], object]


def partition() -> PartitionState:
    stage = Stage()
    stage.play(["limit root users=* max={vcore=99000} apps=9", "queue root.a"])
    stage.play(["node n1", "node n2", "foreign f node=n1 vcore=1", "app app1", "ask k", "cycle", "ask big vcore=99000"])
    return stage.state


def _bump(vector: list[int]) -> None:
    vector[0] += 1


def _account(state: PartitionState) -> Account:
    return state.root.accounts[AccountKind.USER, "user"]


def _park_without_need(state: PartitionState) -> None:
    (group,) = state.applications["app1"].groups.values()
    park_below(group, group.shape, _account(state))
    _account(state).used[0] -= 1000


def _hold_back_without_need(state: PartitionState) -> None:
    hold_back(state.applications["app1"], state.root)


def _leave_while_held(state: PartitionState) -> None:
    _hold_back_without_need(state)
    state.applications["app1"].held_at = None


def _count_running(state: PartitionState) -> None:
    state.root.running += 1


def _count_starting(state: PartitionState) -> None:
    state.applications["app1"].allocating = True


def _prioritise(state: PartitionState) -> None:
    state.queues["root.a"].priority = 7


def gang() -> PartitionState:
    """In app1's group g, p1 is being replaced by r1 and r2 waits for another one; group h has p2, which is free."""
    stage = Stage()
    stage.play(["node n1", "app app1", "ask p1 placeholder group=g", "ask p2 placeholder group=h", "cycle"])
    stage.play(["ask r1 group=g", "cycle", "ask r2 group=g"])
    return stage.state


def _charge_twice(state: PartitionState) -> None:
    state.nodes["n1"].allocations["r1"] = state.requests["r1"]
    state.nodes["n1"].charge_pairs(state.requests["r1"].shape.pairs)


def _unlink(state: PartitionState, key: str) -> None:
    request = state.requests[key]
    request.where = None


@pytest.mark.parametrize(
    ("rule", "damage"),
    [
        ("I10", lambda state: setattr(state.applications["app1"].task_groups["g"], "timed_out", 1)),
        ("I10", lambda state: setattr(state.applications["app1"].task_groups["g"], "replaced", -1)),
        ("I10", lambda state: state.applications["app1"].task_groups["h"].free.discard(state.requests["p2"])),
        ("I10", lambda state: setattr(state.requests["p2"], "place", AskPlace.RELEASED)),
        ("10.2", lambda state: state.applications["app1"].task_groups["g"].asks.discard(state.requests["r2"])),
        ("10.2", lambda state: setattr(state.requests["r2"], "place", AskPlace.NOWHERE)),
        ("I9", lambda state: setattr(state.requests["r1"], "place", AskPlace.PLACED)),
        ("I9", lambda state: setattr(state.requests["p2"], "place", AskPlace.WAITING)),
        ("10.3", lambda state: _unlink(state, "p1")),
        ("10.3", lambda state: _unlink(state, "r1")),
        ("10.3", lambda state: setattr(state.requests["p1"], "place", AskPlace.PLACED)),
        ("I4", _charge_twice),
        ("I4", lambda state: state.nodes["n1"].allocations.pop("p2")),
        ("I1", lambda state: setattr(state.applications["app1"], "placeholder_count", 1)),
    ],
)
def test_damage_to_a_gang_is_found(rule: str, damage: Damage) -> None:
    """Counts, pools and both ends of a link are checked."""
    state = gang()
    assert audit.check(state) == []
    damage(state)
    assert rule in {broken.rule for broken in audit.check(state)}


def test_a_forgotten_gang_is_found() -> None:
    """An ask and a free placeholder of one group that nobody will look at."""
    stage = Stage()
    stage.play(["node n1", "app app1", "ask p placeholder group=g", "cycle", "ask r group=g"])
    state = stage.state
    assert audit.check(state) == []
    state.gangs.to_match.clear()
    assert [broken.rule for broken in audit.check(state)] == ["10.3"]


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
        ("I3", lambda state: _bump(_account(state).used)),
        ("I3", lambda state: _account(state).holders.clear()),
        ("I3", lambda state: _account(state).applications.clear()),
        ("I3", lambda state: state.root.accounts.clear()),
        ("I3", lambda state: setattr(state.applications["app1"], "accounts", ())),
        ("S-22", _count_running),
        ("S-10", _count_starting),
        ("W", _park_without_need),
        ("W", _hold_back_without_need),
        ("W", _leave_while_held),
        ("I9", _prioritise),
        ("I8", lambda state: state.requests.pop("k")),
        ("I8", lambda state: state.nodes.pop("n1" if state.requests["k"].node is state.nodes["n1"] else "n2")),
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
    state = stage.state
    assert audit.check(state) == []
    del state.instances["k"][1]
    assert [broken.rule for broken in audit.check(state)] == ["I8"]


def test_no_key_can_pass_for_one_of_several() -> None:
    """The names under which the core keeps instances of a key are refused as keys."""
    stage = Stage()
    assert stage.play(["app app1", f"ask {identity_of('k', 1)}"])[1].endswith(" invalid-key")
