"""What a cluster owner may rely on when work is preempted, from the shim's side of the wire.

``tests/scenarios/preemption/test_trust.py`` has the same promises for the engine alone. Here a served core is told and
asked everything over gRPC, and its clock is moved by the service that is there for that.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_client import CallbackHandler, SchedulingState, ShimClient
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import test_clock_pb2, test_clock_pb2_grpc
from tests.e2e.harness import Core, create
from tests.e2e.preemption_wire import Shim, allocation, running_shim
from tests.patience import PATIENCE_S
from tests.preemption_notation import TaskCase
from tests.scenarios.preemption.busy_cluster import keys
from tests.scenarios.preemption.monitor_stage import queue_tree
from tests.scenarios.preemption.test_trust import MOST_S, resources
from tests.waiting import until

ONE: Final = {"f": 1}
Queues = Mapping[str, dict[str, Any]]


def configuration(queues: Queues, **preemption: Any) -> str:
    """*queues* by path below root, and the section ``preemption`` of the partition."""
    return json.dumps({"partitions": [{"name": "default", "preemption": preemption, "queues": [queue_tree(queues)]}]})


class LivingShim(Shim):
    """A shim whose victims leave at once, and whose controllers may ask for them again."""

    def __init__(self, core: Core, client: ShimClient) -> None:
        super().__init__(core, client)
        self.recreates = False
        self.now_ms = 0
        self.victims_at_ms: list[int] = []
        """When each victim was told to leave."""
        self._tasks: dict[str, TaskCase] = {}
        self._tick = 0
        self._left = 0

    async def nodes(self, count: int, capacity: Mapping[str, int]) -> None:
        """Nodes ``n0``, ``n1`` and so on."""
        await self.client.create_nodes([create(f"n{at}", None, **capacity) for at in range(count)])

    async def run(self, queue: str, names: Iterable[str], size: dict[str, int], node: str, **about: Any) -> None:
        """Tasks that are running already."""
        await self.report([allocation(task) for task in self._made(queue, names, size, node=node, **about)])

    async def submit(self, queue: str, names: Iterable[str], size: dict[str, int], **about: Any) -> list[str]:
        """Asks, old enough to preempt. Returns their keys."""
        asks = [allocation(task) for task in self._made(queue, names, size, **about)]
        await self.add_applications([(f"app-{queue}", queue)])
        await self.client.report_allocations(asks)
        await self.client.flush()
        await self.come_to_rest()
        return [ask.allocationKey for ask in asks]

    async def end(self, name: str) -> None:
        """A task ends by itself."""
        task = self._tasks[name]
        await self.client.release([self.client.release_of(f"app-{task.queue}", name, si.STOPPED_BY_RM)])
        await self.client.flush()
        await self.come_to_rest()

    async def let_pass(self, seconds: float, step_s: float = 0.5) -> None:
        """Move the core's clock on in steps; after each, victims leave and what then happens has happened."""
        until_ms = self.now_ms + round(seconds * 1000)
        stub = test_clock_pb2_grpc.TestClockServiceStub(self.core.channel)
        while self.now_ms < until_ms:
            by_ms = min(round(step_s * 1000), until_ms - self.now_ms)
            self.now_ms += by_ms
            request = test_clock_pb2.AdvanceClockRequest(by_ns=by_ms * SECOND_NS // 1000)
            await stub.AdvanceClock(request, timeout=PATIENCE_S)
            await self.come_to_rest()

    async def come_to_rest(self) -> None:
        """Return when victims have left and nothing more comes while the clock stands still."""
        heard = -1
        while heard != len(self.released) + len(self.placed) or self._leaving():
            heard = len(self.released) + len(self.placed)
            await self._let_leave()
            await self.core.settle()
        self.victims_at_ms += [self.now_ms] * (len(self._preempted()) - len(self.victims_at_ms))

    def victims(self) -> list[str]:
        return [update.key for update in self._preempted()]

    def _preempted(self) -> list[Any]:
        return [update for update in self.released if update.termination == si.PREEMPTED_BY_SCHEDULER]

    def _leaving(self) -> list[Any]:
        return self._preempted()[self._left :]

    async def _let_leave(self) -> None:
        left = self._leaving()
        if not left:
            return
        self._left += len(left)
        kind = si.PREEMPTED_BY_SCHEDULER
        await self.client.release(self.client.release_of(u.application_id, u.key, kind) for u in left)
        if self.recreates:
            for update in left:
                task = self._tasks[update.key]
                again = self._made(task.queue, [f"{update.key}~"], task.amounts)
                await self.client.report_allocations([allocation(each) for each in again])
        await self.client.flush()

    def _made(self, queue: str, names: Iterable[str], size: Mapping[str, int], **about: Any) -> list[TaskCase]:
        made = []
        for name in names:
            self._tick += 1
            made.append(TaskCase(queue, name, dict(size), tick=self._tick, **about))
        self._tasks.update((task.key, task) for task in made)
        return made


@asynccontextmanager
async def living(
    queues: Queues, handler: CallbackHandler | None = None, **preemption: Any
) -> AsyncIterator[LivingShim]:
    """A core that serves *queues* with a clock that only this test moves, and its shim."""
    config = configuration(queues, **preemption)
    async with running_shim(config, handler, LivingShim, test_clock=True) as shim:
        yield shim


async def test_one_small_ask_does_not_kill_hundreds() -> None:
    """t holds 1,000 of its 100, all of it in b; c, without a guarantee, asks eight times for 1: nobody leaves."""
    queues = {"t": resources(guaranteed=100, max=1000), "t.b": resources(guaranteed=50), "t.c": {}}
    async with living(queues) as shim:
        shim.recreates = True
        await shim.nodes(5, {"f": 300})
        for at in range(5):
            await shim.run("t.b", keys(f"b{at}-", 200), ONE, f"n{at}")
        for at in range(8):
            await shim.submit("t.c", [f"k{at}"], ONE)
            await shim.let_pass(30, step_s=15)
        assert len(shim.victims()) == 0


async def test_an_ask_under_a_guarantee_of_its_own_frees_what_it_asks_for() -> None:
    """The same tree, but c is guaranteed 8: eight asks, eight victims."""
    queues = {"t": resources(guaranteed=100, max=1000), "t.b": resources(guaranteed=50), "t.c": resources(guaranteed=8)}
    async with living(queues) as shim:
        shim.recreates = True
        await shim.nodes(5, {"f": 300})
        for at in range(5):
            await shim.run("t.b", keys(f"b{at}-", 200), ONE, f"n{at}")
        asks = await shim.submit("t.c", keys("k", 8), ONE)
        await shim.let_pass(5)
        assert set(asks) <= shim.placed.keys()
        await shim.let_pass(60, step_s=15)
        assert len(shim.victims()) == 8


async def test_a_lowered_max_is_not_enforced_by_an_ask() -> None:
    """p uses 1,000 when its max becomes 500: an ask of 1 takes 1 and runs."""
    queues = {"p": resources(max=1000), "p.b": {}, "p.c": resources(guaranteed=10)}
    async with living(queues) as shim:
        await shim.nodes(5, {"f": 300})
        for at in range(5):
            await shim.run("p.b", keys(f"b{at}-", 200), ONE, f"n{at}")
        await shim.client.update_configuration(configuration({**queues, "p": resources(max=500)}))
        (key,) = await shim.submit("p.c", ["k"], ONE)
        await shim.let_pass(60, step_s=5)
        assert len(shim.victims()) == 1
        assert key in shim.placed


@pytest.mark.parametrize(
    ("nodes", "per_node", "count"),
    [
        pytest.param(1, 5, 5, id="five asks on one node"),
        pytest.param(64, 1, 40, id="40 asks on 64 x 1"),
        pytest.param(4, 16, 40, id="40 asks on 4 x 16"),
        pytest.param(1, 64, 40, id="40 asks on 1 x 64"),
        pytest.param(10, 50, 500, id="500 asks on 10 x 50"),
    ],
)
async def test_what_is_owed_is_there_in_two_seconds(nodes: int, per_node: int, count: int) -> None:
    """However the room is spread over nodes; victims leave at once."""
    queues = {"v": {}, "a": resources(guaranteed=count)}
    async with living(queues, cycle={"limit": 1.0}) as shim:
        await shim.nodes(nodes, {"f": per_node})
        for at in range(nodes):
            await shim.run("v", keys(f"v{at}-", per_node), ONE, f"n{at}")
        asks = await shim.submit("a", keys("a", count), ONE)
        await shim.let_pass(MOST_S, step_s=0.1)
        missing = [key for key in asks if key not in shim.placed]
        assert not missing, f"{len(missing)} of {count} are not placed"
        assert len(shim.victims()) == count


class Listener(CallbackHandler):
    """Hears which asks more nodes would help."""

    def __init__(self) -> None:
        self.wanting: set[str] = set()

    async def scheduling_state(self, state: SchedulingState) -> None:
        self.wanting.add(state.key)


@pytest.mark.parametrize("priority", [0, 1000])
@pytest.mark.parametrize("queue", ["own", "shared"])
async def test_the_first_in_line_is_served(queue: str, priority: int) -> None:
    """A full cluster of 16, small tasks come and go, one ask of 6 cores before all of them."""
    listener = Listener()
    async with living({"own": {}, "shared": {}}, listener) as shim:
        await shim.nodes(1, {"f": 16})
        await shim.run("shared", keys("small", 16), ONE, "n0")
        await shim.submit(queue, ["big"], {"f": 6}, priority=priority)
        await shim.submit("shared", keys("next", 40), ONE)
        await shim.let_pass(3)
        explained = await shim.client.explain_ask("big", "default")
        assert explained.node_id == "n0"
        assert "Not enough queue quota" not in [failure.message for failure in explained.failures]
        await until(lambda: "big" in listener.wanting, "word that more nodes would help")
        endings = 0
        while "big" not in shim.placed:
            assert endings < 6, "six endings and not placed"
            await shim.end(f"small{endings:04}")
            await shim.let_pass(1, step_s=1)
            endings += 1
        assert shim.victims() == []


def sliding(times_ms: list[int], interval_s: int) -> int:
    """The most of *times_ms* that lie within any window of *interval_s*."""
    return max((sum(at <= other < at + 1000 * interval_s for other in times_ms) for at in times_ms), default=0)


@asynccontextmanager
async def paced(**preemption: Any) -> AsyncIterator[LivingShim]:
    """Twenty nodes of one core, all of v; a is owed all of them and asks for each."""
    async with living({"v": {}, "a": resources(guaranteed=20)}, **preemption) as shim:
        await shim.nodes(20, ONE)
        for at in range(20):
            await shim.run("v", [f"v{at:02}"], ONE, f"n{at}")
        await shim.submit("a", keys("a", 20), ONE)
        yield shim


async def test_nobody_leaves_within_a_limit_of_nothing() -> None:
    """``limit: 0.0``."""
    async with paced(cycle={"limit": 0.0}) as shim:
        await shim.let_pass(30, step_s=1)
        assert shim.victims() == []


@pytest.mark.parametrize("interval_s", [1, 4])
async def test_the_limit_holds_over_any_window_of_one_interval(interval_s: int) -> None:
    """A quarter of twenty cores: five in any interval, all twenty in four of them."""
    cycle = {"limit": 0.25, "batch": 1, "interval_ms": 1000 * interval_s}
    async with paced(cycle=cycle) as shim:
        await shim.let_pass(6 * interval_s, step_s=interval_s / 10)
        assert sliding(shim.victims_at_ms, interval_s) <= 5
        assert len(shim.victims()) == 20


async def test_the_limit_is_tested_before_each_batch() -> None:
    """With batches of four a round may end three beyond its limit of five, and no further."""
    async with paced(cycle={"limit": 0.25, "batch": 4}) as shim:
        await shim.let_pass(6, step_s=0.1)
        assert sliding(shim.victims_at_ms, 1) <= 8
        assert len(shim.victims()) == 20


async def test_a_guarantee_that_is_not_listed_preempts_nobody() -> None:
    """``policies`` without ``guarantee``."""
    async with paced(policies=["required-node", "quota"]) as shim:
        await shim.let_pass(30, step_s=1)
        assert shim.victims() == []


async def test_a_required_node_that_is_not_listed_preempts_nobody() -> None:
    """``policies`` without ``required-node``: the ask waits until there is room."""
    async with living({"v": {}, "d": {}}, policies=["guarantee"]) as shim:
        await shim.nodes(1, {"f": 4})
        await shim.run("v", keys("v", 4), ONE, "n0")
        # On an ask the notation has nowhere to name the node but by default: n1.
        await shim.client.create_nodes([create("n1", None, f=4)])
        await shim.run("v", keys("w", 4), ONE, "n1")
        await shim.submit("d", ["d"], ONE, required_node=True)
        await shim.let_pass(30, step_s=1)
        assert shim.victims() == []
        await shim.end("w0000")
        assert shim.placed["d"] == "n1"


async def test_a_lowered_max_that_is_not_listed_is_not_enforced() -> None:
    """``policies`` without ``quota``, although its own switch is on."""
    about = {"quotapreemptionenabled": True, "policies": ["required-node", "guarantee"]}
    delay = {"properties": {"quota.preemption.delay": "1s"}}
    async with living({"q": {**resources(max=8), **delay}}, **about) as shim:
        await shim.nodes(1, {"f": 8})
        await shim.run("q", keys("q", 8), ONE, "n0")
        await shim.client.update_configuration(configuration({"q": {**resources(max=4), **delay}}, **about))
        await shim.let_pass(30, step_s=1)
        assert shim.victims() == []


async def test_a_monitor_that_is_not_listed_does_nothing() -> None:
    """``policies`` without ``monitor``, although its own switch is on."""
    monitor = {"enabled": True, "max_wait_ms": 3000, "interval_ms": 1000, "per_round": 1, "natural_factor": 1}
    queues = {"v": resources(guaranteed=4), "a": resources(guaranteed=4)}
    async with living(queues, monitor=monitor, policies=["required-node", "quota"]) as shim:
        await shim.nodes(1, {"f": 8})
        await shim.run("v", keys("v", 8), ONE, "n0")
        await shim.submit("a", keys("a", 4), ONE)
        await shim.let_pass(30, step_s=1)
        assert shim.victims() == []
