"""The ledger notes what was gained and wakes nobody; one place wakes whom the notes can help, in their order."""

from __future__ import annotations

import pytest

from kornel.core.domain.ask_places import WaitsFor
from kornel.core.model.allocations import AskGroup
from kornel.core.state.asks import moves
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.turns import first_group
from kornel.core.state.waiting.waking import wake_waiting
from tests.scenarios.stage import Stage


def partition(*lines: str) -> PartitionState:
    stage = Stage()
    stage.play([*lines])
    return stage.state


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
    assert first_group(state) is None
    wake_waiting(state)
    assert state.gained == []
    assert first_group(state) is group
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
    assert first_group(state) is group_of(state, "more")
    assert group_of(state, "other").waits_for is None


@pytest.mark.parametrize("repeated", ["vcore=2", "vcore=2 occupied={vcore=1}", "occupied={vcore=1}"])
def test_a_node_that_repeats_itself_wakes_nobody(repeated: str) -> None:
    """Shims report their nodes over and over; what was searched for in vain is not searched for again."""
    stage = Stage()
    stage.play(["queue root.a", "node n1 vcore=2 occupied={vcore=1}", "resize n1 vcore=2 occupied={vcore=1}"])
    stage.play(["app app1", "ask big vcore=2", "cycle"])
    state = stage.state
    group, node = group_of(state, "big"), state.nodes["n1"]
    assert group.waits_for is WaitsFor.ROOM
    before = (state.changes, node.version, list(node.free))
    stage.play([f"resize n1 {repeated}"])
    assert (state.changes, node.version, list(node.free)) == before
    assert group.waits_for is WaitsFor.ROOM
    stage.play(["resize n1 vcore=9"])
    assert state.changes > before[0]
    assert first_group(state) is group


def waiters(state: PartitionState) -> dict[str, WaitsFor | None]:
    """Returns what the group of each pending ask waits for, by key."""
    groups = {key: request.group for key, request in state.requests.items() if request.pending}
    return {key: None if group is None else group.waits_for for key, group in groups.items()}


def test_one_end_offers_only_the_first_of_those_who_wait() -> None:
    """The others are not tried, and wait on in their room, unless the first leaves enough."""
    lines = ["queue root.a", "node n1 vcore=4", "app old", "ask k app=old vcore=2", "ask l app=old vcore=2", "cycle"]
    for number in range(5):
        lines += [f"app app{number}", f"ask w{number} app=app{number} vcore=2"]
    stage = Stage()
    stage.play([*lines, "cycle"])
    state = stage.state
    before = waiters(state)
    tries = {key: ask.missed for key, ask in state.requests.items()}
    stage.play(["release k app=old STOPPED_BY_RM", "cycle"])
    assert waiters(state) == {key: waits for key, waits in before.items() if key != "w0"}
    assert state.requests["w0"].node is state.nodes["n1"]
    assert {key: ask.missed - tries[key] for key, ask in state.requests.items() if ask.pending} == dict.fromkeys(
        ["w1", "w2", "w3", "w4"], 0
    )


def test_a_holder_that_is_placed_elsewhere_leaves_the_room_of_those_who_wait() -> None:
    """Another one of its size, which saves room next, waits on there, and nothing of the first one is left."""
    stage = Stage()
    stage.play(["queue root.a", "node n1 vcore=2", "node n2 vcore=2", "app app1", "ask k vcore=2", "ask l vcore=2"])
    stage.play(["cycle", "ask first vcore=2", "app app2", "ask second app=app2 vcore=2", "cycles until=4s every=1s"])
    state = stage.state
    first, second = state.requests["first"], state.requests["second"]
    assert first.reservation is not None
    assert first.reservation.node is state.nodes["n1"]
    assert set(state.no_room[first.shape]) == {first.reservation, second.group}
    stage.play(["release l STOPPED_BY_RM", "cycle"])
    assert first.node is state.nodes["n2"]
    assert list(state.no_room[first.shape]) == [second.reservation]
