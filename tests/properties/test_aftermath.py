"""After every decision of long histories: the state changed by the plan and by nothing else, and no law is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from kornel.core.laws.verdict import Law
from kornel.core.model.allocations import Allocation
from kornel.core.preemption import eviction
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.preemption.quota import drive as quota_preemption
from kornel.core.preemption.quota.plan import QuotaPlan
from kornel.core.preemption.quota.run import QuotaRun
from kornel.core.preemption.registry import kind_called
from kornel.core.state.asks import moves
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from tests.oracles.aftermath import check_applied, remember_state
from tests.properties.shim import Shim, random_history
from tests.scenarios.stage import Stage


class Judge:
    """Looks over the shoulder of whoever applies a plan; ``found`` counts laws broken, ``judged`` plans by kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judged: Counter[str] = Counter()
        self.found: Counter[Law] = Counter()
        trigger, evict = eviction.apply_plan, quota_preemption._evict_batch

        def triggered(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
            self._judge(state, plan, plan.kind, lambda: trigger(state, plan, now_ns))

        def evicted(state: PartitionState, run: QuotaRun, part: QuotaPlan, now_ns: int) -> str:
            said: list[str] = []
            self._judge(state, part, "quota", lambda: said.append(evict(state, run, part, now_ns)))
            return said[0]

        monkeypatch.setattr(eviction, "apply_plan", triggered)
        monkeypatch.setattr(quota_preemption, "_evict_batch", evicted)

    def _judge(
        self, state: PartitionState, plan: PreemptionPlan | QuotaPlan, kind: str, apply: Callable[[], object]
    ) -> None:
        before = remember_state(state)
        apply()
        self.judged[kind] += bool(plan.victims)
        record = kind_called(kind)
        assert record is not None
        self.found.update(violation.law for violation in check_applied(before, plan, state, record.laws))


def test_long_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch)
    for seed in range(30):
        shim = Shim(seed, gangs=seed % 2 == 1)
        for operation in random_history(seed, 250):
            shim.perform(operation)
            shim.settle()
    assert not judge.found
    assert all(judge.judged[kind] > 10 for kind in ("guarantee", "required-node", "quota")), judge.judged


def nobody_is_marked(_state: PartitionState, _leaving: Mapping[Allocation, Allocation | None]) -> None:
    """In place of :func:`moves.mark_victims`."""


def one_more_is_marked(state: PartitionState, leaving: Mapping[Allocation, Allocation | None]) -> None:
    for victim, preemptor in leaving.items():
        MARK(state, dict.fromkeys(victim.application.allocations.values(), preemptor))


def nothing_is_claimed(_state: PartitionState, ask: Allocation) -> None:
    ask.triggered = True


MARK = moves.mark_victims


@pytest.mark.parametrize(
    ("name", "bug", "laws"),
    [
        ("mark_victims", nobody_is_marked, {Law.APPLIED, Law.SUFFICIENT}),
        ("mark_victims", one_more_is_marked, {Law.APPLIED, Law.GUARANTEE_KEPT}),
        ("book_claim", nothing_is_claimed, {Law.APPLIED}),
    ],
)
def test_a_plan_applied_wrongly_is_found_out(
    name: str, bug: object, laws: set[Law], monkeypatch: pytest.MonkeyPatch
) -> None:
    """v may lose one of its two; a is owed 5."""
    judge = Judge(monkeypatch)
    monkeypatch.setattr(moves if hasattr(moves, name) else ledger, name, bug)
    stage = Stage()
    stage.play(["queue root.v guaranteed={f=5}", "queue root.a guaranteed={f=5}", "node n1 f=10"])
    stage.play([f"run v{number} queue=root.v node=n1 f=5" for number in (1, 2)])
    stage.play(["ask k queue=root.a f=5 other=yes"])
    stage.engine.cycle(31 * 10**9, 1)
    assert judge.judged["guarantee"] == 1
    assert set(judge.found) == laws
