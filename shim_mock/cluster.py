"""Connects the model of a cluster with a core over gRPC.

What the model collects is sent as soon as the connection takes it. If a core has forgotten the cluster, everything is
reported again. The methods without ``await`` run in the event loop without waiting.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Final

from kornel.shim_client import (
    Allocated,
    AskRejected,
    ShimClient,
    ShimClientError,
    StreamReopened,
    Update,
)
from kornel.shim_client.asks import encode_ask
from kornel.shim_mock.clock import SimulatedClock
from kornel.shim_mock.model.cluster import ClusterModel, Messages, describe_application
from kornel.shim_mock.model.lifecycle import HOLDING, TaskEvent, TaskState, next_state
from kornel.shim_mock.model.tasks import Task
from kornel.shim_mock.registration import Registration
from kornel.shim_mock.scenario import Scenario
from kornel.si.v1 import si_pb2 as si

MOVED: Final = 3
"""The number of tasks that end, and are asked for again, in each second of a demonstration that goes on."""

DEVICES_TAG: Final = "kornel.gpu.devices"


class SimulatedCluster(ClusterModel):
    """A model whose messages go to the core of *client*, which has to be registered before anything is sent.

    Without *registration*, the cluster never registers again.
    """

    def __init__(
        self,
        scenario: Scenario,
        client: ShimClient,
        clock: SimulatedClock,
        registration: Registration | None = None,
    ) -> None:
        self._wake = asyncio.Event()
        super().__init__(scenario, clock, self._wake.set)
        self.registration = registration or Registration(client, scenario.config)
        self._client = client
        self._unconfirmed: set[str] = set()
        self._confirmed = asyncio.Event()

    def handle_update(self, update: Update) -> None:
        """Carry out one update from the core."""
        match update:
            case Allocated(key=key) if key in self._unconfirmed:
                self._note_confirmed(key)
            case AskRejected(key=key, reason=reason) if key in self._unconfirmed:
                self._note_anomaly(f"task {key}, which runs, was refused: {reason}")
                self._note_confirmed(key)
            case StreamReopened(exact=exact):
                # A core that took over from another one repeats messages that may not have arrived.
                self._hears_again = True
                if not exact:
                    self._send_again()
            case _:
                super().handle_update(update)
                return
        self._note_activity()

    async def keep_moving(self) -> None:
        """End a few tasks each second, and ask for each of them again, so that there is something to see."""
        luck = random.Random(0)
        while True:
            await asyncio.sleep(1)
            running = [task for task in self.tasks.values() if task.state is TaskState.RUNNING]
            for task in luck.sample(running, min(MOVED, len(running))):
                self._end_after_runtime(task)
                self._submit_again(task)

    async def send(self) -> None:
        """Send the collected entries, until cancelled. Raises CallFailed if the core refuses a configuration."""
        while True:
            await self._wake.wait()
            await self.registration.wait_in_sync()
            self._wake.clear()
            messages = self.take_messages()
            registered = self.registration.count
            for change in messages.changes:
                call = partial(self._client.update_configuration, change.config)
                await self.registration.ask_until_answered(call)
                self.registration.config = change.config
                self._note_activity()
            try:
                await self._send_messages(messages, registered)
            except ShimClientError:
                # Everything that was to be sent is reported again after the next registration.
                if not self.registration.renews:
                    raise

    async def _send_messages(self, messages: Messages, registered: int) -> None:
        for part in (
            partial(self._client.send_nodes, messages.nodes),
            partial(self._client.send_applications, messages.applications),
            partial(self._client.send_allocations, messages.allocations),
        ):
            # If a core was started again in between, report_again sends it everything in the right order.
            if registered != self.registration.count:
                return
            await part()

    async def report_again(self) -> None:
        """Report everything to a core that has forgotten it: nodes, applications, running tasks and waiting asks.

        The nodes are reported as draining, and are opened once the core has confirmed the tasks that run on them, so
        that no new task is placed in their room. Tasks that were about to end count as ended. Raises the errors of
        :mod:`shim_client` if the core goes away again.
        """
        self._unconfirmed.clear()
        nodes = [info for node_id, info in self._created_nodes.items() if node_id in self._nodes]
        self._node_infos = []
        self._unanswered_nodes.intersection_update(self._nodes)
        await self._client.create_nodes([_closed(info) for info in nodes])
        self._end_what_was_ending()
        live = {task.application.id for task in self.tasks.values() if task.state in (*HOLDING, TaskState.WAITING)}
        applications = [
            entry
            for name, entry in self._added.items()
            if name in live or self._arrivals[name] or name in self._unanswered
        ]
        self._applications = []
        await self._client.add_applications([describe_application(each) for each in applications])
        await self._report_tasks()
        await self._confirmed.wait()
        opened = [info.nodeID for info in nodes if info.nodeID not in self._drained_nodes]
        await self._client.send_nodes(
            si.NodeInfo(nodeID=node_id, action=si.NodeInfo.DRAIN_TO_SCHEDULABLE) for node_id in opened
        )

    async def _report_tasks(self) -> None:
        """Report the running tasks, submit asks for the waiting ones, and permit :meth:`send` to continue."""
        # Tasks may have ended while the core answered. From here to the report nothing may change.
        self._end_what_was_ending()
        self._asks, self._releases, self._withdrawn = [], [], []
        running = [task for task in self.tasks.values() if task.state is TaskState.RUNNING]
        waiting = [task.ask(again=True) for task in self.tasks.values() if task.state is TaskState.WAITING]
        self._unconfirmed = {task.key for task in running}
        self._confirmed.clear()
        if not running:
            self._confirmed.set()
        await self._client.report_allocations(_running_allocation(task) for task in running)
        await self._client.submit_asks(waiting)
        self._note_activity()
        self.registration.mark_in_sync()

    def _end_what_was_ending(self) -> None:
        """End the tasks whose end was to be reported to the core, and the tasks whose node has gone."""
        for task in list(self.tasks.values()):
            if task.state is TaskState.STOPPING:
                self._remove_ended(task.key)
            elif task.state is TaskState.TERMINATING:
                task.state = next_state(task.state, TaskEvent.CONFIRMED)
                self._free_room(task)
                self._recreate_task(task)
            elif task.state is TaskState.RUNNING and task.node not in self._nodes:
                self._remove_ended(task.key)

    def _note_confirmed(self, key: str) -> None:
        self._unconfirmed.discard(key)
        if not self._unconfirmed:
            self._confirmed.set()

    def _send_again(self) -> None:
        """After a stream broke, send everything again that the core may not have received. All of it is idempotent."""
        for task in self.tasks.values():
            if task.state is TaskState.WAITING:
                self._asks.append(encode_ask(task.ask(), self.scenario.generation))
            elif task.state is TaskState.STOPPING:
                self._send_release(task, si.STOPPED_BY_RM)
            elif task.state is TaskState.EVICTED and task.victim:
                self._send_release(task, task.termination)


def _closed(info: si.NodeInfo) -> si.NodeInfo:
    """Returns the same node as draining, so that no new task is placed on it."""
    closed = si.NodeInfo()
    closed.CopyFrom(info)
    closed.action = si.NodeInfo.CREATE_DRAIN
    return closed


def _running_allocation(task: Task) -> si.Allocation:
    allocation = task.ask(again=True).to_g3()
    allocation.nodeID = task.node
    if task.devices:
        allocation.allocationTags[DEVICES_TAG] = ",".join(task.devices)
    return allocation
