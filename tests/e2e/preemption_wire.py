"""Worked preemption cases as a shim's messages, and a shim that sends them and keeps what comes back.

Time is the core's manual clock. Whatever a case does not say is as in ``tests/scenarios/preemption``: one application a
queue, asks that may preempt, creation times long past, so that no delay stands in the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_client import Allocated, AskRejected, CallbackAttachment, CallbackHandler, Released, ShimClient
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import Core, create, resource, running_core
from tests.preemption_notation import Case, TaskCase
from tests.waiting import until

REQUIRED_NODE_TAG: Final = "yunikorn.apache.org/requiredNode"


class Shim:
    """A registered client. ``released``, ``placed``, ``rejected``: what the core said, in order."""

    def __init__(self, core: Core, client: ShimClient) -> None:
        self.core = core
        self.client = client
        self.released: list[Released] = []
        self.placed: dict[str, str] = {}
        """Node by key, reported allocations included."""
        self.rejected: list[str] = []
        self.attachment: CallbackAttachment | None = None
        """That of the handler, if there is one."""
        self._applications: set[str] = set()
        self._confirmed = 0

    def victims(self) -> list[str]:
        """Keys that the core told to leave; fails if one is to leave for any other reason than preemption."""
        assert all(update.termination == si.PREEMPTED_BY_SCHEDULER for update in self.released), self.released
        return [update.key for update in self.released]

    async def listen(self) -> None:
        async for update in self.client.updates():
            match update:
                case Released():
                    self.released.append(update)
                case Allocated():
                    self.placed[update.key] = update.node_id
                case AskRejected():
                    self.rejected.append(update.key)

    async def set_up(self, case: Case) -> None:
        """Report *case*'s nodes and what runs on them."""
        await self.client.create_nodes([create(name, None, **capacity) for name, capacity in case.nodes])
        await self.report([allocation(task) for task in case.running])

    async def add_applications(self, applications: Iterable[tuple[str, str]]) -> None:
        """Applications and their queues below root; those known already are left out."""
        new = {application: queue for application, queue in applications if application not in self._applications}
        self._applications.update(new)
        added = [
            si.AddApplicationRequest(
                applicationID=application,
                queueName=f"root.{queue}",
                partitionName="default",
                ugi=si.UserGroupInformation(user="tester"),
                tags={"application.creationtime": str(len(self._applications))},
            )
            for application, queue in new.items()
        ]
        if added:
            await self.client.add_applications(added)

    async def report(self, running: Sequence[si.Allocation]) -> None:
        """Report allocations and wait until the core has taken all of them."""
        await self.add_applications((task.applicationID, task.applicationID.removeprefix("app-")) for task in running)
        await self.client.report_allocations(running)
        await until(lambda: all(task.allocationKey in self.placed for task in running), "reported allocations")

    async def ask(self, task: TaskCase) -> None:
        message = allocation(task)
        await self.add_applications([(message.applicationID, task.queue)])
        await self.client.report_allocations([message])

    async def lost(self, count: int) -> None:
        """Return once the core has told that many to leave in all."""
        await until(lambda: len(self.released) >= count, f"{count} victims")

    async def confirm(self) -> None:
        """All victims told to leave since the last time have left."""
        left = [u for u in self.released[self._confirmed :] if u.termination == si.PREEMPTED_BY_SCHEDULER]
        self._confirmed = len(self.released)
        await self.client.release(
            self.client.release_of(update.application_id, update.key, si.PREEMPTED_BY_SCHEDULER) for update in left
        )

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass at once, and what comes of it happen. What was sent before has to have arrived."""
        self.core.clock.advance(round(seconds * SECOND_NS))
        await self.core.settle()
        # Its answer comes behind everything that the core has sent to this client, over the same connection.
        await self.client.status()
        await self.core.step()


@asynccontextmanager
async def running_shim(config: str, handler: CallbackHandler | None = None, **settings: Any) -> AsyncIterator[Shim]:
    """A shim registered with *config*, and *handler* attached if there is one; *settings* of the core."""
    async with running_core(**settings) as core, ShimClient(core.address, "rm-1") as client:
        await client.register(config=config)
        shim = Shim(core, client)
        if handler is not None:
            shim.attachment = await client.attach_callbacks(handler)
        listening = asyncio.create_task(shim.listen())
        try:
            yield shim
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def allocation(task: TaskCase) -> si.Allocation:
    """A running task, or with no node an ask."""
    tags = {"creationTime": str(task.tick)}
    if task.required_node:
        tags[REQUIRED_NODE_TAG] = task.node or "n1"
    return si.Allocation(
        allocationKey=task.key,
        applicationID=f"app-{task.queue}",
        partitionName="default",
        resourcePerAlloc=resource(**task.amounts),
        priority=task.priority,
        nodeID=task.node,
        originator=task.originator,
        preemptionPolicy=si.PreemptionPolicy(allowPreemptSelf=not task.opted_out, allowPreemptOther=True),
        allocationTags=tags,
    )
