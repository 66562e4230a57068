"""The ledger notes what was gained and wakes nobody; one place wakes whom the notes can help, in their order."""

from __future__ import annotations

import pytest

from kornel.core.domain.ask_places import WaitsFor
from kornel.core.model.allocations import AskGroup
from kornel.core.partition.asks import moves
from kornel.core.partition.books import ledger
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.waking import wake_waiting
from tests.scenarios.stage import Stage


def partition(*lines: str) -> PartitionState:
    stage = Stage()
    stage.play([*lines])
    state = stage.engine.partition("[rm-1]default")
    assert state is not None
    return state


def group_of(state: PartitionState, key: str) -> AskGroup:
    group = state.requests[key].group
    assert group is not None
    return group


def test_a_refund_is_noted_and_wakes_whoever_waits_for_room() -> None:
    """Until somebody looks at the notes, a group without room stays parked."""
    state = partition(
        "queue root.a", "node n1 vcore=2", "app app1", "ask k vcore=2", "cycle", "ask big vcore=2", "cycle"
    )
    group = group_of(state, "big")
    assert group.waits_for is WaitsFor.ROOM
    ledger.unbook_allocation(state, state.requests["k"])
    assert state.gained == [state.nodes["n1"]]
    assert group.waits_for is WaitsFor.ROOM
    wake_waiting(state)
    assert state.gained == []
    assert group.waits_for is None
    assert group in group.application.order


def test_queues_are_noted_only_where_somebody_waits_for_them() -> None:
    """A refund goes up the whole path; of the queues on it, one keeps asks waiting."""
    state = partition(
        "queue root.a max={vcore=2000}", "node n1", "app app1", "ask k vcore=2000", "cycle", "ask more",
        "cycle",
    )  # fmt: skip
    assert group_of(state, "more").waits_for is WaitsFor.QUOTA
    ledger.unbook_allocation(state, state.requests["k"])
    assert state.gained == [state.queues["root.a"], state.nodes["n1"]]


def test_a_user_gains_before_its_queues() -> None:
    """Who waits for the limit of a user, and who for a slot to start, are woken in the order in which they gained."""
    state = partition(
        "limit root users=* max={vcore=2000} apps=1", "queue root.a", "node n1", "app app1", "ask k vcore=2000",
        "cycle", "ask more", "app app2", "ask other app=app2", "cycle",
    )  # fmt: skip
    assert group_of(state, "more").waits_for is WaitsFor.USER_LIMIT
    assert group_of(state, "other").waits_for is WaitsFor.APPLICATION_SLOT
    moves.free_allocation(state, state.requests["k"])
    assert state.gained == []
    assert group_of(state, "more").waits_for is None
    assert group_of(state, "other").waits_for is None


@pytest.mark.parametrize("repeated", ["vcore=2", "vcore=2 occupied={vcore=1}", "occupied={vcore=1}"])
def test_a_node_that_repeats_itself_wakes_nobody(repeated: str) -> None:
    """Shims report their nodes over and over; what was searched for in vain is not searched for again."""
    stage = Stage()
    stage.play(["queue root.a", "node n1 vcore=2 occupied={vcore=1}", "resize n1 vcore=2 occupied={vcore=1}"])
    stage.play(["app app1", "ask big vcore=2", "cycle"])
    state = stage.engine.partition("[rm-1]default")
    assert state is not None
    group, node = group_of(state, "big"), state.nodes["n1"]
    assert group.waits_for is WaitsFor.ROOM
    before = (state.changes, node.version, list(node.free))
    stage.play([f"resize n1 {repeated}"])
    assert (state.changes, node.version, list(node.free)) == before
    assert group.waits_for is WaitsFor.ROOM
    stage.play(["resize n1 vcore=9"])
    assert state.changes > before[0]
    assert group.waits_for is None
