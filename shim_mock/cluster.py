"""The simulated cluster: nodes and tasks as a resource manager keeps them, driven by the core's decisions.

It starts what it is given, ends it after its runtime, confirms what the core wants gone after the delay of
its release policy, and re-creates lost work where a ReplicaSet would. Everything the core says is checked on
the way in: a node over its capacity, a task placed twice or a message about an unknown task is kept as an
anomaly.

The methods run in the event loop without waiting; what is to be sent gathers in lists that :meth:`send`
empties.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from si.v1 import si_pb2 as si

from shim_client import (
    Allocated,
    ApplicationRejected,
    Ask,
    AskRejected,
    AskReleased,
    NodeRejected,
    Released,
    ShimClient,
    StreamReopened,
    Update,
    resource,
)
from shim_mock.accounts import Accounts
from shim_mock.clock import SimulatedClock
from shim_mock.lifecycle import HOLDING, IllegalTransition, TaskEvent, TaskState, after
from shim_mock.queues import ancestors
from shim_mock.scenario import Application, Change, NodeGroup, Scenario, TaskGroup

REQUIRED_NODE: Final = "yunikorn.apache.org/requiredNode"


@dataclass(slots=True)
class Task:
    """One task: an ask once it is submitted, a container once it is placed."""

    key: str
    application: Application
    group: TaskGroup
    originator: bool
    hopeless: bool
    asked_s: float
    state: TaskState = TaskState.WAITING
    node: str = ""
    victim: bool = False
    termination: si.TerminationType.ValueType = si.UNKNOWN_TERMINATION_TYPE
    attempts: int = 0
    lives: int = 0

    def ask(self) -> Ask:
        """The request for it."""
        priority_class = self.group.priority_class
        return Ask(
            key=self.key,
            application_id=self.application.id,
            resources=self.group.resources,
            priority=priority_class.value,
            allow_preempt_self=priority_class.allow_preemption,
            allow_preempt_other=priority_class.may_preempt,
            originator=self.originator,
            tags={REQUIRED_NODE: self.group.node} if self.group.node else {},
        )


@dataclass(slots=True)
class Fate:
    """What an application has been through: tasks that failed, and tasks it lost to preemption until it failed."""

    failures: int = 0
    preempted: int = 0
    failed: bool = False


class SimulatedCluster:
    """The state of one run. *client* must be registered before anything is sent."""

    def __init__(self, scenario: Scenario, client: ShimClient, clock: SimulatedClock) -> None:
        self.scenario = scenario
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
        self._known_nodes: set[str] = set()
        self._hopeless: dict[tuple[int, str], bool] = {}
        self._asks: list[Ask] = []
        self._releases: list[si.AllocationRelease] = []
        self._withdrawn: list[tuple[str, str]] = []
        self._node_actions: list[si.NodeInfo] = []
        self._wake = asyncio.Event()
        for application in scenario.applications:
            for group in application.tasks:
                self.accounts.planned(application.queue, group.count)

    # What the scenario does.

    async def create_nodes(self, groups: Iterable[NodeGroup]) -> None:
        """Report the nodes of *groups*, wait for the core's answers, and plan what happens to them later."""
        new = [(group, node_id) for group in groups for node_id in group.node_ids()]
        infos = []
        for group, node_id in new:
            self._nodes[node_id] = group.resources
            self._node_used[node_id] = {}
            self._known_nodes.add(node_id)
            infos.append(
                si.NodeInfo(
                    nodeID=node_id,
                    action=si.NodeInfo.CREATE,
                    attributes=group.attributes,
                    schedulableResource=resource(group.resources),
                )
            )
        self._hopeless.clear()
        for answer in await self._client.create_nodes(infos):
            if isinstance(answer, NodeRejected):
                self._anomaly(f"node {answer.node_id} was refused: {answer.reason}")
        for group, node_id in new:
            for at_s, action in (
                (group.drain_s, si.NodeInfo.DRAIN_NODE),
                (group.restore_s, si.NodeInfo.DRAIN_TO_SCHEDULABLE),
                (group.remove_s, si.NodeInfo.DECOMISSION),
            ):
                if at_s is not None:
                    self._clock.call_at(at_s, self._node_action(node_id, action))

    async def add_applications(self, applications: Sequence[Application]) -> None:
        """Add *applications*, wait for the core's answers, and submit the tasks of those it accepted."""
        answers = await self._client.add_applications(
            [
                si.AddApplicationRequest(
                    applicationID=application.id,
                    queueName=application.queue,
                    ugi=si.UserGroupInformation(user=application.user, groups=application.groups),
                )
                for application in applications
            ]
        )
        for application, answer in zip(applications, answers, strict=True):
            if isinstance(answer, ApplicationRejected):
                self._anomaly(f"application {application.id} was refused: {answer.reason}")
                for group in application.tasks:
                    self.accounts.planned(application.queue, -group.count)
                continue
            if application.fail_s is not None:
                self._clock.call_at(application.fail_s, partial(self._failure, application))
            for group in application.tasks:
                self.arriving += 1
                self._clock.call_later(group.at_s, self._arrival(application, group))

    async def reconfigure(self, change: Change) -> None:
        """Put another configuration into force. Raises CallFailed if the core refuses it."""
        await self._client.update_configuration(change.config)
        self.accounts.limit(change.queues)
        self._active()

    def _node_action(self, node_id: str, action: si.NodeInfo.ActionFromRM.ValueType) -> Callable[[], None]:
        def act() -> None:
            if action == si.NodeInfo.DECOMISSION:
                # The core's releases for its tasks follow; new tasks must not count on it.
                self._nodes.pop(node_id, None)
                self._hopeless.clear()
            self._node_actions.append(si.NodeInfo(nodeID=node_id, action=action))
            self._wake.set()

        return act

    def _arrival(self, application: Application, group: TaskGroup) -> Callable[[], None]:
        submitted = 0
        began_s: float | None = None

        def arrive() -> None:
            nonlocal submitted, began_s
            if began_s is None:
                began_s = self._clock.now_s
            due = group.count
            if group.arrival_per_s is not None:
                # All that fell due since the last timer, so that a high rate does not depend on timer precision.
                due = min(due, int((self._clock.now_s - began_s) * group.arrival_per_s + 1e-9) + 1)
            for index in range(submitted, due):
                originator = group.originator and index == 0
                self._submit(group.key(application.id, index), application, group, originator=originator)
            self.accounts.planned(application.queue, submitted - due)
            submitted = due
            if submitted < group.count and group.arrival_per_s is not None:
                self._clock.call_at(began_s + submitted / group.arrival_per_s, arrive)
            else:
                self.arriving -= 1

        return arrive

    def _submit(
        self, key: str, application: Application, group: TaskGroup, *, originator: bool, lives: int = 0
    ) -> None:
        now_s = self._clock.real_s
        hopeless = self._fits_no_node(group)
        task = Task(key, application, group, originator, hopeless, now_s, lives=lives)
        self.tasks[key] = task
        self.accounts.asked(application.queue, group.resources, hopeless=hopeless, at_s=now_s)
        self._asks.append(task.ask())
        self._active()

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

    # What the core says.

    def hear(self, update: Update) -> None:
        """Carry out one update of the core."""
        match update:
            case Allocated():
                self._placed(update)
            case Released():
                self._released(update)
            case AskReleased(key=key):
                self._dropped(key, TaskEvent.DROPPED)
            case AskRejected(key=key, reason=reason):
                self._anomaly(f"task {key} was refused: {reason}")
                self._dropped(key, TaskEvent.REFUSED)
            case StreamReopened():
                self._repeat()
            case _:
                return
        self._active()

    def _placed(self, update: Allocated) -> None:
        if (task := self._moved(update.key, TaskEvent.PLACED)) is None:
            return
        now_s = self._clock.real_s
        queue, amounts = task.application.queue, task.group.resources
        task.node = update.node_id
        self.accounts.no_longer_waiting(queue, amounts, hopeless=task.hopeless)
        self.accounts.placed(queue, amounts, waited_s=now_s - task.asked_s, at_s=now_s)
        self._occupy(task)
        if task.group.runtime_s is not None:
            self._clock.call_later(task.group.runtime_s, lambda: self._finished(task))

    def _occupy(self, task: Task) -> None:
        if task.node not in self._known_nodes:
            self._anomaly(f"task {task.key} was placed on {task.node!r}, which is no node")
            return
        if task.group.node not in ("", task.node):
            self._anomaly(f"task {task.key} requires node {task.group.node} and was placed on {task.node}")
        used, capacity = self._node_used[task.node], self._nodes.get(task.node)
        for kind, amount in task.group.resources.items():
            used[kind] = used.get(kind, 0) + amount
            if capacity is not None and used[kind] > capacity.get(kind, 0):
                held = f"{kind} {used[kind]} of {capacity.get(kind, 0)}"
                self._anomaly(f"task {task.key} overfills node {task.node}: {held}")

    def _released(self, update: Released) -> None:
        if not update.wants_confirmation:
            self._over(update.key)
            return
        before = self.tasks[update.key].state if update.key in self.tasks else None
        if before is TaskState.WAITING:
            # The core gives up a pending ask (G3): it is gone already, a confirmation would tell it nothing.
            self._dropped(update.key, TaskEvent.DROPPED)
            return
        if (task := self._moved(update.key, TaskEvent.STOP_ASKED)) is None:
            return
        task.termination = update.termination
        if update.termination == si.PREEMPTED_BY_SCHEDULER and not task.victim:
            task.victim = True
            fate = self.fates[task.application.id]
            # Not the application's fault: it counts, but not against the retries.
            fate.preempted += not fate.failed
            queue, amounts = task.application.queue, task.group.resources
            self.accounts.chosen(queue, amounts, key=task.key, at_s=self._clock.real_s)
        if before is TaskState.RUNNING:
            self._clock.call_later(self.scenario.releases.delay_s, lambda: self._container_gone(task))
        elif before is not TaskState.STOPPING:
            self._confirm(task)

    def _over(self, key: str) -> None:
        """The core says that a task is gone: confirms its end, or lost its node or application."""
        if (task := self._moved(key, TaskEvent.RELEASED)) is not None:
            self._gone(task)
            if task.state is TaskState.EVICTED:
                self._recreate(task)

    def _dropped(self, key: str, event: TaskEvent) -> None:
        if (task := self._moved(key, event)) is not None:
            self.accounts.no_longer_waiting(task.application.queue, task.group.resources, hopeless=task.hopeless)

    def _moved(self, key: str, event: TaskEvent) -> Task | None:
        """The task after *event*; None, and an anomaly, if the core must not say that about it."""
        if (task := self.tasks.get(key)) is None:
            self._anomaly(f"{event}: unknown task {key!r}")
            return None
        try:
            task.state = after(task.state, event)
        except IllegalTransition as error:
            self._anomaly(f"task {key}: {error}")
            return None
        return task

    # What containers do.

    def _finished(self, task: Task) -> None:
        if task.state is TaskState.RUNNING:
            task.state = after(task.state, TaskEvent.FINISHED)
            self._release(task, si.STOPPED_BY_RM)

    def _failure(self, application: Application) -> None:
        """One of *application*'s running tasks fails, which is the end of the application if it has no retries left."""
        own = [task for task in self.tasks.values() if task.application is application]
        failing = next((task for task in own if task.state is TaskState.RUNNING), None)
        if failing is None:
            return
        fate = self.fates[application.id]
        fate.failures += 1
        fate.failed = application.retries is not None and fate.failures >= application.retries
        self._finished(failing)
        self._recreate(failing)
        if fate.failed:
            for task in own:
                if task.state is TaskState.WAITING:
                    self._withdrawn.append((application.id, task.key))
                    self._dropped(task.key, TaskEvent.DROPPED)
                else:
                    self._finished(task)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do *act* after so many real seconds."""
        self._clock.call_later(max(0.0, seconds) * self.scenario.speed, act)

    def finish(self, task: Task) -> None:
        """End *task*, if it runs, because its application wants it so."""
        self._finished(task)

    def _container_gone(self, task: Task) -> None:
        """A victim's container ended: its replacement is created whether or not the core hears of the end."""
        if task.state is TaskState.TERMINATING:
            self._recreate(task)
            self._confirm(task)

    def _confirm(self, task: Task) -> None:
        policy = self.scenario.releases
        task.attempts += 1
        # Drawn per task and attempt: the order in which the core decides does not change who loses a message.
        luck = random.Random(f"{policy.seed}/{task.key}/{task.attempts}")
        if luck.random() < policy.loss:
            self.lost_confirmations += 1
            if policy.retry_s is not None:
                self._clock.call_later(policy.retry_s, lambda: self._confirm_again(task))
            return
        self._release(task, task.termination)
        if luck.random() < policy.duplication:
            self.duplicated_confirmations += 1
            self._release(task, task.termination)
        if task.state is TaskState.TERMINATING:
            task.state = after(task.state, TaskEvent.CONFIRMED)
            self._gone(task)

    def _confirm_again(self, task: Task) -> None:
        if task.state is TaskState.TERMINATING:
            self._confirm(task)

    def _gone(self, task: Task) -> None:
        queue, amounts = task.application.queue, task.group.resources
        self.accounts.left(queue, amounts, victim=task.victim, at_s=self._clock.real_s)
        used = self._node_used.get(task.node, {})
        for kind, amount in amounts.items():
            used[kind] = used.get(kind, 0) - amount

    def _recreate(self, task: Task) -> None:
        if task.group.restart and not self.fates[task.application.id].failed:
            lives = task.lives + 1
            key = f"{task.key.removesuffix(f'.r{task.lives}')}.r{lives}"
            self.accounts.queues[task.application.queue].recreated += 1
            self._submit(key, task.application, task.group, originator=task.originator, lives=lives)

    def _release(self, task: Task, termination: si.TerminationType.ValueType) -> None:
        self._releases.append(self._client.release_of(task.application.id, task.key, termination))
        self._active()

    # What goes out.

    async def send(self) -> None:
        """Send what gathers, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            nodes, self._node_actions = self._node_actions, []
            asks, self._asks = self._asks, []
            releases, self._releases = self._releases, []
            withdrawn, self._withdrawn = self._withdrawn, []
            await self._client.send_nodes(nodes)
            await self._client.submit_asks(asks)
            if withdrawn:
                await self._client.withdraw_asks(withdrawn)
            await self._client.release(releases)

    def _repeat(self) -> None:
        """A stream broke: say again what the core may not have heard. All of it is idempotent."""
        for task in self.tasks.values():
            if task.state is TaskState.WAITING:
                self._asks.append(task.ask())
            elif task.state is TaskState.STOPPING:
                self._release(task, si.STOPPED_BY_RM)
            elif task.state is TaskState.EVICTED and task.victim:
                self._release(task, task.termination)

    def _active(self) -> None:
        self.last_activity_s = self._clock.real_s
        self._wake.set()

    def _anomaly(self, text: str) -> None:
        self.anomalies.append(text)

    # What it looks like.

    def count(self) -> Counter[TaskState]:
        """How many tasks are in each state."""
        return Counter(task.state for task in self.tasks.values())

    def holding(self) -> int:
        """How many tasks the core must book room for."""
        return sum(task.state in HOLDING for task in self.tasks.values())

    def stranded(self, queue: str) -> bool:
        """Whether no preemption could help the tasks that wait in *queue*.

        So it is when none of them would fit any node even if every task that may be evicted at all were gone: the
        queue's own tasks may not, nor may one whose loss alone would take its queue below its guarantee.
        """
        waiting: dict[int, Mapping[str, int]] = {}
        staying: dict[str, dict[str, int]] = {}
        for task in self.tasks.values():
            amounts = task.group.resources
            own = queue in ancestors(task.application.queue)
            if own and task.state is TaskState.WAITING:
                waiting[id(amounts)] = amounts
            elif task.state in HOLDING and (own or self._protected(task, against=queue)):
                used = staying.setdefault(task.node, {})
                for kind, amount in amounts.items():
                    used[kind] = used.get(kind, 0) + amount
        return not any(
            all(amount <= capacity.get(kind, 0) - staying.get(node, {}).get(kind, 0) for kind, amount in wanted.items())
            for wanted in waiting.values()
            for node, capacity in self._nodes.items()
        )

    def _protected(self, task: Task, *, against: str) -> bool:
        """Whether a guarantee, not shared with the queue *against*, keeps *task* from being evicted."""
        shared = ancestors(against)
        return any(
            amount and account.net(kind) - amount < account.limits.guaranteed.get(kind, 0)
            for path in ancestors(task.application.queue)
            if path not in shared and (account := self.accounts.queues[path]).limits.guaranteed
            for kind, amount in task.group.resources.items()
            if kind in account.limits.guaranteed
        )

    @property
    def node_count(self) -> int:
        """Nodes the core must know."""
        return len(self._nodes)
