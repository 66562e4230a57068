"""A refused question is asked again in time (preemption.md B.1)."""

from __future__ import annotations

import pytest

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.guarantee.attempts.questions import QuestionGate
from kornel.core.preemption.plan import Refusal
from kornel.core.state.partition_state import PartitionState
from tests.owed_cluster import OwedCluster

SECOND_NS = 10**9
CORE = Resources({"vcore": 1_000})


@pytest.fixture
def state() -> PartitionState:
    """A cluster without room, in which an ask waits in a leaf with a guarantee."""
    cluster = OwedCluster([CORE], 1, Resources({"vcore": 4_000}), 1)
    cluster.run([(0, CORE, 0)])
    cluster.ask("a", [CORE], 1, 1)
    return cluster.state


@pytest.fixture
def ask(state: PartitionState) -> Allocation:
    """The ask that waits there."""
    return next(ask for application in state.applications.values() for ask in application.asks.values())


@pytest.mark.parametrize(
    ("outcome", "pauses_s"),
    [(Outcome.NO_NODE, [1, 2, 4, 8, 15, 15]), (Outcome.NOT_UNDER_GUARANTEE, [1, 1, 1, 1, 1, 1])],
)
def test_only_searches_make_the_pause_longer(ask: Allocation, outcome: Outcome, pauses_s: list[int]) -> None:
    """What law 4 refuses costs no search."""
    gate, now_ns, found = QuestionGate(), 0, []
    for version in range(len(pauses_s)):
        gate.park_ask(ask, Refusal(outcome), version, now_ns)
        known = gate.question_of(ask)
        assert known is not None
        found.append(known.pause_ns // SECOND_NS)
        now_ns = known.not_before_ns
    assert found == pauses_s


@pytest.mark.parametrize(("more", "doubted"), [(-500, True), (0, False), (500, False)])
def test_a_queue_with_all_of_its_guarantee_is_owed_something_only_once_it_holds_less(
    state: PartitionState, ask: Allocation, more: int, doubted: bool
) -> None:
    """An answer of law 4 holds while usage grows."""
    gate, leaf = QuestionGate(), ask.queue
    gate.sort_out(state, 0)  # From now on, changes are seen.
    gate.park_ask(ask, Refusal(Outcome.NOT_UNDER_GUARANTEE), state.changes, 0)
    (t,) = leaf.guaranteed
    leaf.used[t] += more
    state.changes += 1
    gate.sort_out(state, SECOND_NS)
    known = gate.question_of(ask)
    assert known is not None
    assert known.doubtful is doubted
