"""Scenarios of claims over gRPC, with a standby that takes over in the middle: the shim hears the same at the same
time, and who holds room, since when, and who has lapsed, is as if nobody had taken over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    Command,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, Effect, Released
from kornel.core.service.wire.scheduler_wire import REQUIRED_NODE_TAG
from kornel.core.state.partition_state import PartitionState
from kornel.shim_client import Allocated as Placed
from kornel.shim_client import Released as Told
from kornel.shim_client import ShimClient, StreamReopened
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import Core, resource
from tests.e2e.test_standing import followed, hand_over, sharing_core
from tests.history_databases import postgres, postgres_server
from tests.postgres import Postgres
from tests.scenarios.language import RM, Line, load
from tests.scenarios.stage import Stage
from tests.waiting import until

__all__ = ["postgres", "postgres_server"]

SCENARIOS: Final = Path(__file__).parents[1] / "scenarios"
PARTITION: Final = f"[{RM}]default"
SCENES: Final = [
    ("claims-limits", "what is firmly claimed below a max is used there: whoever finds too little beside it saves the"),
    ("claims-firm", "a claim passes with its place among the claims of the node"),
    ("claims-racks", "an ask that a rack can hold saves below the max of its queue, and is placed within a few ends"),
    ("claims-racks", "a member that is owed its guarantee has somebody leave in the rack of its group"),
    ("claims", "the more important ask of an application saves first, also where applications have no priorities"),
    ("preemption/min-runtime", "two of three are needed, and one of them has a longer time of its own"),
    ("preemption/within", "in a leaf that holds just its guarantee, too"),
    ("claims", "whoever has lapsed saves room again behind one who came later, and has waited since before that"),
]
"""The files of scenarios, and how their titles begin."""
PARTS: Final = 2
"""Where one of the longer tests has the standby take over: after one, two and so on of so many parts and one more."""
STREAMS: Final = 3
"""The number of streams of a shim."""
BUDGET: Final = 1_000
"""The decisions of a slice, as a cycle of a scenario."""
Standing = dict[str, tuple[str, int, int, int]]
"""By key of a waiting ask: the node on which it holds room, or the limits below which it saves some, since when, since
when it waits, and when its last claim lapsed, in ns since the start."""


class Script(Stage):
    """A stage that decides as soon as it may, as a served core does, and notes what a shim sends and when, and what it
    should hear."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[int, Command | None]] = []
        """The requests; nothing where only time passes."""
        self.heard: list[tuple[int, str, str]] = []
        """When, which task, and the node on which it runs from now on; empty: it has to leave."""

    def _apply(self, command: Command) -> list[str]:
        self.sent.append((self.now_ns, command))
        return [*super()._apply(command), *super()._run_slices(BUDGET)]

    def _application_of(self, line: Line) -> str:
        known = set(self._silent)
        application = super()._application_of(line)
        if application in self._silent - known:
            spec = ApplicationSpec(application, line.options["queue"], PARTITION, user="user")
            self.sent.append((self.now_ns, UpdateApplications(RM, (spec,))))
        return application

    def _run_slices(self, budget: int, *, once: bool = False) -> list[str]:
        self.sent.append((self.now_ns, None))
        return super()._run_slices(budget, once=once)

    def _describe(self, decided: Sequence[Effect]) -> list[str]:
        for effect in decided:
            match effect:
                case Allocated(spec, node, _):
                    self.heard.append((self.now_ns, spec.key, node))
                case Released(_, _, key, TerminationType.PREEMPTED_BY_SCHEDULER, _):
                    self.heard.append((self.now_ns, key, ""))
        return super()._describe(decided)


class Player:
    """A shim that sends what a script says to whoever leads, at the same times, and notes what it hears."""

    def __init__(self, leader: Core, standby: Core) -> None:
        self.leader, self.standby = leader, standby
        self.client = ShimClient(f"{leader.address},{standby.address}", RM)
        self.start_ns = leader.clock.now_ns()
        self.heard: list[tuple[int, str, str]] = []
        self.listening: asyncio.Task[None] | None = None
        self.reopened = 0

    @property
    def state(self) -> PartitionState:
        """The books of the core that leads."""
        journal = self.leader.server.part.journal
        assert journal is not None
        state = journal.first.engine.partition(PARTITION)
        assert state is not None
        return state

    async def listen(self) -> None:
        """Notes what the core says."""
        async for update in self.client.updates():
            now_ns = self.leader.clock.now_ns() - self.start_ns
            match update:
                case StreamReopened():
                    self.reopened += 1
                case Placed():
                    self.heard.append((now_ns, update.key, update.node_id))
                case Told(termination=si.PREEMPTED_BY_SCHEDULER):
                    self.heard.append((now_ns, update.key, ""))

    async def play(self, sent: Sequence[tuple[int, Command | None]]) -> None:
        """Sends, and waits each time until the core has taken it and has nothing more to do."""
        for at_ns, command in sent:
            self.leader.clock.advance(max(0, self.start_ns + at_ns - self.leader.clock.now_ns()))
            match command:
                case RegisterManager():
                    await self.client.register(config=command.config)
                    self.listening = asyncio.create_task(self.listen())
                case UpdateNodes():
                    await self._send_nodes(command.nodes)
                case UpdateApplications():
                    await self.client.add_applications(
                        [
                            si.AddApplicationRequest(
                                applicationID=added.application_id,
                                queueName=added.queue,
                                partitionName="default",
                                ugi=si.UserGroupInformation(user=added.user),
                            )
                            for added in command.add
                        ]
                    )
                case UpdateAllocations():
                    await self._send_allocations(command)
            await self.leader.settle()
            await self.client.status()  # Its answer comes behind everything that the core has sent to this client.

    async def _send_nodes(self, nodes: Sequence[NodeSpec]) -> None:
        told = [
            si.NodeInfo(
                nodeID=node.node_id,
                action=si.NodeInfo.ActionFromRM.Name(node.action),
                attributes=dict(node.attributes),
                schedulableResource=None if node.capacity is None else resource(**node.capacity),
            )
            for node in nodes
        ]
        assert all(node.action == NodeAction.CREATE for node in nodes), "scenes that change nodes are not played here"
        await self.client.create_nodes(told)

    async def _send_allocations(self, command: UpdateAllocations) -> None:
        await self.client.report_allocations([message_of(spec) for spec in command.allocations])
        await self.client.release(
            si.AllocationRelease(
                partitionName="default",
                applicationID=gone.application_id,
                allocationKey=gone.key,
                terminationType=si.TerminationType.Name(gone.termination),
            )
            for gone in (*command.releases, *command.ask_releases)
        )

        def taken() -> bool:
            known, gone = self.state.requests, (*command.releases, *command.ask_releases)
            came = [spec.key for spec in command.allocations]
            return known.keys() >= {*came} and not any(is_there(self.state, each) for each in gone)

        await until(taken, f"{command} to arrive")

    async def fail_over(self) -> None:
        """Has the standby take over."""
        await followed(self.standby, self.leader)
        await hand_over(self.leader)
        await until(lambda: self.standby.server.standing.leads, "the standby to lead")
        self.leader, self.standby = self.standby, self.leader
        await until(lambda: self.reopened == STREAMS, "the shim to have found the core that leads")


def is_there(state: PartitionState, gone: ReleaseSpec) -> bool:
    """Tells whether the allocation or ask has not ended yet."""
    return gone.key in state.requests


def message_of(spec: AllocationSpec) -> si.Allocation:
    """Returns *spec* as a shim sends it."""
    return si.Allocation(
        allocationKey=spec.key,
        applicationID=spec.application_id,
        partitionName="default",
        resourcePerAlloc=resource(**spec.resources),
        priority=spec.priority,
        nodeID=spec.node_id,
        preemptionPolicy=si.PreemptionPolicy(
            allowPreemptSelf=spec.allow_preempt_self, allowPreemptOther=spec.allow_preempt_other
        ),
        allocationTags={**dict(spec.tags), **({REQUIRED_NODE_TAG: spec.required_node} if spec.required_node else {})},
    )


def list_standing(state: PartitionState, start_ns: int) -> Standing:
    """Returns who waits, with what is claimed for each."""
    found: Standing = {}
    for ask in state.requests.values():
        if ask.pending:
            claim, below = ask.reservation, ask.limit_claim
            where = f"{claim.node.node_id if claim else ''} {len(below.limits) if below else ''}"
            made_ns = claim.made_ns - start_ns if claim else 0
            found[ask.key] = where, made_ns, ask.created_ns - start_ns, max(0, ask.lapsed_ns - start_ns)
    return found


@asynccontextmanager
async def playing(postgres: Postgres) -> AsyncIterator[Player]:
    """A shim of two cores."""
    async with sharing_core(postgres) as leader, sharing_core(postgres) as standby:
        player = Player(leader, standby)
        async with player.client:
            try:
                yield player
            finally:
                assert player.listening is not None
                player.listening.cancel()
                await asyncio.gather(player.listening, return_exceptions=True)


@pytest.mark.parametrize(
    ("file", "title", "part"),
    [
        pytest.param(*scene, part, id=f"{number}-{part}", marks=[pytest.mark.long] * (number > 0 or part > 1))
        for number, scene in enumerate(SCENES)
        for part in range(1, PARTS + 1)
    ],
)
async def test_a_takeover_changes_no_claim(postgres: Postgres, file: str, title: str, part: int) -> None:
    """With a journal holders, ages and lapses survive (issue of claims, rule 10)."""
    (scene,) = [scene for scene in load(SCENARIOS / f"{file}.txt") if scene.title.startswith(title)]
    script = Script()
    for block in scene.blocks:
        script.play(block.inputs)
    assert script.heard
    middle = len(script.sent) * part // (PARTS + 1)
    async with playing(postgres) as player:
        await player.play(script.sent[:middle])
        before = list_standing(player.state, player.start_ns)
        await player.fail_over()
        assert list_standing(player.state, player.start_ns) == before
        await player.play(script.sent[middle:])
        assert player.heard == script.heard
        assert list_standing(player.state, player.start_ns) == list_standing(script.state, 0)
