"""The preemption cycle: policies in the order of the configuration, one registry, and other orders of victims (F)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kornel.core.config.loader import load
from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.preemption_kinds import NAMES
from kornel.core.domain.reasons import Outcome
from kornel.core.engine import lifecycle
from kornel.core.engine.scheduling import rounds
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.policies import ask_order
from kornel.core.policies.queue_order import QueueKey, queue_turn_key
from kornel.core.preemption.guarantee.kind import GUARANTEE
from kornel.core.preemption.guarantee.rounds import PartitionRound
from kornel.core.preemption.guarantee.rules import cost as registry
from kornel.core.preemption.guarantee.rules.cost import by_comparison, by_cost
from kornel.core.preemption.kind import Kind
from kornel.core.preemption.registry import KINDS
from kornel.core.state.partition_state import PartitionState
from tests.scenarios.stage import Stage

J_B27 = [
    "queue root.v",
    "queue root.a guaranteed={f=6}",
    "node n1 f=12",
    "run v1 queue=root.v node=n1 f=6 created=2s",
    "run v2 queue=root.v node=n1 f=6 created=3s",
    "ask k queue=root.a f=6 other=yes",
]


def played(*configuration: str) -> Stage:
    stage = Stage()
    stage.play([*configuration, *J_B27])
    return stage


def older_first(one: Allocation, other: Allocation, _: Allocation) -> int:
    return one.created_ns - other.created_ns


def test_j_f5_policies_run_in_the_order_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind has its turn where the list says; one that is not listed has none."""
    ran: list[str] = []

    def runs(kind: Kind) -> Kind:
        return replace(kind, driver=replace(kind.driver, in_round=lambda _, __: ran.append(kind.name)))

    kinds = {kind.name: runs(kind) for kind in KINDS}
    monkeypatch.setattr(rounds, "kind_called", kinds.get)
    stage = played('partition policies="[monitor, required-node, quota]"')
    stage.engine.preempt(30 * 10**9)
    assert ran == ["monitor", "required-node", "quota"]


def test_every_registered_policy_may_be_listed() -> None:
    """The configuration takes its names from the registry; others are errors."""
    names = ", ".join(reversed(NAMES))
    text = "partitions: [{queues: [], preemption: {policies: [%s]}}]"
    assert load(text % names).partitions[0].preemption.policies == tuple(reversed(NAMES))
    with pytest.raises(ConfigError, match="storm"):
        load(text % "storm")


def test_a_policy_left_out_does_nothing() -> None:
    """Without `guarantee` neither the rounds nor the allocation path try anybody."""
    stage = played('partition policies="[quota]"')
    assert stage.engine.preempt(30 * 10**9) == []
    assert stage.play(["cycle at=30s"]) == ["no answer"]


def test_j_f3_a_policy_meets_each_ask_once_a_round() -> None:
    """The mask: what was tried is no candidate again, so that a round ends (F6)."""
    seen: list[list[str]] = []

    def look(state: PartitionState, now_ns: int) -> None:
        round_ = PartitionRound(state, now_ns)
        while batch := round_.next_batch():
            seen.append([ask.key for ask in batch])
            for ask in batch:
                round_.try_allocate(ask)

    stage = played("partition batch=1")
    stage.play(["ask hopeless queue=root.a f=7 other=yes"])
    with pytest.MonkeyPatch.context() as patch:
        looks = replace(GUARANTEE, driver=replace(GUARANTEE.driver, in_round=look))
        patch.setattr(rounds, "kind_called", {"guarantee": looks}.get)
        stage.engine.preempt(30 * 10**9)
    assert sorted(seen) == [["hopeless"], ["k"]]
    assert stage.state.requests["k"].triggered


def test_leaves_whose_asks_sleep_are_not_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them each second would be half of what an idle core does."""
    ordered: list[str] = []

    def noted(queue: Queue) -> QueueKey:
        ordered.append(queue.path)
        return queue_turn_key(queue)

    monkeypatch.setattr(ask_order, "queue_turn_key", noted)
    stage = Stage()
    stage.play([line for line in J_B27 if not line.startswith("ask")])
    stage.play(["ask hopeless queue=root.a f=7 other=yes"])
    stage.engine.preempt(30 * 10**9)
    assert ordered == ["root.a"]
    assert stage.state.queues["root.a"].waiting
    stage.engine.preempt(31 * 10**9)
    assert ordered == ["root.a"]


def test_applications_without_due_asks_are_not_looked_at() -> None:
    """There may be a hundred thousand of them, and a round each second."""
    stage = Stage()
    stage.play([line for line in J_B27 if not line.startswith("ask")])
    stage.play(["ask hopeless queue=root.a f=7 other=yes", "ask small queue=root.a f=7"])
    state = stage.state
    root, hopeless = state.root, state.requests["hopeless"]
    assert hopeless.group is not None
    assert not root.with_due
    hopeless.group.attempt_is_due(hopeless)
    assert list(root.with_due) == [hopeless.application]
    stage.engine.preempt(30 * 10**9)
    stage.engine.preempt(31 * 10**9)
    assert not hopeless.group.due
    assert not root.with_due
    hopeless.group.attempt_is_due(hopeless)
    assert list(root.with_due) == [hopeless.application]
    lifecycle.leave_queue(state, hopeless.application, 31 * 10**9)
    assert not root.with_due


def test_f8_an_ask_that_a_round_could_not_help_missed_an_opportunity() -> None:
    """Counted up by one each time it was a candidate in vain, and reset when it is placed."""
    stage = played()
    stage.play(["ask hopeless queue=root.a f=7 other=yes"])
    before = stage.state.requests["hopeless"].missed
    stage.engine.preempt(30 * 10**9)
    assert stage.state.requests["hopeless"].missed == before + 1


@pytest.mark.parametrize(
    ("pricing", "victim"),
    [
        (None, "v2"),
        (by_comparison(older_first), "v1"),
        (by_comparison(lambda one, other, _: 0), "v2"),
        (by_cost(lambda victim, ask, now_ns, saved: now_ns - victim.created_ns), "v2"),
        (by_cost(lambda victim, ask, now_ns, saved: victim.created_ns), "v1"),
    ],
)
def test_j_f5_another_order_takes_another_victim(pricing: object, victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """J-B27 takes the younger; with the comparator inverted the older goes (F11). Equals go as ever."""
    monkeypatch.setitem(registry.COSTS, "lost-work", pricing)  # type: ignore[arg-type]
    stage = played("partition cost=lost-work")
    assert f"release {victim} PREEMPTED_BY_SCHEDULER for=k" in stage.play(["cycle at=30s"])


def test_no_price_overcomes_an_opt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 1 stands above costs: the expensive willing one goes before the cheap unwilling one."""
    monkeypatch.setitem(
        registry.COSTS, "default", by_cost(lambda victim, ask, now_ns, saved: int(victim.spec.allow_preempt_self))
    )
    stage = Stage()
    stage.play([line.replace("run v1", "run v1 self=no") for line in J_B27])
    assert "release v2 PREEMPTED_BY_SCHEDULER for=k" in stage.play(["cycle at=30s"])


def test_lost_work_takes_who_has_done_least() -> None:
    """`cost: lost-work`: size times age; what counts is how long it runs, not when it was asked for."""
    stage = Stage()
    stage.play(["partition cost=lost-work", "queue root.v", "queue root.a guaranteed={f=6}", "node n1 f=12"])
    stage.play(["run v2 queue=root.v node=n1 f=6 created=3s"])
    stage.play(["run v1 queue=root.v node=n1 f=6 created=2s at=20s"])
    stage.play(["ask k queue=root.a f=6 other=yes created=0s"])
    assert "release v1 PREEMPTED_BY_SCHEDULER for=k" in stage.play(["cycle at=30s"])
    assert stage.state.requests["k"].outcome is Outcome.TRIGGERED


def test_the_monitor_left_out_has_no_rounds_and_stands_in_nobody_s_way() -> None:
    """`monitor.enabled` without the policy is as good as off: guarantees are served as ever."""
    stage = Stage()
    root = "{name: root, submitacl: '*', queues: [{name: v}, {name: a, resources: {guaranteed: {f: 6}}}]}"
    preemption = "{monitor: {enabled: true}, policies: [guarantee]}"
    stage.play([f"yaml {{partitions: [{{name: default, preemption: {preemption}, queues: [{root}]}}]}}", *J_B27[2:]])
    answers = stage.play(["cycles until=60s every=1s"])
    assert "@30s reserve n1 for=k" in answers
    assert not [answer for answer in answers if "NOTIFIED" in answer]
    assert stage.state.notices.rounds == 0
