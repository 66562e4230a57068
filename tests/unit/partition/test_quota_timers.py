"""When a lowered max is enforced: the cases of preemption.md J.4 and config.md T42 to T45, both modes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.partitions.partition_status import partition_status
from kornel.shared.readable_amounts import format_quantities
from tests.scenarios.stage import Stage

MODES = ("reset", "adjust")


class Cluster:
    """One queue root.q with tasks of 10 each, and a configuration that changes."""

    def __init__(self, mode: str, queue: Mapping[str, str], *, enabled: bool = True, used: int = 80) -> None:
        self._partition = f"partition default quota={'on' if enabled else 'off'}"
        self._queue = {"quota.preemption.timer": mode, **queue}
        self.stage = Stage()
        self.stage.play([self._partition, self._line(), "node n1 f=1000 s=1000", "app A queue=root.q"])
        self._tasks = 0
        self.run(used)

    def _line(self) -> str:
        return " ".join(["queue root.q", *(f"{key}={value}" for key, value in self._queue.items() if value)])

    @property
    def state(self) -> PartitionState:
        state = self.stage.engine.partition("[rm-1]default")
        assert state is not None
        return state

    def run(self, amount: int, kind: str = "f", *, bound: bool = False) -> None:
        """Report tasks; *bound* to their node they are never victims."""
        for _ in range(amount // 10):
            self._tasks += 1
            self.stage.play([f"run k{self._tasks:02} app=A node=n1 {kind}=10{' required=n1' if bound else ''}"])

    def end(self, count: int) -> None:
        for number in range(self._tasks, self._tasks - count, -1):
            self.stage.play([f"release k{number:02} app=A"])
        self._tasks -= count

    def change(self, at_s: float, **queue: str) -> None:
        self.pass_time(at_s)
        self._queue |= queue
        self.stage.play([self._partition, self._line(), "update-config"])

    def switch(self, at_s: float, state: str) -> None:
        self._partition = f"partition default quota={state}"
        self.change(at_s)

    def pass_time(self, until_s: float) -> list[str]:
        """Every second up to *until_s*; what was decided about maxima."""
        every = self.stage.play([f"cycles until={until_s}s every=1s"]) if until_s * 10**9 > self.stage.now_ns else []
        return [line for line in every if " enforce " in line]

    @property
    def due_s(self) -> float | None:
        """When the queue becomes due, as the status tells it."""
        status = partition_status(self.state, audited=True, now_ns=self.stage.now_ns)
        described = next(queue for queue in status.queues if queue.path == "root.q")
        return None if described.quota_due_ns is None else described.quota_due_ns / 10**9

    def enforced(self, until_s: float = 3000) -> str:
        """The first decision up to *until_s*: when, and the target. Its victims stay, which is another matter."""
        line, *_ = self.pass_time(until_s)
        return line.partition(", freed")[0].replace("enforce root.q ", "")


DELAY = "quota.preemption.delay"


def lowered(mode: str) -> Cluster:
    """J.4: max 90, usage 80, delay 600 s; at T=0 the max becomes 30."""
    cluster = Cluster(mode, {"max": "{f=90}", DELAY: "600"})
    cluster.change(0, max="{f=30}")
    assert cluster.due_s == 600
    return cluster


@pytest.mark.parametrize("mode", MODES)
def test_j_t1_the_full_delay_then_the_whole_excess(mode: str) -> None:
    """Lowered at 0, enforced at 600, once."""
    cluster = lowered(mode)
    assert cluster.enforced() == "@600s FULL: target f=50"
    assert cluster.due_s is None


@pytest.mark.parametrize(
    ("change", "mode", "expected"),
    [
        pytest.param({"max": "{f=20}"}, "reset", "@900s FULL: target f=60", id="J-T2 lowered again, reset"),
        pytest.param({"max": "{f=20}"}, "adjust", "@600s FULL: target f=60", id="J-T2 lowered again, adjust"),
        pytest.param({"max": "{f=85}"}, "reset", None, id="J-T4, T45 raised above usage, reset"),
        pytest.param({"max": "{f=85}"}, "adjust", None, id="J-T4, T45 raised above usage, adjust"),
        pytest.param({DELAY: "1200"}, "reset", "@1500s FULL: target f=50", id="J-T5 delay longer, reset"),
        pytest.param({DELAY: "1200"}, "adjust", "@1200s FULL: target f=50", id="J-T5 delay longer, adjust"),
        pytest.param({DELAY: "100"}, "adjust", "@301s FULL: target f=50", id="start moved into the past, adjust"),
        pytest.param({DELAY: "0"}, "reset", None, id="J-T7 delay gone, reset"),
        pytest.param({DELAY: "0"}, "adjust", None, id="J-T7 delay gone, adjust"),
        pytest.param({"max": ""}, "reset", None, id="J-T8, T45 max gone, reset"),
        pytest.param({"max": ""}, "adjust", None, id="J-T8, T45 max gone, adjust"),
        pytest.param(
            {"application.sort.policy": "fair"}, "reset", "@600s FULL: target f=50", id="J-T9 unrelated, reset"
        ),
        pytest.param(
            {"application.sort.policy": "fair"}, "adjust", "@600s FULL: target f=50", id="J-T9 unrelated, adjust"
        ),
        pytest.param({"max": "{f=45}"}, "reset", None, id="J-T17, T45 raised, still over, reset"),
        pytest.param(
            {"max": "{f=45}"}, "adjust", "@600s FULL: target f=35", id="J-T17, T45 raised, still over, adjust"
        ),
        pytest.param(
            {"max": "{f=20}", DELAY: "700"}, "adjust", "@700s FULL: target f=60", id="T43 both changed, adjust"
        ),
        pytest.param(
            {"max": "{f=20}", DELAY: "700"}, "reset", "@1000s FULL: target f=60", id="T43 both changed, reset"
        ),
    ],
)
def test_a_second_change_at_300(change: dict[str, str], mode: str, expected: str | None) -> None:
    """What a change does to an armed timer (D.4, rows 2 to 9)."""
    cluster = lowered(mode)
    cluster.change(300, **change)
    if expected is None:
        assert cluster.due_s is None
        assert cluster.pass_time(3000) == []
    else:
        assert cluster.enforced() == expected


@pytest.mark.parametrize("mode", MODES)
def test_j_t10_a_delay_for_a_max_exceeded_since_long(mode: str) -> None:
    """Usage was above the max all along, without any delay; with one it is enforced."""
    cluster = Cluster(mode, {"max": "{f=30}"})
    cluster.change(0, **{DELAY: "600"})
    assert cluster.due_s == 600


@pytest.mark.parametrize(("mode", "due_s"), [("reset", 110), ("adjust", None)])
def test_t44_another_delay_while_unarmed(mode: str, due_s: int | None) -> None:
    """Row 6: after a run that left something, only ``reset`` starts anew when the delay changes."""
    cluster = Cluster(mode, {"max": "{f=90}", DELAY: "5"}, used=0)
    cluster.run(80, bound=True)
    cluster.change(0, max="{f=30}")
    assert cluster.enforced(50) == "@5s NONE: target f=50"
    cluster.change(100, **{DELAY: "10"})
    assert cluster.due_s == due_s


@pytest.mark.parametrize("mode", MODES)
def test_j_t11_usage_falls_by_itself(mode: str) -> None:
    """Below the max at 500: forgotten at the next tick."""
    cluster = lowered(mode)
    cluster.pass_time(500)
    cluster.end(6)
    assert cluster.due_s == 600
    cluster.pass_time(501)
    assert cluster.due_s is None
    assert cluster.pass_time(3000) == []


@pytest.mark.parametrize("mode", MODES)
def test_j_t12_a_run_is_not_disturbed(mode: str) -> None:
    """The max is raised while the run goes on: it ends with its first target, and nothing follows."""
    cluster = lowered(mode)
    cluster.pass_time(599)
    answers = cluster.stage.play(["cycle once budget=1 at=600s"])
    assert cluster.state.enforcement.run is not None
    assert not [line for line in answers if "release" in line]
    cluster.change(600, max="{f=60}")
    (line,) = [line for line in cluster.stage.play(["cycle at=601s"]) if line.startswith("enforce")]
    assert "FULL: target f=50" in line
    assert cluster.due_s is None
    cluster.stage.play([f"release k{number:02} app=A type=PREEMPTED_BY_SCHEDULER" for number in range(1, 6)])
    assert cluster.pass_time(3000) == []


@pytest.mark.parametrize(("mode", "due_s"), [("reset", 1200), ("adjust", None)])
def test_a_max_lowered_during_a_run_is_looked_at_afterwards(mode: str, due_s: int | None) -> None:
    """Row 1: ``reset`` looks once more when the run has ended, ``adjust`` ignores what happened meanwhile."""
    cluster = lowered(mode)
    cluster.pass_time(599)
    cluster.stage.play(["cycle once budget=1 at=600s"])
    cluster.change(600, max="{f=20}")
    cluster.stage.play(["cycle"])
    assert cluster.due_s == due_s


@pytest.mark.parametrize("mode", MODES)
def test_j_t13_a_restart_begins_the_delay_again(mode: str) -> None:
    """The recovered task that lifts usage above the max arms, at 410."""
    cluster = Cluster(mode, {"max": "{f=30}", DELAY: "600"}, used=0)
    cluster.pass_time(400)
    cluster.run(30)
    assert cluster.due_s is None
    cluster.pass_time(410)
    cluster.run(10)
    cluster.pass_time(420)
    cluster.run(40)
    assert cluster.due_s == 1010
    assert cluster.enforced() == "@1010s FULL: target f=50"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("before", "after", "target"),
    [
        pytest.param("{f=100,s=100}", "{f=200,s=50}", {"s": 30}, id="J-T14 one type up, one down"),
        pytest.param("", "{f=50}", {"f": 30}, id="J-T15 a first max"),
    ],
)
def test_every_kind_of_tightening_arms(mode: str, before: str, after: str, target: dict[str, int]) -> None:
    """Row 8, T46 and B9: some type is lower than before, or limited for the first time."""
    cluster = Cluster(mode, {"max": before, DELAY: "600"})
    cluster.run(80, "s")
    cluster.change(0, max=after)
    assert cluster.enforced() == f"@600s FULL: target {format_quantities(target)}"


@pytest.mark.parametrize("mode", MODES)
def test_t42_usage_within_the_new_max_does_not_arm(mode: str) -> None:
    """Row 4."""
    cluster = Cluster(mode, {"max": "{f=90}", DELAY: "10"}, used=30)
    cluster.change(0, max="{f=30}")
    assert cluster.due_s is None


@pytest.mark.parametrize("mode", MODES)
def test_the_switch_arms_whoever_is_over_its_max(mode: str) -> None:
    """Enabled: the full delay from then on, whatever was changed before. Disabled: everything is forgotten."""
    cluster = Cluster(mode, {"max": "{f=30}", DELAY: "60"}, enabled=False)
    cluster.change(5, max="{f=20}")
    assert cluster.due_s is None
    cluster.switch(10, "on")
    assert cluster.due_s == 70
    cluster.switch(20, "off")
    assert cluster.due_s is None
    assert cluster.pass_time(200) == []


@pytest.mark.parametrize("mode", MODES)
def test_growing_in_place_arms(mode: str) -> None:
    """A task resized above the max of its queue (scheduling.md 14); an armed timer stays as it is."""
    cluster = Cluster(mode, {"max": "{f=30}", DELAY: "60"}, used=30)
    cluster.stage.play(["at=10s resize-ask k01 app=A f=12"])
    assert cluster.due_s == 70
    cluster.stage.play(["at=20s resize-ask k01 app=A f=15"])
    assert cluster.due_s == 70


def test_victims_in_flight_count_in_adjust_only() -> None:
    """Row 4: ``reset`` looks at what remains once they are gone."""
    for mode, armed in (("reset", False), ("adjust", True)):
        cluster = Cluster(mode, {"max": "{f=90}", DELAY: "5"})
        cluster.change(0, max="{f=30}")
        assert "FULL" in cluster.enforced(10)
        cluster.change(20, max="{f=30,s=5}")
        assert (cluster.due_s is not None) is armed


def test_the_decision_tells_numbers_and_is_recorded_once() -> None:
    """Administrators learn target, freed, unmet and how many were told to leave (D.9)."""
    cluster = Cluster("reset", {"max": "{f=90}", DELAY: "1"})
    cluster.change(0, max="{f=30}")
    effects = cluster.stage.engine.cycle(10**9, 1000).effects
    (decision,) = [effect for effect in effects if isinstance(effect, PreemptionDecided)]
    assert decision.detail == "target f=50, freed f=50, unmet -, chosen 5, asked to leave 5"
    assert [victim.key for victim in decision.victims] == ["k01", "k02", "k03", "k04", "k05"]
