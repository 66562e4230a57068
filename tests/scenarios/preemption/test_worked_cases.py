"""The worked cases of guarantee-driven preemption (preemption.md J.1), played through the whole engine.

The planner alone is tried on bare records in ``tests/unit/policies/preemption``; here the same cases come in as
commands and a ``queues.yaml``, and go through quota checks, node search, preconditions, laws and books.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kornel.core.domain.effects import PreemptionDecided, Released
from kornel.core.state.asks import moves, reservations
from kornel.core.state.books import audit, ledger
from tests.driven_core import DrivenCore
from tests.preemption_notation import Case, Expected, QueueCase, TaskCase, parse
from tests.scenarios.preemption.monitor_stage import queue_tree

CASES: Final = parse(Path(__file__).with_name("guarantee.cases").read_text(encoding="utf-8"))
NOT_THROUGH_THE_ENGINE: Final = {
    "J-B52": "needs a predicate callback",
    "J-B55": "one application in two queues: the interface has no such move",
    **dict.fromkeys(
        ("J-B54-triggered", "J-B54-required"),
        "a claim without anything that is leaving ends in the reserved step, before anybody could ask for its node",
    ),
}
SECOND_NS: Final = 10**9
NOW_NS: Final = 100_000 * SECOND_NS


def configuration(case: Case) -> str:
    """*case*'s queues as ``queues.yaml`` text."""
    root = queue_tree({queue.path: _described(queue) for queue in case.queues})
    preemption = {"guaranteemode": "strict" if case.strict else "reach"}
    return yaml.safe_dump({"partitions": [{"name": "default", "preemption": preemption, "queues": [root]}]})


def _described(queue: QueueCase) -> dict[str, Any]:
    """The settings of the entry of *queue*."""
    resources = {"guaranteed": queue.guaranteed, "max": queue.maximum}
    properties: dict[str, str] = {}
    if queue.preemption_policy is not None:
        properties["preemption.policy"] = queue.preemption_policy
    if queue.priority_fence:
        properties["priority.policy"] = "fence"
    if queue.priority_offset:
        properties["priority.offset"] = str(queue.priority_offset)
    given = {kind: dict(amounts) for kind, amounts in resources.items() if amounts}
    return {"resources": given, "properties": properties}


class Stage(DrivenCore):
    """The engine with *case*'s cluster in it."""

    def __init__(self, case: Case, configure: Callable[[Case], str] = configuration) -> None:
        super().__init__(configure(case), now_ns=NOW_NS)
        for name, capacity in case.nodes:
            self.node(name, capacity)
        for task in case.running:
            self.tell(task)
            if task.leaving:
                moves.mark_victims(self.state, {self.state.requests[task.key]: None})
        for reservation in case.reservations:
            self._hold(reservation.node, reservation.holder, NOW_NS - reservation.minutes * 60 * SECOND_NS)

    def tell(self, task: TaskCase, *, may_preempt: bool = True) -> None:
        """Report an allocation, or ask."""
        application = f"app-{task.queue}"
        if application not in self.state.applications:
            self.application(application, f"root.{task.queue}")
        effects = self.submit(
            application,
            [task.key],
            task.amounts,
            priority=task.priority,
            node_id=task.node,
            originator=task.originator,
            allow_preempt_self=not task.opted_out,
            allow_preempt_other=may_preempt,
            created_s=task.tick,
            required_node=(task.node or "n1") if task.required_node else "",
        )
        assert not [effect for effect in effects if "Rejected" in type(effect).__name__]

    def _hold(self, node: str, holder: TaskCase, since_ns: int) -> None:
        """Hold room as an earlier cycle would have: by age, unless the ask preempted or must run there."""
        self.tell(holder, may_preempt=False)
        ask = self.state.requests[holder.key]
        by_age = not (holder.triggered or holder.required_node)
        reservations.reserve_node(self.state, ask, self.state.nodes[node], since_ns, by_age=by_age)
        if holder.triggered:
            ledger.book_claim(self.state, ask)

    def decide(self, ask: TaskCase) -> Expected:
        """What becomes of *ask* in one go, put as the case puts it."""
        self.tell(ask)
        effects = self.cycle(10)
        decisions = [e for e in effects if isinstance(e, PreemptionDecided) and e.key == ask.key]
        assert len(decisions) == 1, effects
        decided = decisions[0]
        victims = frozenset(victim.key for victim in decided.victims)
        assert victims == {e.key for e in effects if isinstance(e, Released)}
        return Expected(decided.node_id, victims, "" if decided.node_id else str(decided.outcome))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in NOT_THROUGH_THE_ENGINE], ids=lambda c: c.name
)
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_case(case: Case, restarts: bool) -> None:
    """Node, victims or refusal are those of the worked case, also if the core restarts before it decides; books and
    laws hold after every step."""
    stage = Stage(case)
    stage.restarts = restarts
    for step in case.steps:
        got = stage.decide(step.ask)
        assert (got.node, got.victims) == (step.expected.node, step.expected.victims), got
        if step.expected.reason:
            assert got.reason == step.expected.reason
        assert audit.check(stage.state) == []
        assert stage.state.law_violations == 0
