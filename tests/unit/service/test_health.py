"""The checks that a core makes of itself (rest.md 7, cases 60 to 62)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog

from kornel.core.domain.commands import Command
from kornel.core.domain.effects import NodeRejected
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.managers.health import AT_ONCE, DEFAULT_INTERVAL_NS, HealthKeeper, check_interval_ns
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.reader import Reader
from tests.scenarios.stage import Stage


class Site:
    """A played partition with a keeper beside it."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.settings: dict[str, str] = {}
        self.clock = ManualClock()
        self.keeper = HealthKeeper(
            Reader(self.stage.engine, lambda: self.stage.now_ns).partitions,
            lambda: self.settings,
            clock=self.clock,
            logger=structlog.get_logger(),
        )
        engine = self.stage.engine
        apply = engine.apply

        def observed(command: Command, now_ns: int) -> list[object]:
            effects = apply(command, now_ns)
            self.keeper.observe(effects)
            return list(effects)

        engine.apply = observed  # type: ignore[method-assign,assignment]
        self.stage.play(["node n1", "app app1", "ask k", "ask waits vcore=90000", "foreign f node=n1 vcore=1", "cycle"])

    @property
    def state(self) -> PartitionState:
        return self.stage.state

    async def failed(self) -> list[int]:
        """Numbers of the checks that fail now."""
        report = await self.keeper.check()
        assert report is self.keeper.report
        found = [number for number, check in enumerate(report.checks) if not check.succeeded]
        assert report.healthy is not bool({*found} - {10}), "the last check only warns"
        return found

    async def runs(self) -> int:
        """When the last check was, after everything that is due."""
        for _ in range(5):
            await asyncio.sleep(0)
        assert self.keeper.report is not None
        return self.keeper.report.at_ns


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    yield site
    await site.keeper.stop()


async def test_case_60_a_healthy_core(site: Site) -> None:
    """Names and their order are what clients look for."""
    assert site.keeper.report is None
    report = await site.keeper.check()
    assert [check.name for check in report.checks] == [
        "Scheduling errors",
        "Failed nodes",
        "Negative resources",
        "Negative resources",
        "Consistency of data",
        "Consistency of data",
        "Reservation check",
        "Orphan allocation on node check",
        "Orphan allocation on app check",
        "Resource manager check",
        "Claim check",
    ]
    assert report.healthy


async def test_case_60_an_update_for_an_unknown_application(site: Site) -> None:
    """It counts for ten minutes."""
    site.stage.play(["ask x app=nobody"])
    assert await site.failed() == [0]
    site.clock.advance(599 * SECOND_NS)
    assert await site.failed() == [0]
    site.clock.advance(2 * SECOND_NS)
    assert await site.failed() == []


async def test_a_node_of_an_unknown_partition(site: Site) -> None:
    site.keeper.observe(
        [NodeRejected("n9", "partition-not-found: no partition 'x'"), NodeRejected("n1", "node-exists")]
    )
    assert await site.failed() == [1]
    assert site.keeper.report is not None
    assert site.keeper.report.checks[1].diagnosis == "1 failed node"


async def test_a_claim_without_progress(site: Site) -> None:
    """An ask that must run on a full node, for which nobody leaves, is told of after ten minutes."""
    site.stage.play(["node n2 vcore=10", "app app2", "ask first app=app2 vcore=10 required=n2", "cycle"])
    site.stage.play(["ask must app=app2 vcore=10 required=n2", "cycle"])
    site.stage.play(["cycles until=599s every=100s"])
    assert await site.failed() == []
    site.stage.play(["cycles until=700s every=100s"])
    assert await site.failed() == [10]


async def test_a_claim_below_a_limit_without_progress(site: Site) -> None:
    """An ask of 3 saves what its queue has left, and keeps an ask of 1 back."""
    site.stage.play(["queue root.q max={vcore=3}", "update-config"])
    site.stage.play(["node n2 vcore=10", "app q queue=root.q", "ask r app=q vcore=2"])
    site.stage.play(["cycle", "ask big app=q vcore=3", "cycles until=4s every=1s", "ask small app=q vcore=1"])
    site.stage.play(["cycles until=6m every=10s"])
    assert await site.failed() == []
    site.stage.play(["cycles until=16m every=10s"])
    assert await site.failed() == [10]
    assert site.keeper.report is not None
    assert site.keeper.report.checks[10].diagnosis == "big on queue root.q (age)"


async def test_an_ask_that_loses_freed_room_again_and_again(site: Site) -> None:
    """A foreign pod is on each node before the ask for which a task has left there."""
    site.stage.play(["queue root.v", "queue root.q guaranteed={f=4} preemption.delay=1s", "update-config"])
    for number in range(4):
        site.stage.play([f"node m{number} f=4", f"run v{number} queue=root.v node=m{number} f=4"])
    site.stage.play(["ask loser queue=root.q f=4 other=yes", "cycle at=2s"])
    for number, until in enumerate(("20s", "1m", "3m")):
        assert await site.failed() == []
        leaves = f"release v{number} app=v type=PREEMPTED_BY_SCHEDULER"
        site.stage.play([leaves, f"+ foreign x{number} node=m{number} f=4", f"cycles until={until} every=1s"])
    assert await site.failed() == [10]
    assert site.keeper.report is not None
    assert site.keeper.report.checks[10].diagnosis == "loser (what others left for it was lost 3 times)"
    site.stage.play(["release loser app=q"])
    assert await site.failed() == []


async def test_others_have_their_turn_while_many_claims_are_looked_at(site: Site) -> None:
    async def count_turns() -> int:
        checking, turns = asyncio.ensure_future(site.keeper.check()), 0
        while not checking.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    few = await count_turns()
    site.stage.play(["node n2 vcore=10", "app app2", "ask first app=app2 vcore=10 required=n2", "cycle"])
    site.stage.play([f"ask must{number} app=app2 vcore=9 required=n2" for number in range(200)])
    site.stage.play(["cycle", "cycle"])
    assert await count_turns() >= few + 200 // AT_ONCE


async def test_case_61_an_allocation_whose_application_is_unknown(site: Site) -> None:
    del site.state.applications["app1"]
    assert await site.failed() == [7]


async def test_case_61_an_allocation_that_is_missing_on_its_node(site: Site) -> None:
    site.state.nodes["n1"].allocations.clear()
    assert await site.failed() == [8]


async def test_an_allocation_on_a_node_that_is_gone(site: Site) -> None:
    site.state.root.max.clear()
    del site.state.nodes["n1"]
    assert await site.failed() == [8]


async def test_books_that_do_not_add_up(site: Site) -> None:
    """Each check looks at what it names."""
    node, root = site.state.nodes["n1"], site.state.root
    node.free[0] -= 1
    assert await site.failed() == [5]
    node.free[0] += 1
    node.capacity[0] += 1
    assert await site.failed() == [4, 5]
    node.capacity[0] -= 1
    node.occupied[0] -= 10_000
    assert await site.failed() == [3, 5]
    node.occupied[0] += 10_000
    root.used[0] -= 10_000
    assert await site.failed() == [2]


@pytest.mark.parametrize(
    ("step", "short"),
    [
        ("resize n1 vcore=5 memory=10", "996m"),
        ("foreign f node=n1 vcore=2000000", "1991"),
        ("resize-ask k vcore=9000000 node=n1", "8990001m"),
        ("run more app=app1 node=n1 vcore=99999999", "99991"),
    ],
)
async def test_a_node_that_carries_more_than_it_has(site: Site, step: str, short: str) -> None:
    """The check names node and amount, whatever made it so; who asks anew hears it at once."""
    await site.keeper.check()
    site.stage.play([step])
    assert site.keeper.report is not None
    assert site.keeper.report.healthy
    found = (await site.keeper.check()).checks[3]
    assert (found.succeeded, found.diagnosis) == (False, f"n1: available vcore=-{short}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, DEFAULT_INTERVAL_NS), ("abc", DEFAULT_INTERVAL_NS), ("0", None), ("-5s", None), ("1s", SECOND_NS)],
)
def test_case_62_how_often(text: str | None, expected: int | None) -> None:
    assert check_interval_ns({} if text is None else {"health.checkInterval": text}) == expected


async def test_case_62_a_changed_interval_is_followed_without_a_restart(site: Site) -> None:
    """The first check comes at once; ``0`` ends them, and the last result stays."""
    site.keeper.start()
    began_ns = await site.runs()
    site.clock.advance(29 * SECOND_NS)
    assert await site.runs() == began_ns
    site.clock.advance(SECOND_NS)
    assert await site.runs() == began_ns + 30 * SECOND_NS
    site.settings["health.checkInterval"] = "1s"
    site.keeper.settings_changed()
    for second in (31, 32):
        site.clock.advance(SECOND_NS)
        assert await site.runs() == began_ns + second * SECOND_NS
    site.settings["health.checkInterval"] = "0"
    site.keeper.settings_changed()
    site.clock.advance(100 * SECOND_NS)
    assert await site.runs() == began_ns + 32 * SECOND_NS


async def test_time_that_passes_costs_no_more_than_its_checks(site: Site) -> None:
    """A clock that is moved by hours stops where a check is due, not each second; without checks once an hour."""
    site.keeper.start()
    stops = []
    await site.runs()
    for _ in range(4):
        due_ns = site.clock.next_call_ns()
        assert due_ns is not None
        stops.append((due_ns - site.clock.now_ns()) // SECOND_NS)
        site.clock.advance(due_ns - site.clock.now_ns())
        await site.runs()
    assert stops == [30, 30, 30, 30]
    site.settings["health.checkInterval"] = "0"
    site.keeper.settings_changed()
    assert site.clock.next_call_ns() == site.clock.now_ns() + 3600 * SECOND_NS
