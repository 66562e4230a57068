"""The nodes and tasks of a resource manager, which follow the core's decisions.

The model starts the tasks that the core places, ends them after their runtime, confirms releases after the delay of its
release policy, and re-creates lost tasks where a ReplicaSet would. It checks every message of the core on arrival: a
node over its capacity, a task that is placed twice or a message about an unknown task is recorded as an anomaly.

It asks its agenda for time, and collects what is to be sent, which :meth:`ClusterModel.take_messages` returns.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from kornel.shim_client import (
    Allocated,
    ApplicationAccepted,
    ApplicationRejected,
    AskRejected,
    AskReleased,
    Devices,
    NodeAccepted,
    NodeRejected,
    Released,
    Update,
    devices_attribute,
    devices_of,
    resource,
)
from kornel.shim_client.asks import AllocationEntry, encode_ask, encode_withdrawal, make_release
from kornel.shim_mock.model.accounts import Accounts
from kornel.shim_mock.model.agenda import Agenda
from kornel.shim_mock.model.devices import DeviceBooks, share_of
from kornel.shim_mock.model.lifecycle import HOLDING, IllegalTransition, TaskEvent, TaskState, next_state
from kornel.shim_mock.model.tasks import Fate, NoObserver, Task, TaskObserver
from kornel.shim_mock.queues import ancestors
from kornel.shim_mock.scenario import Application, Change, NodeGroup, Scenario, TaskGroup
from kornel.si.v1 import si_pb2 as si

SECOND_NS: Final = 1_000_000_000


class Messages(NamedTuple):
    """Entries to be sent, in this order: configurations, then one message for each stream. Empty lists are not sent.
    Asks come before withdrawals, and these before releases."""

    changes: list[Change]
    nodes: list[si.NodeInfo]
    applications: list[si.AddApplicationRequest]
    allocations: list[AllocationEntry]


class ClusterModel:
    """The state of one run, which begins with :meth:`begin`. *on_messages* is called whenever there may be something to
    send. *observer* sees what becomes of each task; without *keeps_ended*, tasks that have ended are forgotten,
    and what :class:`Accounts` would keep of them."""

    def __init__(
        self,
        scenario: Scenario,
        agenda: Agenda,
        on_messages: Callable[[], None] = lambda: None,
        *,
        observer: TaskObserver | None = None,
        keeps_ended: bool = True,
    ) -> None:
        self.scenario = scenario
        leaves = (entry.queue for entry in scenario.applications)
        self.accounts = Accounts(scenario.queues, leaves, keeps_past=keeps_ended)
        self.tasks: dict[str, Task] = {}
        self.fates: Final = {application.id: Fate() for application in scenario.applications}
        self.anomalies: list[str] = []
        self.lost_confirmations = 0
        self.duplicated_confirmations = 0
        self.arriving = 0
        self.unplayed = 0
        """The number of steps of the scenario whose time has not come."""
        self.late = any(
            [*(each.after_quiet for each in scenario.changes), *(each.after_quiet for each in scenario.applications)]
        )
        """Tells whether something of the scenario waits until the core is quiet, see :meth:`play_late`."""
        self.last_activity_s = 0.0
        self.devices = DeviceBooks()
        self._agenda = agenda
        self._on_messages = on_messages
        self._observer = observer or NoObserver()
        self._keeps_ended = keeps_ended
        self._nodes: dict[str, Mapping[str, int]] = {}
        self._node_used: dict[str, dict[str, int]] = {}
        self._known_nodes: set[str] = set()
        self._created_nodes: dict[str, si.NodeInfo] = {}
        self._unanswered_nodes: set[str] = set()
        self._drained_nodes: set[str] = set()
        self._added: dict[str, Application] = {}
        """The applications that were added and not refused, by ID."""
        self._unanswered: set[str] = set()
        """The applications that the core has neither accepted nor refused."""
        self._hears_again = False
        """Tells whether the core may repeat messages that have arrived already."""
        self._arrivals: Counter[str] = Counter()
        self._hopeless: dict[tuple[int, str], bool] = {}
        self._changes: list[Change] = []
        self._node_infos: list[si.NodeInfo] = []
        self._applications: list[si.AddApplicationRequest] = []
        self._asks: list[AllocationEntry] = []
        self._withdrawn: list[AllocationEntry] = []
        self._releases: list[AllocationEntry] = []
        for application in scenario.applications:
            for group in application.tasks:
                self.accounts.plan_tasks(application.queue, group.count)

    def begin(self) -> None:
        """Plan the nodes, changes and applications of the scenario, each for its time."""
        for at_s, nodes in groupby(sorted(self.scenario.nodes, key=lambda entry: entry.at_s), lambda entry: entry.at_s):
            self._play_at(at_s, partial(self.create_nodes, list(nodes)))
        for change in self.scenario.changes:
            if not change.after_quiet:
                self._play_at(change.at_s, partial(self.reconfigure, change))
        timed = [entry for entry in self.scenario.applications if not entry.after_quiet]
        for at_s, together in groupby(sorted(timed, key=lambda entry: entry.at_s), lambda entry: entry.at_s):
            self._play_at(at_s, partial(self.add_applications, list(together)))

    def play_late(self) -> None:
        """Play what waits until the core is quiet."""
        self.late = False
        for change in self.scenario.changes:
            if change.after_quiet:
                self.reconfigure(change)
        self.add_applications([entry for entry in self.scenario.applications if entry.after_quiet])

    @property
    def all_sent(self) -> bool:
        """Tells whether everything of the scenario that has a time was sent and answered, and all its tasks asked
        for."""
        return not (self.unplayed or self.arriving or self._unanswered_nodes or self._unanswered or self._changes)

    def _play_at(self, at_s: float, act: Callable[[], None]) -> None:
        self.unplayed += 1

        def play() -> None:
            self.unplayed -= 1
            act()

        self._agenda.call_at(at_s, play)

    def create_nodes(self, groups: Iterable[NodeGroup]) -> None:
        """Report the nodes of *groups*, and plan the later changes of the nodes."""
        for group in groups:
            for node_id in group.node_ids():
                self._nodes[node_id] = group.resources
                self._node_used[node_id] = {}
                self._known_nodes.add(node_id)
                self.devices.add_node(node_id, group.devices)
                info = si.NodeInfo(
                    nodeID=node_id,
                    action=si.NodeInfo.CREATE,
                    attributes={**group.attributes, **(devices_attribute(group.devices) if group.devices else {})},
                    schedulableResource=resource(group.resources),
                )
                self._created_nodes[node_id] = info
                self._unanswered_nodes.add(node_id)
                self._node_infos.append(info)
                for at_s, action in (
                    (group.drain_s, si.NodeInfo.DRAIN_NODE),
                    (group.restore_s, si.NodeInfo.DRAIN_TO_SCHEDULABLE),
                    (group.remove_s, si.NodeInfo.DECOMISSION),
                ):
                    if at_s is not None:
                        self._agenda.call_at(at_s, partial(self._change_node, node_id, action))
        self._hopeless.clear()
        self._on_messages()

    def add_applications(self, applications: Sequence[Application]) -> None:
        """Add *applications*. The tasks of those that the core accepts are asked for."""
        for application in applications:
            self._added[application.id] = application
            self._unanswered.add(application.id)
            self._applications.append(describe_application(application))
        self._on_messages()

    def reconfigure(self, change: Change) -> None:
        """Replace the queue configuration."""
        self._changes.append(change)
        self._note_activity()

    def take_messages(self) -> Messages:
        """Returns what is to be sent now. Applications wait until the nodes before them are answered, because an ask
        may name one."""
        messages = Messages(
            self._changes,
            self._node_infos,
            [] if self._unanswered_nodes else self._applications,
            [*self._asks, *self._withdrawn, *self._releases],
        )
        for change in self._changes:
            self.accounts.set_limits(change.queues)
        if not self._unanswered_nodes:
            self._applications = []
        self._changes, self._node_infos = [], []
        self._asks, self._withdrawn, self._releases = [], [], []
        return messages

    def _change_node(self, node_id: str, action: si.NodeInfo.ActionFromRM.ValueType) -> None:
        if action == si.NodeInfo.DECOMISSION:
            # The core's releases of its tasks follow; the room of the node no longer counts for new tasks.
            self._nodes.pop(node_id, None)
            self._hopeless.clear()
        elif action == si.NodeInfo.DRAIN_NODE:
            self._drained_nodes.add(node_id)
        else:
            self._drained_nodes.discard(node_id)
        self._node_infos.append(si.NodeInfo(nodeID=node_id, action=action))
        self._on_messages()

    def _make_arrival(self, application: Application, group: TaskGroup) -> Callable[[], None]:
        submitted = 0
        began_s: float | None = None

        def arrive() -> None:
            nonlocal submitted, began_s
            if began_s is None:
                began_s = self._agenda.now_s
            due = group.count
            if group.arrival_per_s is not None:
                # This submits all tasks that were due since the last timer, so that a high rate does not depend on the
                # precision of timers.
                came = int((self._agenda.now_s - began_s) * group.arrival_per_s + 1e-6) + 1
                # A timer is for one task at least, whatever the rounding of its time says.
                due = min(due, max(came, submitted + 1))
            for index in range(submitted, due):
                originator = group.originator and index == 0
                self._submit_task(group.key(application.id, index), application, group, originator=originator)
            self.accounts.plan_tasks(application.queue, submitted - due)
            submitted = due
            if submitted < group.count and group.arrival_per_s is not None:
                self._agenda.call_at(began_s + submitted / group.arrival_per_s, arrive)
            else:
                self.arriving -= 1
                self._arrivals[application.id] -= 1

        return arrive

    def _submit_task(
        self, key: str, application: Application, group: TaskGroup, *, originator: bool, lives: int = 0
    ) -> None:
        now_s = self._agenda.real_s
        hopeless = self._fits_no_node(group)
        created_s = self._agenda.wall_ns // SECOND_NS
        task = Task(key, application, group, originator, hopeless, now_s, created_s, lives=lives)
        self.tasks[key] = task
        self.accounts.book_ask(application.queue, group.resources, hopeless=hopeless, at_s=now_s)
        self._asks.append(encode_ask(task.ask(), self.scenario.generation))
        self._observer.note_ask(task)
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
            case Allocated():
                self._start_task(update)
            case Released():
                self._handle_release(update)
            case AskReleased(key=key):
                self._drop_ask(key, TaskEvent.DROPPED)
            case AskRejected(key=key, reason=reason):
                self._note_anomaly(f"task {key} was refused: {reason}")
                self._drop_ask(key, TaskEvent.REFUSED)
            case NodeAccepted(node_id=node_id):
                self._unanswered_nodes.discard(node_id)
                self._on_messages()
                return
            case NodeRejected(node_id=node_id, reason=reason):
                self._note_anomaly(f"node {node_id} was refused: {reason}")
                self._unanswered_nodes.discard(node_id)
                self._created_nodes.pop(node_id, None)
                self._on_messages()
                return
            case ApplicationAccepted(application_id=name):
                if name in self._unanswered:
                    self._unanswered.discard(name)
                    self._plan_tasks(self._added[name])
                return
            case ApplicationRejected(application_id=name, reason=reason):
                self._give_up_application(name, reason)
                return
            case _:
                return
        self._note_activity()

    def _plan_tasks(self, application: Application) -> None:
        """Plan the tasks of *application*, which the core has accepted."""
        if application.fail_s is not None:
            self._agenda.call_at(application.fail_s, partial(self._fail_task, application))
        for group in application.tasks:
            self.arriving += 1
            self._arrivals[application.id] += 1
            self._agenda.call_later(group.at_s, self._make_arrival(application, group))

    def _give_up_application(self, name: str, reason: str) -> None:
        self._note_anomaly(f"application {name} was refused: {reason}")
        if name in self._unanswered:
            self._unanswered.discard(name)
            application = self._added.pop(name)
            for group in application.tasks:
                self.accounts.plan_tasks(application.queue, -group.count)

    def _start_task(self, update: Allocated) -> None:
        if (task := self._move_task(update.key, TaskEvent.PLACED)) is None:
            placed = self.tasks.get(update.key)
            if placed is not None and placed.node and placed.node != update.node_id:
                self._note_anomaly(f"task {update.key} was placed on {placed.node}, and again on {update.node_id}")
            return
        now_s = self._agenda.real_s
        queue, amounts = task.application.queue, task.group.resources
        task.node, task.devices = update.node_id, devices_of(update.message)
        self.accounts.remove_ask(queue, amounts, hopeless=task.hopeless)
        self.accounts.book_task(queue, amounts, waited_s=now_s - task.asked_s, at_s=now_s)
        self._book_room(task)
        self._observer.note_start(task)
        if task.group.runtime_s is not None:
            self._agenda.call_later(task.group.runtime_s, partial(self._end_after_runtime, task))

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
            self.accounts.book_victim(queue, amounts, key=task.key, at_s=self._agenda.real_s)
        if before is TaskState.RUNNING:
            self._agenda.call_later(self.scenario.releases.delay_s, partial(self._container_gone, task))
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
            self._forget_task(task)

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
            if not (self._hears_again and event in task.heard):
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
                    self._withdrawn.append(encode_withdrawal(self.scenario.generation, application.id, task.key))
                    self._drop_ask(task.key, TaskEvent.DROPPED)
                else:
                    self._end_after_runtime(task)

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call *act* after *seconds* of the core's time."""
        self._agenda.call_later(max(0.0, seconds) * self.scenario.speed, act)

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
                self._agenda.call_later(policy.retry_s, partial(self._confirm_again, task))
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
        self.accounts.remove_task(queue, amounts, victim=task.victim, at_s=self._agenda.real_s)
        used = self._node_used.get(task.node, {})
        for kind, amount in amounts.items():
            used[kind] = used.get(kind, 0) - amount
        self.devices.free(task.node, task.devices, task.group.devices)
        self._forget_task(task)

    def _forget_task(self, task: Task) -> None:
        """Note the end of *task*, about which the core says nothing more."""
        self._observer.note_end(task)
        if not self._keeps_ended:
            del self.tasks[task.key]

    def _recreate_task(self, task: Task) -> None:
        if task.group.restart and not self.fates[task.application.id].failed:
            self._submit_again(task)

    def _submit_again(self, task: Task) -> None:
        lives = task.lives + 1
        key = f"{task.key.removesuffix(f'.r{task.lives}')}.r{lives}"
        self.accounts.queues[task.application.queue].recreated += 1
        self._submit_task(key, task.application, task.group, originator=task.originator, lives=lives)

    def _send_release(self, task: Task, termination: si.TerminationType.ValueType) -> None:
        self._releases.append(make_release(self.scenario.generation, task.application.id, task.key, termination))
        self._note_activity()

    def _note_activity(self) -> None:
        self.last_activity_s = self._agenda.real_s
        self._on_messages()

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


def describe_application(application: Application) -> si.AddApplicationRequest:
    """Returns the request to add *application*."""
    return si.AddApplicationRequest(
        applicationID=application.id,
        queueName=application.queue,
        ugi=si.UserGroupInformation(user=application.user, groups=application.groups),
    )
