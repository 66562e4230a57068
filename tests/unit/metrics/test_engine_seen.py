"""What metrics tell of a real engine's decisions and state."""

from __future__ import annotations

from collections.abc import Sequence

from kornel.core.domain.effects import Effect
from kornel.core.metrics.decisions import Decisions
from kornel.core.telling.partitions.partition_gauges import BudgetUse, PartitionGauges
from kornel.core.telling.reader import PartitionReader
from tests.reading import read
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"
THREE_NODES = (
    "queue root.v",
    "queue root.a guaranteed={f=10}",
    "node n1 f=1",
    "node n2 f=1",
    "run v1 queue=root.v node=n1 f=1 created=3s",
    "run v2 queue=root.v node=n2 f=1 created=2s",
    "ask k1 queue=root.a f=1 other=yes",
)


class Watched(Stage):
    """A stage whose effects are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions = Decisions(self._queue_of, lambda: self.now_ns)

    def _describe(self, effects: Sequence[Effect]) -> list[str]:
        self.decisions.observe(effects)
        return super()._describe(effects)

    def _queue_of(self, application_id: str) -> str:
        return self.views.queue_of(application_id)

    @property
    def views(self) -> PartitionReader:
        return read(self.engine, PARTITION, self.now_ns)

    @property
    def gauges(self) -> PartitionGauges:
        *_, last = self.views.gauges(1_000)
        assert last is not None
        return last


def test_an_ask_that_preempts_is_followed_from_victim_to_node() -> None:
    stage = Watched()
    stage.play([*THREE_NODES, "cycle at=30s"])
    seen = stage.decisions.preemptions
    assert seen.attempts["guarantee", "TRIGGERED", ""] == 1
    assert seen.victims["guarantee"] == 1
    assert seen.lost["guarantee", "f"] == 1
    seen.forget_gone(lambda partition, key: stage.views.is_waiting(key))
    assert [key for _, key in seen.waiting] == ["k1"]
    stage.play(["release v1 app=v type=PREEMPTED_BY_SCHEDULER at=33s", "cycle"])
    assert not stage.views.is_waiting("k1")
    assert seen.ended["placed"] == 1
    assert seen.placed.total == 3


def test_an_ask_that_is_withdrawn_waits_no_more() -> None:
    stage = Watched()
    stage.play([*THREE_NODES, "cycle at=30s", "withdraw k1 app=a"])
    assert not stage.views.is_waiting("k1")
    assert not stage.views.is_waiting("nobody")


def test_a_budget_that_is_spent_shows() -> None:
    stage = Watched()
    stage.play(['partition governor="{window_ms: 60000, queue: {victims: 1, lost: {f: 500}}}"', *THREE_NODES])
    assert BudgetUse("queue", "victims", 0.0) in stage.gauges.governor.budgets
    stage.play(["cycle at=30s", "ask k2 queue=root.a f=1 other=yes created=0s", "cycle at=40s"])
    governor = stage.gauges.governor
    assert BudgetUse("queue", "victims", 1.0) in governor.budgets
    assert BudgetUse("queue", "f", 30 / 500) in governor.budgets
    assert governor.paused == {"cluster": 0, "queue": 1, "application": 0}
    assert governor.denied > 0
    assert stage.decisions.preemptions.attempts["governor", "BUDGET_SPENT", ""] == 1
    stage.now_ns = 95 * 10**9
    later = stage.gauges.governor
    assert BudgetUse("queue", "victims", 0.0) in later.budgets
    assert later.paused["queue"] == 0


def test_a_partition_shows_its_nodes_and_queues() -> None:
    """Nodes count for the tenth that is full of what is used; a type they do not have does not count."""
    stage = Watched()
    stage.play(["queue root.v max={f=5}", "node n1 f=10", "node n2 f=10 vcore=1", "node n3 f=10"])
    stage.play(["run v1 queue=root.v node=n1 f=10", "run v2 queue=root.v node=n2 f=1", "drain n3"])
    found = stage.gauges
    assert (found.nodes, found.unschedulable, found.allocations) == (3, 1, 2)
    assert list(found.usage["f"]) == [2, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert list(found.usage["vcore"]) == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    leaf = next(queue for queue in found.queues if queue.path == "root.v")
    f = found.types.index("f")
    assert (leaf.used[f], leaf.max[f], sum(leaf.applications.values())) == (11, 5, 1)
    stage.play(["decommission n2"])
    assert (stage.gauges.nodes, stage.gauges.nodes_removed) == (2, 1)
