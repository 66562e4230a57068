"""The connection to the core: it registers, reports machines and jobs, asks for room, and passes the core's decisions
to the dispatcher.

Messages are queued without waiting. After each registration everything is reported again, so nothing is lost when a
core has lost its state. If only a stream broke, the entries that may have been lost with it are sent again, which does
no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import groupby
from typing import Final, TypeAlias

from kornel.shim_client import (
    Allocated,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    Ask,
    AskRejected,
    CallFailed,
    ConnectionLost,
    CoreUnreachable,
    Credentials,
    Device,
    Devices,
    NodeAccepted,
    NodeRejected,
    RegistrationRefused,
    Released,
    ResyncRequired,
    ShimClient,
    ShimClientError,
    StreamKind,
    StreamRefused,
    StreamReopened,
    Superseded,
    Update,
    devices_attribute,
    devices_of,
    resource,
)
from kornel.shim_local.jobs.dispatcher import Dispatcher, Node
from kornel.shim_local.jobs.task import Job, Task, TaskState
from kornel.shim_local.machine.capacity import Capacity
from kornel.si.v1 import si_pb2 as si

Entry: TypeAlias = Ask | si.Allocation | si.AllocationRelease | si.AddApplicationRequest | si.NodeInfo

AGAIN_S: Final = 1.0
REFUSED_AGAIN_S: Final = 10.0
CONFIRM_S: Final = 30.0
MOST_RELEASES: Final = 20_000
TASK_GROUP: Final = "tasks"
"""The task group of all members of a gang."""
OVER: Final = frozenset({"Completed", "Failed", "Failing", "Rejected"})
"""The states of an application in which it accepts no asks."""
_LOGGER: Final = logging.getLogger(__name__)


class CoreLink:
    """One registration with a core, which is repeated whenever it is lost."""

    def __init__(
        self,
        rm_id: str,
        find_core: Callable[[], Awaitable[str]],
        queues: Callable[[], str],
        credentials: Credentials | None = None,
    ) -> None:
        """Prepares a link. *find_core* returns the address of the core, after starting one if necessary; *queues*
        returns the configuration to send."""
        self.rm_id: Final = rm_id
        self.state = "not connected yet"
        """The state of the connection, in words; empty while it works."""
        self.refusal: RegistrationRefused | None = None
        """The refusal of the last registration."""
        self._find_core = find_core
        self._queues = queues
        self._credentials = credentials
        self._dispatcher: Dispatcher | None = None
        self._sent_queues = ""
        self._reset_state()

    def _reset_state(self) -> None:
        self._entries: deque[Entry] = deque()
        self._filled = asyncio.Event()
        self._applications: dict[str, bool] = {}
        """The applications that were reported to the core, and whether it has accepted them."""
        self._unasked: dict[str, list[tuple[Job, Task, str]]] = defaultdict(list)
        """The asks that wait for their application to be accepted."""
        self._unconfirmed: set[str] = set()
        self._confirmed = asyncio.Event()
        self._releases: dict[str, si.AllocationRelease] = {}
        self._known_nodes: set[str] = set()

    @property
    def partition(self) -> str:
        """The full name of the partition of the machines and jobs. Another manager of the core may have a partition
        with the same short name."""
        return f"[{self.rm_id}]default"

    def attach(self, dispatcher: Dispatcher) -> None:
        """Set the dispatcher that carries out the core's decisions."""
        self._dispatcher = dispatcher

    @property
    def is_attached(self) -> bool:
        """Tells whether there is a dispatcher yet."""
        return self._dispatcher is not None

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher that :meth:`attach` has set."""
        assert self._dispatcher is not None, "it is attached before anything runs"
        return self._dispatcher

    def request_room(self, job: Job, task: Task) -> None:
        """Ask for room for the current attempt of *task*."""
        application = job.application_id
        if self._applications.get(application):
            self._send(_make_ask(job, task))
            return
        self._unasked[application].append((job, task, task.key))
        if application not in self._applications:
            self._applications[application] = False
            self._send(_make_application(job))

    def release(self, job: Job, key: str, termination: int) -> None:
        """Tell the core that an attempt is over, or withdraw its ask."""
        release = si.AllocationRelease(
            applicationID=job.application_id,
            allocationKey=key,
            terminationType=si.TerminationType.ValueType(termination),
        )
        self._releases[key] = release
        if len(self._releases) > MOST_RELEASES:
            del self._releases[next(iter(self._releases))]
        self._send(release)

    def report_node(self, node: Node) -> None:
        """Tell the core about a machine that is new, has changed, is connected again, or is away."""
        if node.name not in self._known_nodes:
            self._known_nodes.add(node.name)
            self._send(_make_node(node, si.NodeInfo.CREATE if node.online else si.NodeInfo.CREATE_DRAIN))
        else:
            self._send(_make_node(node, si.NodeInfo.UPDATE))
            self._send(_make_node(node, si.NodeInfo.DRAIN_TO_SCHEDULABLE if node.online else si.NodeInfo.DRAIN_NODE))

    def remove_node(self, name: str) -> None:
        """Remove a machine from the core."""
        self._known_nodes.discard(name)
        self._send(si.NodeInfo(nodeID=name, action=si.NodeInfo.DECOMISSION))

    def _send(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._filled.set()

    async def _update_queues(self, client: ShimClient) -> None:
        """Sends the present queue configuration to the core, because the built-in queues depend on the machines."""
        if (queues := self._queues()) != self._sent_queues:
            self._sent_queues = queues
            try:
                await client.update_configuration(queues)
            except CallFailed as error:
                _LOGGER.warning("the queues could not be changed: %s", error)

    async def run(self) -> None:
        """Stay registered until this call is cancelled.

        Raises RegistrationRefused if the first registration is refused, and Superseded if another program has
        registered as the same manager, because registering again would take the core from that program, and so on for
        ever.
        """
        registered = False
        while True:
            try:
                address = await self._find_core()
                async with ShimClient(address, self.rm_id, credentials=self._credentials) as client:
                    while True:
                        self._sent_queues = self._queues()
                        await client.register(config=self._sent_queues)
                        registered, self.refusal = True, None
                        with suppress(ResyncRequired):
                            await self._serve(client)
                            return
                        _LOGGER.warning("the core has lost our registration; registering again")
                        self.state = "registering again"
            except RegistrationRefused as error:
                self.state, self.refusal = str(error), error
                if not registered:
                    raise
                _LOGGER.error("%s; trying again in %g s", error, REFUSED_AGAIN_S)
                await asyncio.sleep(REFUSED_AGAIN_S)
            except Superseded:
                raise
            except (CoreUnreachable, ConnectionLost, StreamRefused) as error:
                self.state = str(error)
                _LOGGER.warning("%s; trying again in %g s", error, AGAIN_S)
                await asyncio.sleep(AGAIN_S)

    async def _serve(self, client: ShimClient) -> None:
        """Reports everything, and then carries out the core's decisions until the registration is lost."""
        self._reset_state()
        self.dispatcher.reset_terminations()
        nodes = list(self.dispatcher.nodes.values())
        running = list(self.dispatcher.live_tasks(TaskState.RUNNING))
        queued = list(self.dispatcher.live_tasks(TaskState.QUEUED))
        # Everything that happens from here on is queued, and sent after this report.
        self._known_nodes.update(node.name for node in nodes)
        jobs = {job.id: job for job, _ in (*running, *queued)}
        self._applications = {job.application_id: False for job in jobs.values()}
        self._unconfirmed = {task.key for _, task in running}
        reports = [_make_report(job, task) for job, task in running]
        for job, task in queued:
            self._unasked[job.application_id].append((job, task, task.key))
        writer = asyncio.create_task(self._report_all(client, nodes, list(jobs.values()), reports), name="writer")
        try:
            async for updates in client.update_batches():
                for update in updates:
                    self._receive(update)
                if writer.done():
                    writer.result()
        finally:
            writer.cancel()
            with suppress(asyncio.CancelledError, ShimClientError):
                await writer

    async def _report_all(
        self, client: ShimClient, nodes: Iterable[Node], jobs: Iterable[Job], reports: Iterable[si.Allocation]
    ) -> None:
        """Reports machines, jobs and running tasks, in this order; then opens the machines and continues to carry out
        decisions."""
        unasked, self._unasked = self._unasked, defaultdict(list)
        # At first the machines are reported as draining, so that nothing is placed in room that is about to be reported
        # as used.
        await client.create_nodes([_make_node(node, si.NodeInfo.CREATE_DRAIN) for node in nodes])
        await client.add_applications([_make_application(job) for job in jobs])
        await client.report_allocations(reports)
        if self._unconfirmed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._confirmed.wait(), CONFIRM_S)
        for waiting in unasked.values():
            for job, task, key in waiting:
                if task.key == key and task.state is TaskState.QUEUED:
                    self.request_room(job, task)
        for node in nodes:
            if node.online:
                self._send(_make_node(node, si.NodeInfo.DRAIN_TO_SCHEDULABLE))
        self.state = ""
        _LOGGER.info("registered with the core at %s as %s", client.address, client.rm_id)
        while True:
            await self._filled.wait()
            self._filled.clear()
            entries, self._entries = self._entries, deque()
            for kind, group in groupby(entries, type):
                await _write(client, kind, list(group))
                if kind is si.NodeInfo:
                    await self._update_queues(client)

    def _receive(self, update: Update) -> None:
        dispatcher = self.dispatcher
        match update:
            case Allocated(key=key, application_id=application, node_id=node, message=message):
                self._confirm_report(key)
                dispatcher.place_task(key, application, node, devices_of(message))
            case Released(key=key, application_id=application, termination=termination, message=message):
                if key in self._releases and not update.wants_confirmation:
                    del self._releases[key]
                dispatcher.release_task(key, application, termination, message, wanted=update.wants_confirmation)
            case AskRejected(key=key, application_id=application, reason=reason):
                self._confirm_report(key)
                if reason.startswith("application-not-found") and self._applications.pop(application, False):
                    # The core has completed the application because it was idle for too long.
                    self._ask_again(application)
                else:
                    _LOGGER.warning("the core refuses %s: %s", key, reason)
                    dispatcher.refuse_task(key, reason)
            case ApplicationAccepted(application_id=application):
                self._accept_application(application)
            case ApplicationRejected(application_id=application, reason=reason):
                if reason.startswith("application-exists"):
                    self._accept_application(application)
                else:
                    _LOGGER.warning("the core refuses %s: %s", application, reason)
                    self._applications.pop(application, None)
                    self._unasked.pop(application, None)
                    dispatcher.refuse_application(_job_number(application), reason)
            case ApplicationUpdated(application_id=application, state=state):
                if state in OVER:
                    self._applications.pop(application, None)
            case NodeRejected(node_id=name, reason=reason) if not reason.startswith("node-exists"):
                _LOGGER.error("the core refuses the machine %s: %s", name, reason)
                self._known_nodes.discard(name)
                asyncio.get_running_loop().call_later(REFUSED_AGAIN_S, self._report_again, name)
            case StreamReopened(stream=stream, exact=False):
                self._send_again(stream)
            case NodeAccepted() | NodeRejected() | StreamReopened() | _:
                pass

    def _confirm_report(self, key: str) -> None:
        self._unconfirmed.discard(key)
        if not self._unconfirmed:
            self._confirmed.set()

    def _accept_application(self, application: str) -> None:
        self._applications[application] = True
        for job, task, key in self._unasked.pop(application, []):
            if task.key == key and task.state is TaskState.QUEUED:
                self._send(_make_ask(job, task))

    def _ask_again(self, application: str) -> None:
        for job, task in list(self.dispatcher.live_tasks(TaskState.QUEUED)):
            if job.application_id == application:
                self.request_room(job, task)

    def _report_again(self, name: str) -> None:
        node = self.dispatcher.nodes.get(name)
        if node is not None and name not in self._known_nodes:
            self.report_node(node)

    def _send_again(self, stream: StreamKind) -> None:
        """Sends the entries again that may have been lost with a stream."""
        if self.state:
            return
        if stream is StreamKind.NODE:
            for node in self.dispatcher.nodes.values():
                self._known_nodes.discard(node.name)
                self.report_node(node)
                self.report_node(node)
        elif stream is StreamKind.APPLICATION:
            unaccepted = {name for name, accepted in self._applications.items() if not accepted}
            for job in list(self.dispatcher.jobs.values()):
                if job.application_id in unaccepted:
                    self._send(_make_application(job))
        else:
            for release in self._releases.values():
                self._send(release)
            for job, task in self.dispatcher.live_tasks(TaskState.QUEUED):
                if self._applications.get(job.application_id):
                    self._send(_make_ask(job, task))


async def _write(client: ShimClient, kind: type, entries: list[Entry]) -> None:
    """Passes entries of one kind to their stream."""
    if kind is Ask:
        await client.submit_asks(each for each in entries if isinstance(each, Ask))
    elif kind is si.Allocation:
        await client.report_allocations(each for each in entries if isinstance(each, si.Allocation))
    elif kind is si.AllocationRelease:
        await client.release(each for each in entries if isinstance(each, si.AllocationRelease))
    elif kind is si.AddApplicationRequest:
        await client.send_applications(each for each in entries if isinstance(each, si.AddApplicationRequest))
    else:
        await client.send_nodes(each for each in entries if isinstance(each, si.NodeInfo))


def _make_node(node: Node, action: si.NodeInfo.ActionFromRM.ValueType) -> si.NodeInfo:
    capacity = Capacity(**node.record["capacity"])
    with_amounts = action in (si.NodeInfo.CREATE, si.NodeInfo.CREATE_DRAIN, si.NodeInfo.UPDATE)
    return si.NodeInfo(
        nodeID=node.name,
        action=action,
        schedulableResource=resource(capacity.to_resources()) if with_amounts else None,
        attributes={"si/hostname": node.name, **_report_gpus(node)} if with_amounts else {},
    )


def _report_gpus(node: Node) -> dict[str, str]:
    """Returns the attribute that names the GPUs of a machine. An agent of an earlier version only counts them."""
    gpus = node.record.get("devices") or [{"number": str(at)} for at in range(node.record["capacity"]["gpus"])]
    return devices_attribute(Device(gpu["number"], gpu.get("type", ""), gpu.get("memory", 0)) for gpu in gpus)


def _make_application(job: Job) -> si.AddApplicationRequest:
    spec = job.spec
    return si.AddApplicationRequest(
        applicationID=job.application_id,
        queueName=spec.queue_path,
        ugi=si.UserGroupInformation(user=spec.user, groups=spec.groups or (spec.user,)),
        # The name of a program may contain bytes that are no valid text.
        tags={"kornel.name": spec.shown_name[:200].encode("utf-8", "replace").decode()},
        # The core has no placeholders of this gang, and takes this amount for that of its minimum.
        placeholderAsk=resource({name: spec.at_least * amount for name, amount in _list_amounts(job).items()})
        if spec.is_gang
        else None,
        gangSchedulingStyle="Hard" if spec.is_gang else "",
    )


def _list_amounts(job: Job) -> dict[str, int]:
    spec = job.spec
    # Queues count whole GPUs; parts of one are the matter of devices alone.
    wanted = Capacity(spec.vcore, spec.memory, int(spec.gpu)).to_resources()
    return {name: amount for name, amount in wanted.items() if amount}


def _make_ask(job: Job, task: Task) -> Ask:
    return Ask(
        task.key,
        job.application_id,
        _list_amounts(job),
        priority=job.spec.priority,
        allow_preempt_self=job.spec.preemptible,
        allow_preempt_other=True,
        created_s=int(job.submitted_s),
        devices=_list_wants(job.spec.gpu),
        task_group=TASK_GROUP if job.spec.is_gang else "",
    )


def _list_wants(gpu: float) -> Devices | None:
    """Returns the request for *gpu* whole GPUs, or for a part of one."""
    if not gpu:
        return None
    return Devices(count=int(gpu)) if gpu >= 1 else Devices(fraction=gpu)


def _make_report(job: Job, task: Task) -> si.Allocation:
    report = _make_ask(job, task).to_g3()
    report.nodeID = task.node
    if task.gpus:
        report.allocationTags["kornel.gpu.devices"] = ",".join(task.gpus)
    return report


def _job_number(application: str) -> int:
    number = application.removeprefix("job-")
    return int(number) if number.isascii() and number.isdigit() else 0
