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

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Effect, PreemptionDecided, Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.asks import moves, reservations
from kornel.core.state.books import audit, ledger
from kornel.core.state.partition_state import PartitionState
from tests.preemption_notation import Case, Expected, QueueCase, TaskCase, parse

CASES: Final = parse(Path(__file__).with_name("guarantee.cases").read_text(encoding="utf-8"))
NOT_THROUGH_THE_ENGINE: Final = {
    "J-B52": "needs a predicate callback",
    "J-B55": "one application in two queues: the interface has no such move",
    **dict.fromkeys(
        ("J-B54-triggered", "J-B54-required"),
        "a claim without anything that is leaving ends in the reserved step, before anybody could ask for its node",
    ),
}
PARTITION: Final = "[rm]default"
SECOND_NS: Final = 10**9
NOW_NS: Final = 100_000 * SECOND_NS


def configuration(case: Case) -> str:
    """*case*'s queues as ``queues.yaml`` text."""
    root: dict[str, Any] = {"name": "root", "submitacl": "*"}
    for queue in case.queues:
        _describe(_entry(root, queue.path), queue)
    preemption = {"guaranteemode": "strict" if case.strict else "reach"}
    return yaml.safe_dump({"partitions": [{"name": "default", "preemption": preemption, "queues": [root]}]})


def _entry(root: dict[str, Any], path: str) -> dict[str, Any]:
    entry = root
    for name in path.removeprefix("root").lstrip(".").split(".") if path != "root" else []:
        children = entry.setdefault("queues", [])
        found = next((child for child in children if child["name"] == name), None)
        if found is None:
            found = {"name": name}
            children.append(found)
        entry = found
    return entry


def _describe(entry: dict[str, Any], queue: QueueCase) -> None:
    resources = {"guaranteed": queue.guaranteed, "max": queue.maximum}
    given = {kind: dict(amounts) for kind, amounts in resources.items() if amounts}
    if given:
        entry["resources"] = given
    properties: dict[str, str] = {}
    if queue.preemption_policy is not None:
        properties["preemption.policy"] = queue.preemption_policy
    if queue.priority_fence:
        properties["priority.policy"] = "fence"
    if queue.priority_offset:
        properties["priority.offset"] = str(queue.priority_offset)
    if properties:
        entry["properties"] = properties


class Stage:
    """The engine with *case*'s cluster in it."""

    def __init__(self, case: Case, configure: Callable[[Case], str] = configuration) -> None:
        self.engine = Engine()
        self.engine.apply(RegisterManager("rm", configure(case)), NOW_NS)
        nodes = tuple(
            NodeSpec(name, NodeAction.CREATE, PARTITION, capacity=Resources(capacity)) for name, capacity in case.nodes
        )
        self.engine.apply(UpdateNodes("rm", nodes), NOW_NS)
        self._applications: set[str] = set()
        for task in case.running:
            self.submit(task)
            if task.leaving:
                moves.mark_victims(self.state, {self.state.requests[task.key]: None})
        for reservation in case.reservations:
            self._hold(reservation.node, reservation.holder, NOW_NS - reservation.minutes * 60 * SECOND_NS)

    @property
    def state(self) -> PartitionState:
        state = self.engine.partition(PARTITION)
        assert state is not None
        return state

    def submit(self, task: TaskCase, *, may_preempt: bool = True) -> None:
        """Report an allocation, or ask."""
        application = f"app-{task.queue}"
        if application not in self._applications:
            self._applications.add(application)
            added = ApplicationSpec(application, f"root.{task.queue}", PARTITION, user="tester")
            self.engine.apply(UpdateApplications("rm", (added,)), NOW_NS)
        spec = AllocationSpec(
            task.key,
            application,
            PARTITION,
            Resources(task.amounts),
            priority=task.priority,
            node_id=task.node,
            originator=task.originator,
            allow_preempt_self=not task.opted_out,
            allow_preempt_other=may_preempt,
            created_s=task.tick,
            required_node=(task.node or "n1") if task.required_node else "",
        )
        assert not [
            e for e in self.engine.apply(UpdateAllocations("rm", (spec,)), NOW_NS) if "Rejected" in type(e).__name__
        ]

    def _hold(self, node: str, holder: TaskCase, since_ns: int) -> None:
        """Hold room as an earlier cycle would have: by age, unless the ask preempted or must run there."""
        self.submit(holder, may_preempt=False)
        ask = self.state.requests[holder.key]
        by_age = not (holder.triggered or holder.required_node)
        reservations.reserve_node(self.state, ask, self.state.nodes[node], since_ns, by_age=by_age)
        if holder.triggered:
            ledger.book_claim(self.state, ask)

    def decide(self, ask: TaskCase) -> Expected:
        """What becomes of *ask* in one go, put as the case puts it."""
        self.submit(ask)
        effects: list[Effect] = []
        more = True
        while more:
            result = self.engine.cycle(NOW_NS, 10)
            effects += result.effects
            more = result.more
        decisions = [e for e in effects if isinstance(e, PreemptionDecided) and e.key == ask.key]
        assert len(decisions) == 1, effects
        decided = decisions[0]
        victims = frozenset(victim.key for victim in decided.victims)
        assert victims == {e.key for e in effects if isinstance(e, Released)}
        return Expected(decided.node_id, victims, "" if decided.node_id else str(decided.outcome))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in NOT_THROUGH_THE_ENGINE], ids=lambda c: c.name
)
def test_case(case: Case) -> None:
    """Node, victims or refusal are those of the worked case; books and laws hold after every step."""
    stage = Stage(case)
    for step in case.steps:
        got = stage.decide(step.ask)
        assert (got.node, got.victims) == (step.expected.node, step.expected.victims), got
        if step.expected.reason:
            assert got.reason == step.expected.reason
        assert audit.check(stage.state) == []
        assert stage.state.law_violations == 0
