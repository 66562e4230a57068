"""The simulated cluster: the nodes and tasks of a resource manager, which follow the core's decisions.

It starts the tasks that the core places, ends them after their runtime, confirms releases after the delay of its
release policy, and re-creates lost tasks where a ReplicaSet would. It checks every message of the core on arrival: a
node over its capacity, a task that is placed twice or a message about an unknown task is recorded as an anomaly.

The methods run in the event loop without waiting. They collect the entries to be sent in lists, which :meth:`send`
empties.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kornel.shim_client import (
    Allocated,
    ApplicationRejected,
    Ask,
    AskRejected,
    AskReleased,
    Devices,
    NodeRejected,
    Released,
    ShimClient,
    ShimClientError,
    StreamReopened,
    Update,
    devices_attribute,
    devices_of,
    resource,
)
from kornel.shim_mock.accounts import Accounts
from kornel.shim_mock.clock import SimulatedClock
from kornel.shim_mock.devices import DeviceBooks, share_of
from kornel.shim_mock.lifecycle import HOLDING, IllegalTransition, TaskEvent, TaskState, next_state
from kornel.shim_mock.queues import ancestors
from kornel.shim_mock.registration import Registration
from kornel.shim_mock.scenario import Application, Change, NodeGroup, Scenario, TaskGroup
from kornel.si.v1 import si_pb2 as si

REQUIRED_NODE: Final = "yunikorn.apache.org/requiredNode"
MOVED: Final = 3
"""The number of tasks that end, and are asked for again, in each second of a demonstration that goes on."""

DEVICES_TAG: Final = "kornel.gpu.devices"


@dataclass(slots=True)
class Task:
    """One task. It is an ask once it is submitted, and a container once it is placed."""

    key: str
    application: Application
    group: TaskGroup
    originator: bool
    hopeless: bool
    asked_s: float
    created_s: int
    state: TaskState = TaskState.WAITING
    node: str = ""
    devices: tuple[str, ...] = ()
    victim: bool = False
    termination: si.TerminationType.ValueType = si.UNKNOWN_TERMINATION_TYPE
    attempts: int = 0
    lives: int = 0
    heard: set[TaskEvent] = field(default_factory=set)

    def ask(self, *, again: bool = False) -> Ask:
        """Returns the ask for the task. *again* says that the core has forgotten the age of the ask, so that it is sent
        along."""
        priority_class = self.group.priority_class
        return Ask(
            key=self.key,
            application_id=self.application.id,
            resources=self.group.resources,
            priority=priority_class.value,
            allow_preempt_self=priority_class.allow_preemption,
            allow_preempt_other=priority_class.may_preempt,
            originator=self.originator,
            created_s=self.created_s if again else None,
            tags={REQUIRED_NODE: self.group.node} if self.group.node else {},
            devices=self.group.devices,
        )


@dataclass(slots=True)
class Fate:
    """The history of an application: the number of its tasks that failed, and of those it lost to preemption before it
    failed."""

    failures: int = 0
    preempted: int = 0
    failed: bool = False


class SimulatedCluster:
    """The state of one run. *client* has to be registered before anything is sent.

    Without *registration*, the cluster never registers again.
    """

    def __init__(
        self,
        scenario: Scenario,
        client: ShimClient,
        clock: SimulatedClock,
        registration: Registration | None = None,
    ) -> None:
        self.scenario = scenario
        self.registration = registration or Registration(client, scenario.config)
        self.accounts = Accounts(scenario.queues, (entry.queue for entry in scenario.applications))
        self.tasks: dict[str, Task] = {}
        self.fates: Final = {application.id: Fate() for application in scenario.applications}
        self.anomalies: list[str] = []
        self.lost_confirmations = 0
        self.duplicated_confirmations = 0
        self.arriving = 0
        self.last_activity_s = 0.0
        self._client = client
        self._clock = clock
        self._nodes: dict[str, Mapping[str, int]] = {}
        self._node_used: dict[str, dict[str, int]] = {}
        self.devices = DeviceBooks()
        self._known_nodes: set[str] = set()
        self._accepted_nodes: dict[str, si.NodeInfo] = {}
        self._drained_nodes: set[str] = set()
        self._accepted_applications: dict[str, Application] = {}
        self._reopened = False
        self._arrivals: Counter[str] = Counter()
        self._unconfirmed: set[str] = set()
        self._confirmed = asyncio.Event()
        self._hopeless: dict[tuple[int, str], bool] = {}
        self._asks: list[Ask] = []
        self._releases: list[si.AllocationRelease] = []
        self._withdrawn: list[tuple[str, str]] = []
        self._node_actions: list[si.NodeInfo] = []
        self._wake = asyncio.Event()
        for application in scenario.applications:
            for group in application.tasks:
                self.accounts.plan_tasks(application.queue, group.count)

    async def create_nodes(self, groups: Iterable[NodeGroup]) -> None:
        """Report the nodes of *groups*, wait for the core's answers, and plan the later changes of the nodes."""
        new = [(group, node_id) for group in groups for node_id in group.node_ids()]
        infos = []
        for group, node_id in new:
            self._nodes[node_id] = group.resources
            self._node_used[node_id] = {}
            self._known_nodes.add(node_id)
            self.devices.add_node(node_id, group.devices)
            infos.append(
                si.NodeInfo(
                    nodeID=node_id,
                    action=si.NodeInfo.CREATE,
                    attributes={**group.attributes, **(devices_attribute(group.devices) if group.devices else {})},
                    schedulableResource=resource(group.resources),
                )
            )
        self._hopeless.clear()
        answers = await self.registration.ask_until_answered(partial(self._client.create_nodes, infos))
        for info, answer in zip(infos, answers, strict=True):
            if isinstance(answer, NodeRejected):
                self._note_anomaly(f"node {answer.node_id} was refused: {answer.reason}")
            else:
                self._accepted_nodes[info.nodeID] = info
        for group, node_id in new:
            for at_s, action in (
                (group.drain_s, si.NodeInfo.DRAIN_NODE),
                (group.restore_s, si.NodeInfo.DRAIN_TO_SCHEDULABLE),
                (group.remove_s, si.NodeInfo.DECOMISSION),
            ):
                if at_s is not None:
                    self._clock.call_at(at_s, self._make_node_action(node_id, action))

    async def add_applications(self, applications: Sequence[Application]) -> None:
        """Add *applications*, wait for the core's answers, and submit the tasks of those it accepted."""
        requests = [_describe_application(application) for application in applications]
        answers = await self.registration.ask_until_answered(partial(self._client.add_applications, requests))
        for application, answer in zip(applications, answers, strict=True):
            if isinstance(answer, ApplicationRejected):
                self._note_anomaly(f"application {application.id} was refused: {answer.reason}")
                for group in application.tasks:
                    self.accounts.plan_tasks(application.queue, -group.count)
                continue
            self._accepted_applications[application.id] = application
            if application.fail_s is not None:
                self._clock.call_at(application.fail_s, partial(self._fail_task, application))
            for group in application.tasks:
                self.arriving += 1
                self._arrivals[application.id] += 1
                self._clock.call_later(group.at_s, self._make_arrival(application, group))

    async def reconfigure(self, change: Change) -> None:
        """Replace the queue configuration. Raises CallFailed if the core refuses it."""
        await self.registration.ask_until_answered(partial(self._client.update_configuration, change.config))
        self.registration.config = change.config
        self.accounts.set_limits(change.queues)
        self._note_activity()

    def _make_node_action(self, node_id: str, action: si.NodeInfo.ActionFromRM.ValueType) -> Callable[[], None]:
        def act() -> None:
            if action == si.NodeInfo.DECOMISSION:
                # The core's releases of its tasks follow; the room of the node no longer counts for new tasks.
                self._nodes.pop(node_id, None)
                self._hopeless.clear()
            elif action == si.NodeInfo.DRAIN_NODE:
                self._drained_nodes.add(node_id)
            else:
                self._drained_nodes.discard(node_id)
            self._node_actions.append(si.NodeInfo(nodeID=node_id, action=action))
            self._wake.set()

        return act

    def _make_arrival(self, application: Application, group: TaskGroup) -> Callable[[], None]:
        submitted = 0
        began_s: float | None = None

        def arrive() -> None:
            nonlocal submitted, began_s
            if began_s is None:
                began_s = self._clock.now_s
            due = group.count
            if group.arrival_per_s is not None:
                # This submits all tasks that were due since the last timer, so that a high rate does not depend on the
                # precision of timers.
                due = min(due, int((self._clock.now_s - began_s) * group.arrival_per_s + 1e-9) + 1)
            for index in range(submitted, due):
                originator = group.originator and index == 0
                self._submit_task(group.key(application.id, index), application, group, originator=originator)
            self.accounts.plan_tasks(application.queue, submitted - due)
            submitted = due
            if submitted < group.count and group.arrival_per_s is not None:
                self._clock.call_at(began_s + submitted / group.arrival_per_s, arrive)
            else:
                self.arriving -= 1
                self._arrivals[application.id] -= 1

        return arrive

    def _submit_task(
        self, key: str, application: Application, group: TaskGroup, *, originator: bool, lives: int = 0
    ) -> None:
        now_s = self._clock.real_s
        hopeless = self._fits_no_node(group)
        task = Task(key, application, group, originator, hopeless, now_s, int(time.time()), lives=lives)
        self.tasks[key] = task
        self.accounts.book_ask(application.queue, group.resources, hopeless=hopeless, at_s=now_s)
        self._asks.append(task.ask())
        self._note_activity()

    def _fits_no_node(self, group: TaskGroup) -> bool:
        subject = id(group.resources), group.node
        if (known := self._hopeless.get(subject)) is None:
            known = not any(
                all(amount <= capacity.get(kind, 0) for kind, amount in group.resources.items() if amount)
                for node_id, capacity in self._nodes.items()
                if group.node in ("", node_id)
            )
            self._hopeless[subject] = known
        return known

    def handle_update(self, update: Update) -> None:
        """Carry out one update from the core."""
        match update:
            case Allocated(key=key) if key in self._unconfirmed:
                self._note_confirmed(key)
            case Allocated():
                self._start_task(update)
            case Released():
                self._handle_release(update)
            case AskReleased(key=key):
                self._drop_ask(key, TaskEvent.DROPPED)
            case AskRejected(key=key, reason=reason) if key in self._unconfirmed:
                self._note_anomaly(f"task {key}, which runs, was refused: {reason}")
                self._note_confirmed(key)
            case AskRejected(key=key, reason=reason):
                self._note_anomaly(f"task {key} was refused: {reason}")
                self._drop_ask(key, TaskEvent.REFUSED)
            case StreamReopened(exact=exact):
                self._reopened = True
                if not exact:
                    self._send_again()
            case _:
                return
        self._note_activity()

    def _start_task(self, update: Allocated) -> None:
        if (task := self._move_task(update.key, TaskEvent.PLACED)) is None:
            placed = self.tasks.get(update.key)
            if placed is not None and placed.node and placed.node != update.node_id:
                self._note_anomaly(f"task {update.key} was placed on {placed.node}, and again on {update.node_id}")
            return
        now_s = self._clock.real_s
        queue, amounts = task.application.queue, task.group.resources
        task.node, task.devices = update.node_id, devices_of(update.message)
        self.accounts.remove_ask(queue, amounts, hopeless=task.hopeless)
        self.accounts.book_task(queue, amounts, waited_s=now_s - task.asked_s, at_s=now_s)
        self._book_room(task)
        if task.group.runtime_s is not None:
            self._clock.call_later(task.group.runtime_s, lambda: self._end_after_runtime(task))

    def _book_room(self, task: Task) -> None:
        if task.node not in self._known_nodes:
            self._note_anomaly(f"task {task.key} was placed on {task.node!r}, which is no node")
            return
        if task.group.node not in ("", task.node):
            self._note_anomaly(f"task {task.key} requires node {task.group.node} and was placed on {task.node}")
        used, capacity = self._node_used[task.node], self._nodes.get(task.node)
        for kind, amount in task.group.resources.items():
            used[kind] = used.get(kind, 0) + amount
            if capacity is not None and used[kind] > capacity.get(kind, 0):
                held = f"{kind} {used[kind]} of {capacity.get(kind, 0)}"
                self._note_anomaly(f"task {task.key} overfills node {task.node}: {held}")
        for wrong in self.devices.use(task.node, task.devices, task.group.devices):
            self._note_anomaly(f"task {task.key} {wrong}")

    def _handle_release(self, update: Released) -> None:
        if not update.wants_confirmation:
            self._remove_ended(update.key)
            return
        before = self.tasks[update.key].state if update.key in self.tasks else None
        if before is TaskState.WAITING:
            # The core drops a pending ask (G3). It has already removed the ask, so no confirmation is needed.
            self._drop_ask(update.key, TaskEvent.DROPPED)
            return
        if (task := self._move_task(update.key, TaskEvent.STOP_ASKED)) is None:
            return
        task.termination = update.termination
        if update.termination == si.PREEMPTED_BY_SCHEDULER and not task.victim:
            task.victim = True
            fate = self.fates[task.application.id]
            # Preemption is not the application's fault, so it is counted separately from the failures that use up
            # retries.
            fate.preempted += not fate.failed
            queue, amounts = task.application.queue, task.group.resources
            self.accounts.book_victim(queue, amounts, key=task.key, at_s=self._clock.real_s)
        if before is TaskState.RUNNING:
            self._clock.call_later(self.scenario.releases.delay_s, lambda: self._container_gone(task))
        elif before is not TaskState.STOPPING:
            self._confirm_release(task)

    def _remove_ended(self, key: str) -> None:
        """Remove a task that the core ended: its release was confirmed, or its node or application is gone."""
        if (task := self._move_task(key, TaskEvent.RELEASED)) is not None:
            self._free_room(task)
            if task.state is TaskState.EVICTED:
                self._recreate_task(task)

    def _drop_ask(self, key: str, event: TaskEvent) -> None:
        if (task := self._move_task(key, event)) is not None:
            self.accounts.remove_ask(task.application.queue, task.group.resources, hopeless=task.hopeless)

    def _move_task(self, key: str, event: TaskEvent) -> Task | None:
        """Returns the task after *event*. If the contract forbids the core's message, it records an anomaly and returns
        None."""
        if (task := self.tasks.get(key)) is None:
            self._note_anomaly(f"{event}: unknown task {key!r}")
            return None
        try:
            task.state = next_state(task.state, event)
        except IllegalTransition as error:
            # A core that took over from another one repeats messages that may not have arrived.
            if not (self._reopened and event in task.heard):
                self._note_anomaly(f"task {key}: {error}")
            return None
        task.heard.add(event)
        return task

    def _end_after_runtime(self, task: Task) -> None:
        if task.state is TaskState.RUNNING:
            task.state = next_state(task.state, TaskEvent.FINISHED)
            self._send_release(task, si.STOPPED_BY_RM)

    def _fail_task(self, application: Application) -> None:
        """Make one of the running tasks of *application* fail. This ends the application if it has no retries left."""
        own = [task for task in self.tasks.values() if task.application is application]
        failing = next((task for task in own if task.state is TaskState.RUNNING), None)
        if failing is None:
            return
        fate = self.fates[application.id]
        fate.failures += 1
        fate.failed = application.retries is not None and fate.failures >= application.retries
        self._end_after_runtime(failing)
        self._recreate_task(failing)
        if fate.failed:
            for task in own:
                if task.state is TaskState.WAITING:
                    self._withdrawn.append((application.id, task.key))
                    self._drop_ask(task.key, TaskEvent.DROPPED)
                else:
                    self._end_after_runtime(task)

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call *act* after *seconds* of real time."""
        self._clock.call_later(max(0.0, seconds) * self.scenario.speed, act)

    def end_task(self, task: Task) -> None:
        """End *task*, if it runs, on behalf of its application."""
        self._end_after_runtime(task)

    def _container_gone(self, task: Task) -> None:
        """End a victim's container, and create its replacement whether or not the core is informed of the end."""
        if task.state is TaskState.TERMINATING:
            self._recreate_task(task)
            self._confirm_release(task)

    def _confirm_release(self, task: Task) -> None:
        policy = self.scenario.releases
        task.attempts += 1
        # The draw depends on the task and the attempt only, so the order of the core's decisions does not change which
        # messages are lost.
        luck = random.Random(f"{policy.seed}/{task.key}/{task.attempts}")
        if luck.random() < policy.loss:
            self.lost_confirmations += 1
            if policy.retry_s is not None:
                self._clock.call_later(policy.retry_s, lambda: self._confirm_again(task))
            return
        self._send_release(task, task.termination)
        if luck.random() < policy.duplication:
            self.duplicated_confirmations += 1
            self._send_release(task, task.termination)
        if task.state is TaskState.TERMINATING:
            task.state = next_state(task.state, TaskEvent.CONFIRMED)
            self._free_room(task)

    def _confirm_again(self, task: Task) -> None:
        if task.state is TaskState.TERMINATING:
            self._confirm_release(task)

    def _free_room(self, task: Task) -> None:
        queue, amounts = task.application.queue, task.group.resources
        self.accounts.remove_task(queue, amounts, victim=task.victim, at_s=self._clock.real_s)
        used = self._node_used.get(task.node, {})
        for kind, amount in amounts.items():
            used[kind] = used.get(kind, 0) - amount
        self.devices.free(task.node, task.devices, task.group.devices)

    async def keep_moving(self) -> None:
        """End a few tasks each second, and ask for each of them again, so that there is something to see."""
        luck = random.Random(0)
        while True:
            await asyncio.sleep(1)
            running = [task for task in self.tasks.values() if task.state is TaskState.RUNNING]
            for task in luck.sample(running, min(MOVED, len(running))):
                self._end_after_runtime(task)
                self._submit_again(task)

    def _recreate_task(self, task: Task) -> None:
        if task.group.restart and not self.fates[task.application.id].failed:
            self._submit_again(task)

    def _submit_again(self, task: Task) -> None:
        lives = task.lives + 1
        key = f"{task.key.removesuffix(f'.r{task.lives}')}.r{lives}"
        self.accounts.queues[task.application.queue].recreated += 1
        self._submit_task(key, task.application, task.group, originator=task.originator, lives=lives)

    def _send_release(self, task: Task, termination: si.TerminationType.ValueType) -> None:
        self._releases.append(self._client.release_of(task.application.id, task.key, termination))
        self._note_activity()

    async def send(self) -> None:
        """Send the collected entries, until cancelled."""
        while True:
            await self._wake.wait()
            await self.registration.wait_in_sync()
            self._wake.clear()
            try:
                await self._send_gathered()
            except ShimClientError:
                # Everything that was to be sent is reported again after the next registration.
                if not self.registration.renews:
                    raise

    async def _send_gathered(self) -> None:
        registered = self.registration.count
        nodes, self._node_actions = self._node_actions, []
        asks, self._asks = self._asks, []
        releases, self._releases = self._releases, []
        withdrawn, self._withdrawn = self._withdrawn, []
        await self._client.send_nodes(nodes)
        for part in (
            partial(self._client.submit_asks, asks),
            partial(self._client.withdraw_asks, withdrawn),
            partial(self._client.release, releases),
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
        nodes = [info for node_id, info in self._accepted_nodes.items() if node_id in self._nodes]
        for node in await self._client.create_nodes([_closed(info) for info in nodes]):
            if isinstance(node, NodeRejected):
                self._note_anomaly(f"node {node.node_id} was refused: {node.reason}")
        self._end_what_was_ending()
        live = {task.application.id for task in self.tasks.values() if task.state in (*HOLDING, TaskState.WAITING)}
        applications = [
            entry for name, entry in self._accepted_applications.items() if name in live or self._arrivals[name]
        ]
        for application in await self._client.add_applications([_describe_application(each) for each in applications]):
            if isinstance(application, ApplicationRejected):
                self._note_anomaly(f"application {application.application_id} was refused: {application.reason}")
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
        self._asks, self._releases, self._withdrawn, self._node_actions = [], [], [], []
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
                self._asks.append(task.ask())
            elif task.state is TaskState.STOPPING:
                self._send_release(task, si.STOPPED_BY_RM)
            elif task.state is TaskState.EVICTED and task.victim:
                self._send_release(task, task.termination)

    def _note_activity(self) -> None:
        self.last_activity_s = self._clock.real_s
        self._wake.set()

    def _note_anomaly(self, text: str) -> None:
        self.anomalies.append(text)

    def count_tasks(self) -> Counter[TaskState]:
        """Returns how many tasks are in each state."""
        return Counter(task.state for task in self.tasks.values())

    def holding(self) -> int:
        """Returns the number of tasks for which the core has to count room as used."""
        return sum(task.state in HOLDING for task in self.tasks.values())

    def is_stranded(self, queue: str) -> bool:
        """Tells whether no preemption could help the tasks that wait in *queue*.

        This is true if none of them would fit any node even after every evictable task had left. Not evictable are the
        queue's own tasks, and any task whose loss alone would take its queue below its guarantee.
        """
        waiting: dict[tuple[int, Devices | None], Mapping[str, int]] = {}
        staying: dict[str, dict[str, int]] = {}
        held: dict[str, dict[str, int]] = {}
        for task in self.tasks.values():
            amounts = task.group.resources
            own = queue in ancestors(task.application.queue)
            if own and task.state is TaskState.WAITING:
                waiting[id(amounts), task.group.devices] = amounts
            elif task.state in HOLDING and (own or self._is_protected(task, against=queue)):
                used = staying.setdefault(task.node, {})
                for kind, amount in amounts.items():
                    used[kind] = used.get(kind, 0) + amount
                if task.group.devices is not None:
                    parts = held.setdefault(task.node, {})
                    for name in task.devices:
                        parts[name] = parts.get(name, 0) + share_of(task.group.devices)
        return not any(
            all(amount <= capacity.get(kind, 0) - staying.get(node, {}).get(kind, 0) for kind, amount in wanted.items())
            and self.devices.fits_beside(node, devices, held.get(node, {}))
            for (_, devices), wanted in waiting.items()
            for node, capacity in self._nodes.items()
        )

    def _is_protected(self, task: Task, *, against: str) -> bool:
        """Tells whether a guarantee that is not shared with the queue *against* protects *task* from eviction."""
        shared = ancestors(against)
        return any(
            amount and account.usage_net_of_victims(kind) - amount < account.limits.guaranteed.get(kind, 0)
            for path in ancestors(task.application.queue)
            if path not in shared and (account := self.accounts.queues[path]).limits.guaranteed
            for kind, amount in task.group.resources.items()
            if kind in account.limits.guaranteed
        )

    @property
    def node_count(self) -> int:
        """Returns the number of nodes that the core has to know."""
        return len(self._nodes)


def _describe_application(application: Application) -> si.AddApplicationRequest:
    return si.AddApplicationRequest(
        applicationID=application.id,
        queueName=application.queue,
        ugi=si.UserGroupInformation(user=application.user, groups=application.groups),
    )


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
