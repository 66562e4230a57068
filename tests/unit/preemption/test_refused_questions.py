"""A refused question is asked again in time (preemption.md B.1)."""

from __future__ import annotations

import pytest

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.guarantee.attempts.changes import Changes
from kornel.core.preemption.guarantee.attempts.refusals import Refusals
from kornel.core.preemption.plan import Refusal
from tests.owed_cluster import OwedCluster

SECOND_NS = 10**9
CORE = Resources({"vcore": 1_000})


@pytest.fixture
def ask() -> Allocation:
    """An ask that waits in a leaf with a guarantee, on a cluster without room."""
    cluster = OwedCluster([CORE], 1, Resources({"vcore": 4_000}), 1)
    cluster.run([(0, CORE, 0)])
    cluster.ask("a", [CORE], 1, 1)
    return next(ask for application in cluster.state.applications.values() for ask in application.asks.values())


@pytest.mark.parametrize(
    ("outcome", "pauses_s"),
    [(Outcome.NO_NODE, [1, 2, 4, 8, 15, 15]), (Outcome.NOT_UNDER_GUARANTEE, [1, 1, 1, 1, 1, 1])],
)
def test_only_searches_make_the_pause_longer(ask: Allocation, outcome: Outcome, pauses_s: list[int]) -> None:
    """What law 4 refuses costs no search."""
    refusals, now_ns, found = Refusals(), 0, []
    for version in range(len(pauses_s)):
        refusals.note_refusal(ask, Refusal(outcome), version, now_ns)
        known = refusals.question_of(ask)
        assert known is not None
        found.append(known.pause_ns // SECOND_NS)
        now_ns = known.not_before_ns
    assert found == pauses_s


@pytest.mark.parametrize(("more", "doubted"), [(-500, True), (0, False), (500, False)])
def test_a_queue_with_all_of_its_guarantee_is_owed_something_only_once_it_holds_less(
    ask: Allocation, more: int, doubted: bool
) -> None:
    """An answer of law 4 holds while usage grows."""
    refusals, changes, leaf = Refusals(), Changes(), ask.queue
    refusals.note_refusal(ask, Refusal(Outcome.NOT_UNDER_GUARANTEE), 1, 0)
    (t,) = leaf.guaranteed
    leaf.used[t] += more
    changes.moved = {leaf}
    refusals.sort_out(changes, 2, SECOND_NS)
    assert refusals.doubted is doubted
