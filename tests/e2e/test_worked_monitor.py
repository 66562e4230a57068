"""A few of the worked amounts of the periodic policy (preemption.md J.5), over real gRPC.

A shim hears the notices of the first round, loses just that at the deadline, confirms, and has its asks placed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from kornel.shim_client import CallbackHandler, PreemptionNotice
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import create, resource
from tests.e2e.preemption_wire import Shim, choose, running_shim
from tests.monitor_notation import MonitorCase, parse
from tests.scenarios.preemption.monitor_stage import configuration
from tests.scenarios.preemption.test_monitor_cases import described, populate
from tests.waiting import until

HERE: Final = Path(__file__).parents[1] / "scenarios" / "preemption"
CASES: Final = parse(HERE.joinpath("monitor.cases").read_text(encoding="utf-8"))


class Listener(CallbackHandler):
    def __init__(self) -> None:
        self.notices: list[PreemptionNotice] = []

    async def preemption_notice(self, notice: PreemptionNotice) -> None:
        self.notices.append(notice)

    def announced(self) -> list[tuple[str, str]]:
        """Application and key of all that notices named."""
        return [(notice.application_id, key) for notice in self.notices for key in (*notice.strict, *notice.at_risk)]


class Cluster:
    """What a case has in its cluster, as messages in the order in which they are to be sent."""

    def __init__(self) -> None:
        self.nodes: list[si.NodeInfo] = []
        self.applications: list[tuple[str, str]] = []
        self.running: list[si.Allocation] = []
        self.asks: list[si.Allocation] = []

    def node(self, name: str, capacity: dict[str, int], *, draining: bool = False) -> None:
        node = create(name, None, **capacity)
        if draining:
            node.action = si.NodeInfo.CREATE_DRAIN
        self.nodes.append(node)

    def application(self, name: str, queue: str) -> None:
        self.applications.append((name, queue))

    def submit(self, application: str, keys: list[str], size: dict[str, int], **details: Any) -> None:
        node_id, priority = details.get("node_id", ""), details.get("priority", 0)
        target = self.running if node_id else self.asks
        for key in keys:
            target.append(
                si.Allocation(
                    allocationKey=key,
                    applicationID=application,
                    partitionName="default",
                    resourcePerAlloc=resource(**size),
                    nodeID=node_id,
                    priority=priority,
                    preemptionPolicy=si.PreemptionPolicy(allowPreemptSelf=True, allowPreemptOther=True),
                    allocationTags={"creationTime": str(1 + len(self.running) + len(self.asks))},
                )
            )

    async def set_up(self, shim: Shim) -> None:
        await shim.client.create_nodes(self.nodes)
        await shim.add_applications(self.applications)
        await shim.report(self.running)
        await shim.client.report_allocations(self.asks)
        await shim.core.settle()


@pytest.mark.parametrize("case", choose(CASES, "J-Y9", "J-Y17", "J-Y26", "J-Y42-fence"))
async def test_monitor(case: MonitorCase) -> None:
    """Notices name as much of each leaf as the case says; just those leave at the deadline; asks get their room."""
    listener, cluster = Listener(), Cluster()
    populate(cluster, case)
    async with running_shim(configuration(described(case), **case.settings), listener) as shim:
        await cluster.set_up(shim)
        await shim.pass_seconds(5)
        announced = listener.announced()
        by_leaf = Counter(application.rpartition(".")[2] for application, _ in announced)
        got = {name: tuple(count * amount for amount in case.size) for name, count in by_leaf.items()}
        if case.settings.get("observe_only"):
            assert got == {}
        elif case.expected is not None:
            assert got == case.expected
        assert not got.keys() & set(case.spared)
        assert shim.victims() == []

        await shim.pass_seconds(5)
        await shim.pass_seconds(5)
        named = sorted(key for _, key in announced)
        if case.settings.get("balance"):
            assert set(shim.victims()) <= {key for _, key in listener.announced()}
        else:
            await shim.lost(len(named))
            assert sorted(shim.victims()) == named

        asks = {ask.allocationKey for ask in cluster.asks}
        assert {shim.placed[key] for key in asks & shim.placed.keys()} <= {"free"}
        asks -= shim.placed.keys()
        await shim.confirm()
        left = len(shim.released)
        await until(lambda: len(asks & shim.placed.keys()) >= min(left, len(asks)), "asks to be placed")
        assert {shim.placed[key] for key in asks & shim.placed.keys()} <= {"full"}
