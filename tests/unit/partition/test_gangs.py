"""Which replacement is chosen where predicates keep it off its placeholder's node, and how long placeholders may wait
(scheduling.md 10.3, 10.4; protocol.md 6.3). What becomes of replacements on another node is in ``predicates.txt``.
"""

from __future__ import annotations

import pytest

from kornel.core.domain.commands import ApplicationSpec
from kornel.core.engine.gangs import replacement
from kornel.core.engine.gangs.placeholders import timeout_ns
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from tests.scenarios.stage import Stage

SECOND = 10**9


def refuse(_state: PartitionState, _ask: Allocation, _node: Node) -> bool:
    return False


def serve(stage: Stage, budget: int = 100) -> int:
    """One replacement step in which no ask may run on the node of its placeholder."""
    state = stage.state
    spent = replacement.serve(state, stage.now_ns, budget, stays=refuse)
    assert audit.check(state) == []
    return spent


@pytest.fixture
def gang() -> Stage:
    """Placeholder p on n1, a smaller real ask r of its group, and n2 empty."""
    stage = Stage()
    stage.play(["node n1", "app app1", "ask p placeholder group=g vcore=2000", "cycle", "node n2"])
    stage.play(["ask r group=g"])
    return stage


def test_what_is_on_its_way_is_no_victim() -> None:
    """Neither a placeholder told to leave nor the real one that replaces it can be preempted (I11, A.1 no. 3)."""
    stage = Stage()
    stage.play(
        [
            "queue root.a",
            "queue root.b guaranteed={vcore=20000} preemption.delay=1s",
            "node n1",
            "app app1",
            "app app2 queue=root.b",
            "ask p placeholder group=g vcore=10000",
            "cycle",
            "node n2",
            "ask r group=g vcore=10000",
        ]
    )
    serve(stage)
    stage.play(["ask k app=app2 vcore=10000 other=yes"])
    assert stage.play(["cycle at=2s"]) == ["refuse k NO_CANDIDATES"]


def test_a_choice_changes_nothing(gang: Stage) -> None:
    """Choosing and committing are two steps, so that somebody may be asked in between."""
    state = gang.state
    application = state.applications["app1"]
    choice = replacement.choose_pair(state, application)
    assert choice.pair is not None
    assert (choice.pair.ask.key, choice.pair.placeholder.key, choice.pair.node.node_id) == ("r", "p", "n1")
    assert replacement.choose_pair(state, application) == choice
    assert state.effects == []
    assert audit.check(state) == []


def test_another_placeholder_is_tried_before_another_node(gang: Stage) -> None:
    """The first placeholder whose own node is allowed wins over any other node."""
    gang.play(["node n3", "run p2 placeholder group=g vcore=2000 node=n2"])
    state = gang.state

    def only_n2(_state: PartitionState, _ask: Allocation, node: Node) -> bool:
        return node.node_id == "n2"

    choice = replacement.choose_pair(state, state.applications["app1"], stays=only_n2)
    assert choice.pair is not None
    assert (choice.pair.placeholder.key, choice.pair.node.node_id) == ("p2", "n2")


def test_the_refused_node_is_not_the_other_node(gang: Stage) -> None:
    """The placeholder's own node was refused, so it is not found again among the others."""
    gang.play(["resize n2 vcore=100"])
    assert serve(gang) == 0
    assert gang.state.requests["r"].replaces is None


def test_without_room_elsewhere_the_next_node_is_waited_for(gang: Stage) -> None:
    """An application that found no other node is looked at again when a node gains room, and not before."""
    gang.play(["drain n2"])
    serve(gang)
    state = gang.state
    application = state.applications["app1"]
    assert application not in state.gangs.to_match
    gang.play(["foreign f node=n1 vcore=1"])
    assert application not in state.gangs.to_match
    gang.play(["node n3"])
    assert application in state.gangs.to_match
    serve(gang)
    assert state.requests["r"].node is state.nodes["n3"]


def test_an_ask_without_room_does_not_hold_up_the_next() -> None:
    """Asks are served in order, but one that finds no node is passed over."""
    stage = Stage()
    stage.play(
        ["node n1", "app app1", "ask p1 placeholder group=g vcore=5000", "ask p2 placeholder group=g vcore=5000"]
    )
    stage.play(["cycle", "node n2 vcore=2000", "ask big group=g vcore=4000 p=1", "ask small group=g vcore=1500"])
    serve(stage)
    state = stage.state
    assert state.requests["big"].replaces is None
    assert state.requests["small"].node is state.nodes["n2"]


def test_the_budget_ends_a_step() -> None:
    """Each pair counts one, what is left is served by the next slice."""
    stage = Stage()
    stage.play(["node n1", "app app1", *(f"ask p{n} placeholder group=g" for n in range(3)), "cycle"])
    stage.play([f"ask r{n} group=g" for n in range(3)])
    state = stage.state
    assert replacement.serve(state, stage.now_ns, 2) == 2
    assert [state.requests[f"r{n}"].replaces is not None for n in range(3)] == [True, True, False]
    assert replacement.serve(state, stage.now_ns, 2) == 1
    assert not state.gangs.to_match


@pytest.mark.parametrize(
    ("timeout_ms", "created_s", "expected_ns"),
    [
        (900_000, 400, 300 * SECOND),
        (900_000, 0, 10**6),
        (900_000, 100, 10**6),
        (900_000, -2_600, 10**6),
        (0, None, 900 * SECOND),
        (-5, None, 900 * SECOND),
        (2**63 // 10**6, None, 2**63 // 10**6 * 10**6),
        (2**63 // 10**6 + 1, None, 900 * SECOND),
        (1, None, 10**6),
    ],
)
def test_example_38_how_long_placeholders_may_wait(timeout_ms: int, created_s: int | None, expected_ns: int) -> None:
    """The field in milliseconds, shortened by the creation time, 15 minutes where it says nothing usable (6.3)."""
    spec = ApplicationSpec("app", "root.a", "p", placeholder_timeout_ms=timeout_ms, created_s=created_s)
    assert timeout_ns(spec, 1000 * SECOND) == expected_ns
