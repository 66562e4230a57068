"""Six bugs that other schedulers had, put back one at a time: laws, plain rules or books must notice each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.effects import Released
from kornel.core.laws.verdict import Law
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption.guarantee.rules.allowances import LeafTerms, Terms
from kornel.core.preemption.guarantee.rules.candidates import Solution
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.guarantee.search.frontier import Pool, Solver
from kornel.core.preemption.guarantee.search.search import Search
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.preemption.walk import Candidate, Walk
from kornel.core.state.asks import moves, reservations
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records import giving_queues
from kornel.core.state.records.giving_queues import Alike
from tests import judged_plans as laws
from tests.oracles.rules.guarantee import lawful_plan
from tests.preemption_notation import Case, parse
from tests.properties.test_preemption_rules import books_of, task_of
from tests.scenarios.stage import Stage
from tests.unit.policies.preemption.world import NOW_NS, World

TWO_NODES = """
case two nodes
queues   v · a{G=9}
nodes    n1=3 n2=3
running  v: v1 3@n1 t1, v2 1@n2 t2, v3 1@n2 t3, v4 1@n2 t4
ask      a: 1
expect   n2 ← v4
"""
TOO_BIG_FIRST = """
case the youngest is too big
queues   v{G=3} · a{G=9}
nodes    n1=6
running  v: v1 1@n1 t1, v2 1@n1 t2, v3 4@n1 t3
ask      a: 1
expect   n1 ← v2
"""
AT_ITS_GUARANTEE = """
case nothing to spare
queues   v{G=4} · a{G=9}
nodes    n1=4
running  v: v1 2@n1 t1, v2 2@n1 t2
ask      a: 2
expect   none
"""


def decided(text: str) -> tuple[Case, World, PreemptionPlan | Refusal]:
    (case,) = parse(text)
    world = World.of(case)
    return case, world, guarantee.plan_preemption(world, world.ask(case.steps[0].ask), now_ns=NOW_NS)


def broken(text: str) -> set[Law]:
    """The laws that the plan for *text* breaks."""
    _, world, plan = decided(text)
    assert isinstance(plan, PreemptionPlan)
    return {violation.law for violation in laws.check(world, plan)}


@pytest.mark.parametrize("text", [TWO_NODES, TOO_BIG_FIRST, AT_ITS_GUARANTEE])
def test_without_a_bug_the_plan_is_the_expected_one(text: str) -> None:
    """What the mutations are measured against."""
    case, world, plan = decided(text)
    expected = case.steps[0].expected
    if isinstance(plan, Refusal):
        assert not expected.node
    else:
        assert (plan.node.node_id, {victim.key for victim in plan.victims}) == (expected.node, expected.victims)
        assert laws.check(world, plan) == ()


def test_victims_of_the_wrong_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 1: the victims chosen on one node are booked for another."""
    better = Search.find_best

    def mixed_up(search: Search) -> Solution | None:
        found = better(search)
        if found is None:
            return None
        other: Node = next(node for node in search._view.nodes.values() if node is not found.node)
        return found._replace(node=other)

    monkeypatch.setattr(Search, "find_best", mixed_up)
    assert Law.ON_NODE in broken(TWO_NODES)


def test_break_where_continue_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 2: the first victim too big for the guarantee hides the smaller ones behind it; the plain rules find them."""

    def first_come(solver: Solver, needs: list[int], pool: Pool) -> list[Candidate] | None:
        taken: list[Candidate] = []
        left = needs.copy()
        for candidate in (candidate for part in pool for candidate in part):
            if any(solver._room[r] < amount for r, amount in candidate[5].uses):
                break
            taken.append(candidate)
            for i, amount in candidate[5].gains:
                left[i] -= amount
            if max(left) <= 0:
                return taken
        return None

    monkeypatch.setattr(Solver, "solve", first_come)
    monkeypatch.setattr(Solver, "first_come", first_come)
    monkeypatch.setattr(Solver, "begin_again", lambda solver, needs, pool: None)
    monkeypatch.setattr(Terms, "_find_effects", unfiltered(Terms._find_effects))
    case, _, plan = decided(TOO_BIG_FIRST)
    assert isinstance(plan, Refusal)
    assert lawful_plan(books_of(case), task_of(case, case.steps[0].ask), reading="beside all") is not None


def unfiltered(original: Callable[..., object]) -> Callable[..., object]:
    """Candidates too big for a guarantee are found out in the walk only, as in the schedulers that had the bug."""

    def new_kind(terms: Terms, leaf_terms: LeafTerms, shape: object) -> object:
        room = terms.room
        terms.room = [10**9] * len(room)
        try:
            return original(terms, leaf_terms, shape)
        finally:
            terms.room = room

    return new_kind


def test_a_victim_chosen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 3: the same victim is in the list twice."""
    original = Walk.give_back
    monkeypatch.setattr(Walk, "give_back", lambda walk: original(walk) * 2)
    assert Law.ELIGIBLE in broken(TWO_NODES)


def test_a_queue_taken_below_its_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 4: nobody looks at what the victims leave their queue."""
    original = Terms.open_room
    monkeypatch.setattr(Terms, "open_room", lambda self, queue, spare: original(self, queue, 10**9))
    describe_leaf = giving_queues.describe_leaf

    def give_all(leaf: Queue) -> Alike:
        return describe_leaf(leaf)._replace(given=frozenset(range(len(leaf.used))))

    monkeypatch.setattr(giving_queues, "describe_leaf", give_all)
    assert Law.GUARANTEE_KEPT in broken(AT_ITS_GUARANTEE)


def test_ten_victims_for_a_need_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 5: whoever is a candidate goes, however little is needed."""

    def everybody(solver: Solver, needs: list[int], pool: Pool) -> list[Candidate] | None:
        return [candidate for part in pool for candidate in part] or None

    monkeypatch.setattr(Solver, "first_come", everybody)
    ten = ", ".join(f"w{number} 1@n1 t{number}" for number in range(10))
    many = f"case ten\nqueues v · a{{G=9}}\nnodes n1=10\nrunning v: {ten}\nask a: 1\nexpect n1 ← w9\n"
    monkeypatch.setattr(Search, "find_best", lambda search: search.list_solutions()[0])
    assert Law.MINIMAL in broken(many)


def told_but_forgotten(state: PartitionState, effects: list[object]) -> list[str]:
    """Victims that were told to leave and that the books do not know as such."""
    told = [effect.key for effect in effects if isinstance(effect, Released)]
    return [key for key in told if key in state.requests and not state.requests[key].preempted]


@pytest.mark.parametrize("bug", [False, True])
def test_rollback_after_victims_were_told(bug: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 6: something fails after the messages went out, and only the books are put back."""
    stage = Stage()
    stage.play(["queue root.v", "queue root.a guaranteed={f=5}", "node n1 f=5"])
    stage.play(["run v1 queue=root.v node=n1 f=5", "ask k queue=root.a f=5 other=yes"])
    state = stage.state
    if bug:

        def fails(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
            for victim in ask.victims.values():
                ledger.unbook_victim(victim)
                victim.place = AskPlace.PLACED
            ask.victims.clear()
            moves.end_claim(state, ask)

        monkeypatch.setattr(reservations, "reserve_node", fails)
    effects: list[object] = [*stage.engine.cycle(30 * 10**9, 1).effects]
    assert told_but_forgotten(state, effects) == (["v1"] if bug else [])
