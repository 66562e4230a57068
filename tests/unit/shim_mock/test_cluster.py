"""The simulated cluster against a core that does what the test tells it."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from heapq import heappop, heappush

import pytest

from kornel.shim_client import PreemptionNotice, ShimClient
from kornel.shim_mock.clock import SimulatedClock
from kornel.shim_mock.cluster import SimulatedCluster
from kornel.shim_mock.model.lifecycle import TaskState
from kornel.shim_mock.model.notices import TOO_LATE_S
from kornel.shim_mock.notices import NoticeHandler
from kornel.shim_mock.scenario import Scenario
from kornel.si.v1 import si_pb2 as si
from tests import waiting
from tests.unit.shim_client.fake_core import FakeCore, serving
from tests.unit.shim_mock.scenarios import small

Decide = Callable[[si.AllocationRequest], si.AllocationResponse | None]

ONE_TASK = ("        count: 2\n        resources: {vcore: 1", "        count: 1\n        resources: {vcore: 1")


class SteppedClock(SimulatedClock):
    """Simulated time that passes when a test says so."""

    def __init__(self, speed: float) -> None:
        super().__init__(speed)
        self._now_s = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def real_s(self) -> float:
        return self._now_s / self._speed

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Run *callback* in *delay_s* simulated seconds; without a delay, when the event loop gets to it."""
        if delay_s <= 0:
            super().call_later(0, callback)
            return
        self.timers += 1
        heappush(self._calls, (self._now_s + delay_s, next(self._numbers), callback))

    def advance(self, seconds: float) -> None:
        """Lets simulated seconds pass."""
        end_s = self._now_s + seconds
        while self._calls and self._calls[0][0] <= end_s:
            self._now_s, _, callback = heappop(self._calls)
            self.timers -= 1
            callback()
        self._now_s = end_s


@dataclass
class Bench:
    core: FakeCore
    cluster: SimulatedCluster
    clock: SteppedClock

    async def preempt(self, key: str, times: int = 1) -> None:
        release = si.AllocationRelease(
            applicationID="job", allocationKey=key, terminationType=si.PREEMPTED_BY_SCHEDULER
        )
        for _ in range(times):
            await self.core.say("allocation", si.AllocationResponse(released=[release]))

    def confirmations(self) -> Counter[str]:
        return Counter(
            release.allocationKey
            for release in self.core.releases
            if release.terminationType == si.PREEMPTED_BY_SCHEDULER
        )


def place_everything(request: si.AllocationRequest) -> si.AllocationResponse | None:
    """A core with one node and endless room."""
    asked = [(ask.allocationKey, ask.applicationID) for ask in request.allocations]
    asked += [(ask.allocationKey, ask.applicationID) for ask in request.asks]
    new = [si.Allocation(allocationKey=key, applicationID=application, nodeID="node-0") for key, application in asked]
    return si.AllocationResponse(new=new) if new else None


@asynccontextmanager
async def bench(scenario: Scenario, decide: Decide = place_everything) -> AsyncIterator[Bench]:
    core = FakeCore()
    core.decide = decide
    async with serving(core) as address, ShimClient(address, "rm-1", generation=scenario.generation) as client:
        await client.register(config=scenario.config)
        clock = SteppedClock(scenario.speed)
        cluster = SimulatedCluster(scenario, client, clock)

        async def hear() -> None:
            async for update in client.updates():
                cluster.handle_update(update)

        tasks = [asyncio.create_task(hear()), asyncio.create_task(cluster.send())]
        cluster.create_nodes(scenario.nodes)
        cluster.add_applications(scenario.applications)
        yield Bench(core, cluster, clock)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def until(cluster: SimulatedCluster, state: TaskState, count: int) -> None:
    """Wait until *count* tasks are in *state*."""
    await waiting.until(lambda: cluster.count_tasks()[state] == count, f"{count} tasks to be {state}")


@pytest.mark.parametrize("generation", ["g2", "g3"])
async def test_tasks_are_asked_for_and_started(generation: str) -> None:
    """Each task becomes one ask of the scenario's generation, with priority and flags, and runs once it is placed."""
    async with bench(small(("generation: g3", f"generation: {generation}"))) as at:
        await until(at.cluster, TaskState.RUNNING, 2)
        ask = at.core.asks[0]
    assert isinstance(ask, si.AllocationAsk) == (generation == "g2")
    assert [entry.allocationKey for entry in at.core.asks] == ["job-worker-0", "job-worker-1"]
    assert ask.priority == 1000
    assert (ask.preemptionPolicy.allowPreemptSelf, ask.preemptionPolicy.allowPreemptOther) == (False, True)
    assert at.cluster.accounts.queues["root.batch"].used == {"vcore": 2000, "memory": 2 * 2**30}
    assert not at.cluster.anomalies


@pytest.mark.parametrize("generation", ["g2", "g3"])
async def test_a_victim_is_confirmed_after_the_delay_with_the_same_type(generation: str) -> None:
    """The confirmation comes once, after the delay in simulated time; until then the room stays booked."""
    async with bench(small(("generation: g3", f"generation: {generation}"), ONE_TASK)) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        await at.preempt("job-worker-0")
        await until(at.cluster, TaskState.TERMINATING, 1)
        account = at.cluster.accounts.queues["root.batch"]
        assert (account.used["vcore"], account.usage_net_of_victims("vcore"), account.preempted) == (1000, 0, 1)
        at.clock.advance(9.9)
        assert at.cluster.count_tasks()[TaskState.TERMINATING] == 1
        at.clock.advance(0.1)
        await at.core.until(at.confirmations)
        assert at.cluster.count_tasks()[TaskState.EVICTED] == 1
        assert account.used["vcore"] == 0
    release = at.core.releases[0]
    assert release.allocationID == ("job-worker-0-0" if generation == "g2" else "")
    assert at.confirmations() == {"job-worker-0": 1}


async def test_preempted_work_comes_back_under_a_new_key() -> None:
    """With restart, an evicted task is asked for again, each time under another key; the old key stays gone."""
    scenario = small(ONE_TASK, ("priorityClass: high", "restart: true"), ("delay: 10s", "delay: 0s"))
    async with bench(scenario) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        await at.preempt("job-worker-0")
        await at.core.until(lambda: len(at.core.asks) == 2)
        await until(at.cluster, TaskState.RUNNING, 1)
        await at.preempt("job-worker-0.r1")
        await at.core.until(lambda: len(at.core.asks) == 3)
    assert [ask.allocationKey for ask in at.core.asks] == ["job-worker-0", "job-worker-0.r1", "job-worker-0.r2"]
    assert at.cluster.accounts.queues["root.batch"].recreated == 2


async def test_a_lost_confirmation_stays_lost_without_retry() -> None:
    """When all confirmations are lost the core hears nothing, and the victim keeps its room in the books."""
    scenario = small(ONE_TASK, ("delay: 10s", "delay: 0s\n  loss: 1"))
    async with bench(scenario) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        await at.preempt("job-worker-0")
        await waiting.until(lambda: at.cluster.lost_confirmations, "a confirmation to be lost")
        assert at.cluster.count_tasks()[TaskState.TERMINATING] == 1
        assert at.cluster.holding() == 1
    assert not at.confirmations()


async def test_a_lost_confirmation_is_repeated_with_retry() -> None:
    """With a retry every victim is confirmed in the end, whatever gets lost on the way, and counted once."""
    scenario = small(
        ("        count: 2\n        resources: {vcore: 1", "        count: 8\n        resources: {vcore: 500m"),
        ("memory: 1Gi", "memory: 1Mi"),
        ("delay: 10s", "delay: 0s\n  loss: 0.5\n  duplication: 0.5\n  retry: 1s"),
    )
    async with bench(scenario) as at:
        await until(at.cluster, TaskState.RUNNING, 8)
        for index in range(8):
            await at.preempt(f"job-worker-{index}")

        def are_evicted() -> bool:
            at.clock.advance(1)
            return at.cluster.count_tasks()[TaskState.EVICTED] == 8

        await waiting.until(are_evicted, "all victims to be confirmed")
        await at.core.until(lambda: len(at.confirmations()) == 8)
        assert at.cluster.lost_confirmations > 0
        assert at.cluster.duplicated_confirmations > 0
        expected = 8 + at.cluster.duplicated_confirmations
        await at.core.until(lambda: at.confirmations().total() == expected)
        assert at.cluster.accounts.queues["root.batch"].preempted == 8
    assert not at.cluster.anomalies


@pytest.mark.parametrize("node", ["node-0", "node-1"])
async def test_a_required_node_is_asked_for_and_checked(node: str) -> None:
    """A task's node goes out as its tag; a core that places the task elsewhere is caught."""
    async with bench(small(ONE_TASK, ("priorityClass: high", f"node: {node}"))) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        assert at.core.asks[0].allocationTags == {"yunikorn.apache.org/requiredNode": node}
        placed = at.cluster.tasks["job-worker-0"].node
    wrong = [f"task job-worker-0 requires node {node} and was placed on {placed}"]
    assert at.cluster.anomalies == ([] if placed == node else wrong)


async def test_an_application_that_answers_a_notice_ends_other_tasks() -> None:
    """It ends as much as is wanted back of what is not at risk; each announced task counts once."""
    async with bench(small(("queue: root.batch", "queue: root.batch\n    onNotice: release"))) as at:
        await until(at.cluster, TaskState.RUNNING, 2)
        notice = PreemptionNotice(1, "", "job", 1, (), ("job-worker-0",), {"vcore": 1000}, 0, "monitor", "")
        handler = NoticeHandler(at.cluster, at.clock)
        await handler.preemption_notice(notice)
        await at.core.until(lambda: at.core.releases)
        assert [release.allocationKey for release in at.core.releases] == ["job-worker-1"]
        assert at.core.releases[0].terminationType == si.STOPPED_BY_RM
        await handler.preemption_notice(notice._replace(need={}))
    assert at.cluster.accounts.queues["root.batch"].noticed == 1
    assert at.cluster.tasks["job-worker-0"].state is TaskState.RUNNING


async def test_an_application_that_ignores_a_notice_ends_nothing() -> None:
    """The notice is counted, and every task runs on."""
    async with bench(small(("queue: root.batch", "queue: root.batch\n    onNotice: ignore"))) as at:
        await until(at.cluster, TaskState.RUNNING, 2)
        notice = PreemptionNotice(1, "", "job", 1, (), ("job-worker-0",), {"vcore": 1000}, 0, "monitor", "")
        await NoticeHandler(at.cluster, at.clock).preemption_notice(notice)
    assert at.cluster.accounts.queues["root.batch"].noticed == 1
    assert at.cluster.count_tasks()[TaskState.RUNNING] == 2


async def test_an_application_that_saves_its_work_says_so() -> None:
    """The answer carries a time for each announced task, and nothing ends."""
    async with bench(small(("queue: root.batch", "queue: root.batch\n    onNotice: checkpoint"))) as at:
        await until(at.cluster, TaskState.RUNNING, 2)
        notice = PreemptionNotice(1, "", "job", 1, ("job-worker-0",), (), {}, 0, "monitor", "")
        reply = await NoticeHandler(at.cluster, at.clock).preemption_notice(notice)
    assert reply is not None
    assert list(reply.checkpoints) == ["job-worker-0"]
    assert at.cluster.count_tasks()[TaskState.RUNNING] == 2


async def test_an_application_that_answers_too_late_does_so_after_the_deadline() -> None:
    """Nothing before the deadline, and afterwards as much as was wanted back, whatever became of the listed ones."""
    async with bench(small(("queue: root.batch", "queue: root.batch\n    onNotice: late"))) as at:
        await until(at.cluster, TaskState.RUNNING, 2)
        notice = PreemptionNotice(1, "", "job", 1, (), ("job-worker-0",), {"vcore": 1000}, 0, "monitor", "")
        await NoticeHandler(at.cluster, at.clock).preemption_notice(notice)
        at.clock.advance(TOO_LATE_S * at.cluster.scenario.speed * 0.99)
        assert at.cluster.count_tasks()[TaskState.RUNNING] == 2
        at.clock.advance(TOO_LATE_S * at.cluster.scenario.speed * 0.01)
        await at.core.until(lambda: at.core.releases)
        assert [release.allocationKey for release in at.core.releases] == ["job-worker-1"]


async def test_a_repeated_demand_is_confirmed_again_and_counted_once() -> None:
    """The core may ask twice: a victim that is gone is confirmed again, and neither count moves."""
    async with bench(small(ONE_TASK, ("delay: 10s", "delay: 0s"))) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        await at.preempt("job-worker-0")
        await until(at.cluster, TaskState.EVICTED, 1)
        await at.preempt("job-worker-0")
        await at.core.until(lambda: at.confirmations()["job-worker-0"] == 2)
    assert at.cluster.accounts.queues["root.batch"].preempted == 1
    assert not at.cluster.anomalies


async def test_a_task_ends_after_its_runtime() -> None:
    """A task's end is told as STOPPED_BY_RM after its runtime, and counts once the core has confirmed it."""
    async with bench(small(ONE_TASK, ("priorityClass: high", "runtime: 5s"))) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        at.clock.advance(4.9)
        assert at.cluster.count_tasks()[TaskState.RUNNING] == 1
        at.clock.advance(0.1)
        await at.core.until(lambda: at.core.releases)
        assert at.core.releases[0].terminationType == si.STOPPED_BY_RM
        assert at.cluster.count_tasks()[TaskState.STOPPING] == 1
        echo = si.AllocationRelease(allocationKey="job-worker-0", terminationType=si.STOPPED_BY_RM)
        await at.core.say("allocation", si.AllocationResponse(released=[echo]))
        await until(at.cluster, TaskState.ENDED, 1)
    assert not at.cluster.anomalies


async def test_a_task_chosen_after_its_end_needs_no_second_word() -> None:
    """A demand that crosses the task's own end is not confirmed: the end already frees the room."""
    async with bench(small(ONE_TASK, ("priorityClass: high", "runtime: 1s"), ("delay: 10s", "delay: 0s"))) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        at.clock.advance(1)
        await until(at.cluster, TaskState.STOPPING, 1)
        await at.preempt("job-worker-0")
        echo = si.AllocationRelease(allocationKey="job-worker-0", terminationType=si.STOPPED_BY_RM)
        await at.core.say("allocation", si.AllocationResponse(released=[echo]))
        await until(at.cluster, TaskState.ENDED, 1)
        account = at.cluster.accounts.queues["root.batch"]
        assert (account.used["vcore"], account.preempting["vcore"], account.preempted) == (0, 0, 1)
    assert not at.confirmations()


async def test_arrivals_keep_their_rate() -> None:
    """With an arrival rate tasks come one after the other in simulated time, not all at once."""
    async with bench(small(("priorityClass: high", "arrival: 1/s"))) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        at.clock.advance(0.9)
        assert at.cluster.arriving == 1
        at.clock.advance(0.1)
        await until(at.cluster, TaskState.RUNNING, 2)
        assert at.cluster.accounts.queues["root"].unsubmitted == 0


async def test_a_lost_node_takes_its_tasks_along() -> None:
    """After its removal the core's releases end the node's tasks, and restart brings them back."""
    scenario = small(ONE_TASK, ("priorityClass: high", "restart: true"), ("count: 2\n", "count: 2\n    remove: 5s\n"))
    async with bench(scenario) as at:
        await until(at.cluster, TaskState.RUNNING, 1)
        at.clock.advance(5)
        await at.core.until(
            lambda: any(n.action == si.NodeInfo.DECOMISSION for r in at.core.requests["node"] for n in r.nodes)
        )
        gone = si.AllocationRelease(allocationKey="job-worker-0", terminationType=si.STOPPED_BY_RM)
        await at.core.say("allocation", si.AllocationResponse(released=[gone]))
        await at.core.until(lambda: len(at.core.asks) == 2)
    assert at.core.asks[1].allocationKey == "job-worker-0.r1"


@pytest.mark.parametrize(
    ("response", "anomaly"),
    [
        (si.AllocationResponse(new=[si.Allocation(allocationKey="x")]), "placed: unknown task 'x'"),
        (
            si.AllocationResponse(new=[si.Allocation(allocationKey="job-worker-0", nodeID="node-0")]),
            "job-worker-0: placed while running",
        ),
        (si.AllocationResponse(rejected=[si.RejectedAllocationAsk(allocationKey="x", reason="no")]), "refused: no"),
        (
            si.AllocationResponse(released=[si.AllocationRelease(allocationKey="x", terminationType=si.TIMEOUT)]),
            "stop asked: unknown task 'x'",
        ),
    ],
)
async def test_what_the_contract_forbids_is_noticed(response: si.AllocationResponse, anomaly: str) -> None:
    """A message that makes no sense is kept as an anomaly and changes nothing."""
    async with bench(small()) as at:
        await until(at.cluster, TaskState.RUNNING, 2)
        await at.core.say("allocation", response)
        await waiting.until(lambda: at.cluster.anomalies, "the anomaly")
        assert anomaly in at.cluster.anomalies[0]
        assert at.cluster.count_tasks() == {TaskState.RUNNING: 2}


async def test_an_overfull_node_is_noticed() -> None:
    """Placing more on a node than it has is an anomaly, with node, type and amounts."""
    async with bench(small(("resources: {vcore: 1,", "resources: {vcore: 3,"))) as at:
        await until(at.cluster, TaskState.RUNNING, 2)
    assert at.cluster.anomalies == ["task job-worker-1 overfills node node-0: vcore 6000 of 4000"]


async def test_a_stranded_queue_is_told_from_one_that_could_be_helped() -> None:
    """Only a wait that no other queue's tasks cause counts as beyond help."""
    scenario = small(("count: 2\n", "count: 1\n"), ("resources: {vcore: 1,", "resources: {vcore: 3,"))
    async with bench(small()) as at:
        await until(at.cluster, TaskState.RUNNING, 2)
        assert at.cluster.is_stranded("root.batch")
    async with bench(scenario, decide=lambda _: None) as at:
        await at.core.until(lambda: len(at.core.asks) == 2)
        assert not at.cluster.is_stranded("root.batch")
        placed = si.Allocation(allocationKey="job-worker-0", nodeID="node-0")
        await at.core.say("allocation", si.AllocationResponse(new=[placed]))
        await until(at.cluster, TaskState.RUNNING, 1)
        assert at.cluster.is_stranded("root.batch")
