"""A simulated cluster for gangs, which sends and hears everything over gRPC, and judges each message of the core.

It replaces placeholders by real tasks, as a shim does, and ends victims at once or when a test lets them end. Whatever
the core sends, no Hard gang may run in part by a decision of the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_client import Allocated, Ask, AskRejected, CallbackHandler, Released, ShimClient, Update
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import Core, create, running_core

CORE: Final = 1_000
Sizes = Mapping[str, int]


class GangCluster:
    """Nodes, applications and tasks of one shim. Each method returns when the core has nothing more to say."""

    def __init__(self, core: Core, client: ShimClient) -> None:
        self.core = core
        self.client = client
        self.nodes: dict[str, str] = {}
        """The node of each allocation, placeholders included."""
        self.batches: list[list[str]] = []
        """The keys of the allocations and releases of each message, with ``-`` before those that are to end."""
        self.ended: list[str] = []
        """The keys of the victims, in the order in which they were asked to end."""
        self.slow = False
        """Tells whether victims go on until :meth:`let_end` is called."""
        self._asks: dict[str, Ask] = {}
        self._gangs: dict[str, dict[str, int]] = {}
        """By Hard gang, the minimum of each task group."""
        self._leaving: list[Released] = []
        self._replaced: dict[tuple[str, str], list[str]] = {}
        """By application and task group, the placeholders whose real tasks have not been placed yet."""

    async def create_nodes(self, nodes: Mapping[str, Sizes]) -> None:
        await self.client.create_nodes([create(name, None, **size) for name, size in nodes.items()])
        await self.settle()

    async def lose_node(self, name: str) -> None:
        await self.client.send_nodes([si.NodeInfo(nodeID=name, action=si.NodeInfo.DECOMISSION)])
        await self.settle()

    async def submit_gang(self, name: str, queue: str, groups: Mapping[str, tuple[int, Sizes]]) -> None:
        """Submits a Hard gang with *groups*: how many members each has, and of which size. All may preempt."""
        total: dict[str, int] = {}
        asks = []
        for group, (count, size) in groups.items():
            for kind, amount in size.items():
                total[kind] = total.get(kind, 0) + count * amount
            asks += [
                Ask(
                    f"{name}-{group}{number}", name, dict(size), task_group=group, placeholder=True,
                    allow_preempt_other=True,
                )
                for number in range(count)
            ]  # fmt: skip
        self._gangs[name] = {group: count for group, (count, _) in groups.items()}
        placeholders = si.Resource(resources={kind: si.Quantity(value=amount) for kind, amount in total.items()})
        await self._add(name, queue, placeholderAsk=placeholders, gangSchedulingStyle="Hard")
        await self._ask(asks)

    async def submit_tasks(self, name: str, queue: str, count: int, size: Sizes) -> None:
        """Submits an application whose tasks need not run together."""
        await self._add(name, queue)
        await self._ask(Ask(f"{name}-{at}", name, dict(size), allow_preempt_other=True) for at in range(count))

    async def let_end(self, *keys: str) -> None:
        """Ends the victims *keys*, or all of them."""
        for update in [u for u in self._leaving if not keys or u.key in keys]:
            self._leaving.remove(update)
            await self._end(update)
        await self.settle()

    async def wait(self, seconds: int) -> None:
        """Lets time pass in about ten steps, with all questions answered in between."""
        step = max(1, seconds // 10)
        for _ in range(0, seconds, step):
            self.core.clock.advance(step * SECOND_NS)
            await self.settle()

    async def settle(self) -> None:
        """Returns when everything sent has arrived, and nothing more comes while the clock stands still."""
        heard = -1
        while heard != len(self.batches):
            heard = len(self.batches)
            await self.client.flush()
            # Its answer comes behind everything that the core has sent to this client, over the same connection.
            await self.client.status()
            await self.core.settle()

    def running(self, name: str) -> int:
        """Returns how many members of *name* hold room, as placeholders or as tasks."""
        return sum(self._asks[key].application_id == name for key in self.nodes)

    async def explain(self, key: str) -> str:
        """Returns the text of all that keeps the ask *key* waiting, and of what preemption could do."""
        report = (await self.client.explain(key)).ask
        lines = [f"{blocker.kind} {blocker.name}: {blocker.detail}" for blocker in report.blockers]
        return "\n".join([*lines, str(report.preemption)])

    async def listen(self) -> None:
        async for batch in self.client.update_batches():
            told = [self._note(update) for update in batch]
            if keys := [key for key in told if key]:
                self.batches.append(keys)
            self._judge(batch)
            for update in batch:
                await self._answer(update)

    def _note(self, update: Update) -> str:
        match update:
            case Allocated(key=key, node_id=node):
                self.nodes[key] = node
                replaced = self._replaced.get(self._group_of(key))
                if replaced and not self._asks[key].placeholder:
                    self.nodes.pop(replaced.pop(0), None)
                return key
            case Released(key=key, termination=si.PREEMPTED_BY_SCHEDULER):
                self.ended.append(key)
                self._leaving.append(update)
                return f"-{key}"
            case Released(key=key, termination=si.PLACEHOLDER_REPLACED):
                # It counts until the real task is there.
                self._replaced.setdefault(self._group_of(key), []).append(key)
            case Released(key=key, termination=termination):
                assert termination == si.STOPPED_BY_RM, update
                self.nodes.pop(key, None)
            case AskRejected(key=key, reason=reason):
                raise AssertionError(f"{key} was refused: {reason}")
        return ""

    def _judge(self, batch: Iterable[Update]) -> None:
        """After a message that starts or ends members, a gang has none or its minimum left that is to stay."""
        touched = {
            u.application_id
            for u in batch
            if (isinstance(u, Allocated) and self._asks[u.key].placeholder)
            or (isinstance(u, Released) and u.termination == si.PREEMPTED_BY_SCHEDULER)
        }
        leaving = {update.key for update in self._leaving}
        for name in touched & self._gangs.keys():
            stay = [
                self._asks[key] for key in self.nodes if key not in leaving and self._asks[key].application_id == name
            ]
            for group, least in self._gangs[name].items():
                here = sum(ask.task_group == group for ask in stay)
                assert not stay or here >= least, f"{name} has {here} of {least} in {group}"

    def _group_of(self, key: str) -> tuple[str, str]:
        ask = self._asks[key]
        return ask.application_id, ask.task_group

    async def _answer(self, update: Update) -> None:
        match update:
            case Allocated(key=key, application_id=name) if self._asks[key].placeholder:
                ask = self._asks[key]
                await self._send([Ask(f"task-{key}", name, ask.resources, task_group=ask.task_group)])
            case Released(key=key, termination=si.PREEMPTED_BY_SCHEDULER) if not self.slow:
                self._leaving.remove(update)
                await self._end(update)
            case Released(key=key, application_id=name, termination=si.PLACEHOLDER_REPLACED):
                await self.client.release([self.client.release_of(name, key, si.PLACEHOLDER_REPLACED)])

    async def _end(self, update: Released) -> None:
        if self.nodes.pop(update.key, None) is not None:
            release = self.client.release_of(update.application_id, update.key, update.termination)
            await self.client.release([release])

    async def _add(self, name: str, queue: str, **fields: Any) -> None:
        user = si.UserGroupInformation(user="ann", groups=["staff"])
        await self.client.add_applications(
            [si.AddApplicationRequest(applicationID=name, queueName=queue, ugi=user, **fields)]
        )

    async def _ask(self, asks: Iterable[Ask]) -> None:
        await self._send(asks)
        await self.settle()

    async def _send(self, asks: Iterable[Ask]) -> None:
        listed = list(asks)
        self._asks.update((ask.key, ask) for ask in listed)
        await self.client.submit_asks(listed)


@asynccontextmanager
async def running_cluster(config: str, handler: CallbackHandler | None = None) -> AsyncIterator[GangCluster]:
    """A cluster that is registered with a core of its own. At the end the core has broken no law, and its books add
    up."""
    async with running_core() as core, ShimClient(core.address, "rm-1") as client:
        await client.register(config=config)
        cluster = GangCluster(core, client)
        if handler is not None:
            await client.attach_callbacks(handler)
        listening = asyncio.create_task(cluster.listen())
        try:
            yield cluster
            assert not listening.done(), listening
            (status,) = (await client.status(audit=True)).partitions
            assert (status.law_violations, status.invariant_violations) == (0, 0)
        finally:
            listening.cancel()
            (failed,) = await asyncio.gather(listening, return_exceptions=True)
            if isinstance(failed, AssertionError):
                raise failed
