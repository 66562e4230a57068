"""Decisions about jobs: the asks for the core, the attempts that agents start and stop, and the next state of each
task.

Nothing is sent before the change that causes it is stored. Changes of one turn of the event loop are stored together,
and the messages that follow from them are sent afterwards. While the store cannot be written, nothing is sent, and
writing is tried again every second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from kornel.shim_local.amounts import MOST_INDEXES
from kornel.shim_local.jobs.outcome import PREEMPT, REFUSED, judge_end
from kornel.shim_local.jobs.spec import JobSpec
from kornel.shim_local.jobs.store import JobStore, StoreUnwritable
from kornel.shim_local.jobs.task import CANCEL, RETIRE, SINGLE, Job, Task, TaskState, split_name

WRITE_AGAIN_S: Final = 1.0
MOST_ENDED: Final = 1000
"""The number of ended tasks, of those by which an array has grown, that its job keeps when it grows further."""
STOPPED: Final = 1
"""The termination type STOPPED_BY_RM of the wire: the shim itself ended the allocation."""
LOST: Final = 5
"""The termination type SCHEDULING_FAILED_ON_RM of the wire: the allocation was lost, and its ask waits again."""
_LOGGER: Final = logging.getLogger(__name__)


class Refused(Exception):
    """A request of a user is not possible; the message gives the reason."""


@dataclass(slots=True)
class Node:
    """A machine. *record* is the last report of its agent."""

    name: str
    record: dict[str, Any]
    online: bool = False


class CorePort(Protocol):
    """The connection to the core. Its methods do not wait; entries that cannot be sent now are reported when the core
    is back."""

    def request_room(self, job: Job, task: Task) -> None:
        """Ask for room for the current attempt of *task*."""

    def release(self, job: Job, key: str, termination: int) -> None:
        """Tell the core that an attempt is over, or withdraw its ask."""

    def report_node(self, node: Node) -> None:
        """Tell the core about a machine that is new, has changed, is connected again, or is away."""

    def remove_node(self, name: str) -> None:
        """Remove a machine from the core."""


class AgentsPort(Protocol):
    """The connections to agents."""

    def send(self, node: str, message: Mapping[str, Any]) -> None:
        """Send a message to the agent of *node*. If the agent is away, the message is lost; everything is compared when
        the agent is back."""


class Dispatcher:
    """All live jobs, and the decisions about them."""

    def __init__(self, store: JobStore, core: CorePort, agents: AgentsPort, now: Callable[[], float]) -> None:
        self.store: Final = store
        self.core: Final = core
        self.agents: Final = agents
        self._now = now
        self.jobs: Final[dict[int, Job]] = store.load_live()
        """The jobs that have not ended, by ID."""
        self.nodes: Final = {name: Node(name, record) for name, record in store.load_nodes().items()}
        self.trouble = ""
        """The reason why the store cannot be written at the moment; empty if it can."""
        self._current: dict[str, Task] = {}
        self._open: dict[int, int] = {number: job.count_open() for number, job in self.jobs.items()}
        """The number of open tasks of each live job. Counting them at each end of a task would take long in a large
        array."""
        self._terminations: dict[str, int] = {}
        self._paused: set[str] = set()
        self._held: dict[int, Iterator[Task]] = {}
        self._awaited = {each for job in self.jobs.values() for each in job.spec.predecessors if isinstance(each, str)}
        """The names of single tasks for which jobs wait, or have waited."""
        self._waiting: dict[int, list[asyncio.Future[None]]] = defaultdict(list)
        self._changed: dict[str, Task] = {}
        self._effects: list[Callable[[], None]] = []
        self._scheduled = False
        for job in self.jobs.values():
            for task in job.tasks.values():
                if task.state in (TaskState.QUEUED, TaskState.RUNNING):
                    self._current[task.key] = task
        for job in list(self.jobs.values()):
            self._release_held(job)

    def live_tasks(self, state: TaskState) -> Iterator[tuple[Job, Task]]:
        """Yields the tasks in *state* that the core has to know, with their jobs."""
        for key, task in self._current.items():
            if task.state is state and key not in self._paused:
                yield self.jobs[task.job], task

    def is_paused(self, task: Task) -> bool:
        """Tells whether *task* is kept from the core for a while before it is tried again."""
        return task.key in self._paused

    def submit(self, spec: JobSpec) -> Job:
        """Stores a new job and returns it. Raises Refused."""
        for needed in spec.predecessors:
            _, tasks = self.find_tasks(str(needed))
            if needed in spec.after and have_failed(tasks):
                raise Refused(f"job {needed}, after which this one shall run, did not end well")
        try:
            job = self.store.add_job(spec, self._now(), self._choose_state(spec), spec.indexes or (SINGLE,))
        except StoreUnwritable as error:
            raise Refused(str(error)) from None
        self.jobs[job.id] = job
        self._open[job.id] = 0
        self._awaited.update(needed for needed in spec.predecessors if isinstance(needed, str))
        self._begin_tasks(job, list(job.tasks.values()))
        return job

    def scale_job(self, job: Job, size: int) -> None:
        """Adds tasks to an array, even to one that has ended, or stops some, so that *size* tasks wait or run. Those
        that wait are stopped before those that run, which get the notice of a preemption, and of each the latest first.
        Raises Refused."""
        spec = job.spec
        if not spec.indexes:
            raise Refused(f"job {job.id} is no array, and so cannot have {size} tasks")
        if size < 0 or 0 < size < spec.at_least:
            raise Refused(f"job {job.id} needs at least {spec.at_least} tasks, or none; it cannot have {size}")
        live = [each for each in job.tasks.values() if not each.state.is_final and not each.is_cancelled]
        if size <= len(live):
            live.sort(key=lambda task: (task.state is TaskState.RUNNING, -task.index))
            self.cancel(job, live[: len(live) - size], warned=True)
            return
        # A group that grows and shrinks for weeks must not make its job larger and larger.
        submitted = max(spec.indexes)
        ended = sorted(index for index, each in job.tasks.items() if each.state.is_final and index > submitted)
        dropped = [job.tasks[index] for index in ended[:-MOST_ENDED]]
        kept = len(job.tasks) - len(dropped)
        if kept + size - len(live) > MOST_INDEXES:
            raise Refused(f"job {job.id} has too many tasks: {kept} of at most {MOST_INDEXES}; start another one")
        first, state = max(job.tasks) + 1, self._choose_state(spec)
        tasks = [Task(job.id, index, state) for index in range(first, first + size - len(live))]
        try:
            self.store.save_changes(tasks, dropped)
        except StoreUnwritable as error:
            raise Refused(str(error)) from None
        for task in dropped:
            del job.tasks[task.index]
            self._changed.pop(task.name, None)
        job.tasks.update((task.index, task) for task in tasks)
        self.jobs[job.id] = job
        self._begin_tasks(job, tasks)

    def _choose_state(self, spec: JobSpec) -> TaskState:
        """Returns the state in which new tasks begin."""
        return TaskState.HELD if spec.at_once or not self._may_start(spec) else TaskState.QUEUED

    def _begin_tasks(self, job: Job, tasks: Iterable[Task]) -> None:
        """Asks for room for new *tasks*, as many as the job may have at a time."""
        self._open[job.id] = job.count_open()
        self._release_held(job)
        for task in tasks:
            if task.state is TaskState.QUEUED and task.key not in self._current:
                self._current[task.key] = task
                self.core.request_room(job, task)

    def find_job(self, number: int) -> Job:
        """Returns a job, whether live or ended. Raises Refused."""
        job = self.jobs.get(number) or self.store.load_job(number)
        if job is None:
            raise Refused(f"there is no job {number}")
        return job

    def find_tasks(self, name: str) -> tuple[Job, list[Task]]:
        """Returns the job *name* and its tasks: all tasks for ``17``, one task for ``17.3``. Raises Refused."""
        parts = split_name(name)
        if not parts:
            raise Refused(f"{name!r} is not a job; write its number, such as 17, or 17.3 for one task of an array")
        job = self.find_job(parts[0])
        if len(parts) == 1:
            return job, [job.tasks[each] for each in sorted(job.tasks)]
        task = job.tasks.get(parts[1])
        if task is None or task.index == SINGLE:
            raise Refused(f"job {job.id} has no task {name}")
        return job, [task]

    def hold(self, job: Job) -> bool:
        """Starts none of the tasks of *job* that wait until it is released. Those that run go on. Returns whether it
        was not held before. Raises Refused."""
        if not self._save_spec(job, {"on_hold": True}):
            return False
        self._held.pop(job.id, None)
        for task in job.tasks.values():
            if task.state is TaskState.QUEUED:
                key = task.key
                del self._current[key]
                # The core may have placed this attempt a moment ago. It must not be taken for the next one.
                task.start_over()
                task.state = TaskState.HELD
                self._note_change(task)
                if key not in self._paused:
                    self._do_later(lambda key=key: self.core.release(job, key, STOPPED))  # type: ignore[misc]
                self._paused.discard(key)
        return True

    def release(self, job: Job) -> bool:
        """Lets the tasks of *job* start again. Returns whether it was held. Raises Refused."""
        if not self._save_spec(job, {"on_hold": False}):
            return False
        self._release_held(job)
        return True

    def change(self, job: Job, values: Mapping[str, Any]) -> bool:
        """Changes *values* of a job that waits, which keeps its place in line as far as the new ones let it. Returns
        whether any differs. Raises Refused, or BadSpec."""
        if any(task.state is TaskState.RUNNING for task in job.tasks.values()):
            raise Refused(f"job {job.id} runs, and can no longer be changed")
        if job.spec.is_gang and values.keys() & {"vcore", "memory", "gpu"}:
            raise Refused(f"the tasks of job {job.id} start together, with the amounts with which they were submitted")
        if not self._save_spec(job, values):
            return False
        for task in job.tasks.values():
            if task.state is TaskState.QUEUED and not self.is_paused(task):
                # An ask that is sent again under its key takes the place of the one before.
                self._do_later(lambda task=task, key=task.key: self._request_room(job, task, key))  # type: ignore[misc]
        return True

    def _save_spec(self, job: Job, values: Mapping[str, Any]) -> bool:
        """Stores new *values* of *job*. Returns whether any differs."""
        if job.id not in self.jobs:
            raise Refused(f"job {job.id} has ended")
        before = job.spec
        job.spec = JobSpec.from_json(before.to_json() | dict(values))
        if job.spec == before:
            return False
        try:
            self.store.save_spec(job)
        except StoreUnwritable as error:
            job.spec = before
            raise Refused(str(error)) from None
        return True

    def cancel(self, job: Job, tasks: Iterable[Task], *, warned: bool = False) -> int:
        """Cancels *tasks*; if *warned*, those that run get the notice of a preemption first. Returns how many of them
        will end, or end sooner, because of this."""
        stopped = 0
        for task in list(tasks):
            if task.state.is_final or task.stopping == CANCEL or (warned and task.is_cancelled):
                continue
            stopped += 1
            if task.state is TaskState.RUNNING:
                self._stop(task, RETIRE if warned else CANCEL)
            else:
                if task.state is TaskState.QUEUED:
                    self._do_later(lambda key=task.key: self.core.release(job, key, STOPPED))  # type: ignore[misc]
                self._finish_task(job, task, TaskState.CANCELLED, "cancelled")
        return stopped

    async def wait_for_job(self, number: int) -> Job:
        """Returns a job once it has ended and its end is stored. Raises Refused."""
        job = self.find_job(number)
        if number in self.jobs:
            over = asyncio.get_running_loop().create_future()
            self._waiting[number].append(over)
            await over
        return job

    def place_task(self, key: str, application_id: str, node: str, gpus: tuple[str, ...] = ()) -> None:
        """Start the task *key* on *node* with *gpus*, as the core has decided."""
        task = self._current.get(key)
        if task is None:
            self._answer_unknown(key, application_id, STOPPED)
            return
        if task.state is not TaskState.QUEUED:
            return
        job = self.jobs[task.job]
        known = self.nodes.get(node)
        if known is None or not known.online:
            # The core placed it before it learned that the agent is away. Nothing was started, so the task may be
            # placed elsewhere.
            self._try_again(job, task, f"the agent of {node} is away", 0.0)
            self._do_later(lambda: self.core.release(job, key, STOPPED))
            return
        task.state = TaskState.RUNNING
        task.node, task.gpus = node, gpus
        task.reason = ""
        self._note_change(task, lambda: self._send_start(job, task, key))

    def release_task(self, key: str, application_id: str, termination: int, message: str, *, wanted: bool) -> None:
        """Stop the task *key*, as the core has decided. *wanted* says whether the core waits for a confirmation."""
        task = self._current.get(key)
        if task is None:
            if wanted:
                self._answer_unknown(key, application_id, termination)
            return
        job = self.jobs[task.job]
        if task.state is TaskState.QUEUED:
            if wanted:
                self.core.release(job, key, termination)
            else:
                self._finish_task(
                    job, task, TaskState.FAILED, f"the core dropped it: {message}" if message else "dropped"
                )
            return
        if wanted:
            self._terminations[key] = termination
        if not task.is_cancelled:
            task.reason = message
            self._stop(task, PREEMPT)

    def refuse_task(self, key: str, reason: str) -> None:
        """Give up the task *key*, because the core has refused it."""
        task = self._current.get(key)
        if task is None:
            return
        if task.state is TaskState.QUEUED:
            self._finish_task(self.jobs[task.job], task, TaskState.FAILED, reason)
        elif not task.is_cancelled:
            task.reason = reason
            self._stop(task, REFUSED)

    def refuse_application(self, number: int, reason: str) -> None:
        """Give up all tasks of a job, because the core has refused its application."""
        if (job := self.jobs.get(number)) is not None:
            for task in list(job.tasks.values()):
                if task.state in (TaskState.QUEUED, TaskState.RUNNING):
                    self.refuse_task(task.key, reason)

    def reset_terminations(self) -> None:
        """Drop the confirmations that the core waited for, because it has forgotten them."""
        self._terminations.clear()

    def find_stranger(self, hello: Mapping[str, Any]) -> str:
        """Returns the reason why an agent must not replace the earlier one of the same name, or an empty text if it
        may.

        Such an agent does not know the attempts of the earlier one, and would start them a second time.
        """
        name = str(hello["node"])
        known = self.nodes[name].record.get("identity", "") if name in self.nodes else ""
        if not known or known == hello.get("identity", ""):
            return ""
        number = sum(task.node == name for _, task in self.live_tasks(TaskState.RUNNING))
        if not number:
            return ""
        return (
            f"another agent was connected as {name}, where {number} tasks may still run; choose another --name, or if"
            f" that one is gone for good: kornel-local forget {name}"
        )

    def connect_agent(self, hello: Mapping[str, Any]) -> None:
        """Accept the machine of an agent that has connected, and compare the attempts that run there with those that
        should."""
        name = str(hello["node"])
        record = {each: hello[each] for each in ("capacity", "limits", "boot")}
        record["devices"] = hello.get("devices", [])
        record |= {"identity": hello.get("identity", ""), "seen_s": self._now()}
        node = self.nodes.setdefault(name, Node(name, record))
        node.record, node.online = record, True
        try:
            self.store.save_node(name, record)
        except StoreUnwritable as error:
            _LOGGER.warning("%s", error)
        attempts: Mapping[str, Mapping[str, Any]] = hello["attempts"]
        for job, task in list(self.live_tasks(TaskState.RUNNING)):
            if task.node != name:
                continue
            known = attempts.get(task.key)
            if known is None:
                if task.stopping:
                    self.end_attempt(task.key, {"at": self._now(), "stopped": task.stopping, "never": True})
                else:
                    self._do_later(lambda job=job, task=task, key=task.key: self._send_start(job, task, key))  # type: ignore[misc]
                continue
            if known["start"] is not None:
                self.start_task(task.key, known["start"]["at"])
            if known["end"] is not None:
                self.end_attempt(task.key, known["end"])
            elif task.stopping:
                self._stop(task, task.stopping)
        for key, known in attempts.items():
            current = self._current.get(key)
            if current is None or current.node != name:
                if known["end"] is not None:
                    self._confirm_end(name, key)
                else:
                    self.agents.send(name, {"do": "stop", "key": key, "reason": CANCEL, "grace_s": 0.0})
        self._do_later(lambda: self.core.report_node(node))

    def disconnect_agent(self, name: str) -> None:
        """Have nothing more placed on a machine whose agent is away. The attempts that run there are left alone."""
        node = self.nodes[name]
        node.online = False
        node.record["seen_s"] = self._now()
        self._do_later(lambda: self.core.report_node(node))

    def forget_node(self, name: str) -> int:
        """Give up a machine for good, because a user knows that it is dead. Returns the number of lost tasks."""
        node = self.nodes.get(name)
        if node is None:
            raise Refused(f"there is no machine {name}")
        if node.online:
            raise Refused(f"the agent of {name} is connected; stop it first")
        lost = [task for _, task in self.live_tasks(TaskState.RUNNING) if task.node == name]
        for task in lost:
            self.end_attempt(task.key, {"at": self._now(), "lost": f"{name} was given up", "stopped": task.stopping})
        del self.nodes[name]
        self.store.remove_node(name)
        self._do_later(lambda: self.core.remove_node(name))
        return len(lost)

    def start_task(self, key: str, at: float) -> None:
        """Note when the process of an attempt was started."""
        task = self._current.get(key)
        if task is not None and task.state is TaskState.RUNNING and not task.started_s:
            task.started_s = at
            self._note_change(task)

    def end_attempt(self, key: str, end: Mapping[str, Any], node: str = "") -> None:
        """Decide the next state of the task of an attempt that has ended."""
        task = self._current.get(key)
        if task is None or task.state is not TaskState.RUNNING:
            if node:
                self._confirm_end(node, key)
            return
        job, where = self.jobs[task.job], task.node
        outcome = judge_end(task, job.spec, end)
        task.status = end.get("status")
        task.failures += outcome.failed
        task.losses = outcome.losses
        task.preemptions += outcome.preempted
        termination = self._terminations.pop(key, STOPPED)
        if outcome.state.is_final:
            self._finish_task(job, task, outcome.state, outcome.reason, float(end["at"]))
        else:
            self._try_again(job, task, outcome.reason, outcome.pause_s)
            if job.spec.is_gang and not outcome.preempted and (end.get("lost") or end.get("unready")):
                # The core counts a member that was lost as missing, and one that was only stopped as done.
                self._do_later(lambda: self.core.release(job, key, LOST))
        self._do_later(lambda: self.core.release(job, key, termination))
        self._do_later(lambda: self._confirm_end(where, key))

    def _send_start(self, job: Job, task: Task, key: str) -> None:
        if task.key == key and task.state is TaskState.RUNNING and not task.stopping:
            self.agents.send(task.node, {"do": "start", "key": key, "spec": make_attempt_spec(job, task)})

    def _stop(self, task: Task, reason: str) -> None:
        """Has the agent stop a running *task*, with the notice that *reason* gives it."""
        task.stopping = reason
        grace_s = self.jobs[task.job].spec.grace_s if reason in (PREEMPT, RETIRE) else 0.0
        sent = CANCEL if task.is_cancelled else reason
        message = {"do": "stop", "key": task.key, "reason": sent, "grace_s": grace_s}
        self._note_change(task, lambda node=task.node: self.agents.send(node, message))  # type: ignore[misc]

    def _confirm_end(self, node: str, key: str) -> None:
        self.agents.send(node, {"do": "confirm", "key": key})

    def _answer_unknown(self, key: str, application_id: str, termination: int) -> None:
        number = application_id.removeprefix("job-")
        if number.isascii() and number.isdigit():
            job = self.jobs.get(int(number)) or self.store.load_job(int(number))
            if job is not None:
                self.core.release(job, key, termination)

    def _try_again(self, job: Job, task: Task, reason: str, pause_s: float) -> None:
        """Queues the next attempt of *task*."""
        del self._current[task.key]
        task.start_over()
        task.reason = reason
        if job.spec.on_hold:
            task.state = TaskState.HELD
            self._note_change(task)
            return
        key = task.key
        self._current[key] = task
        if pause_s:
            self._paused.add(key)
            asyncio.get_running_loop().call_later(pause_s, self._end_pause, job, task, key)
            self._note_change(task)
        else:
            self._note_change(task, lambda: self._request_room(job, task, key))

    def _end_pause(self, job: Job, task: Task, key: str) -> None:
        self._paused.discard(key)
        self._request_room(job, task, key)

    def _request_room(self, job: Job, task: Task, key: str) -> None:
        if task.key == key and task.state is TaskState.QUEUED:
            self.core.request_room(job, task)

    def _finish_task(self, job: Job, task: Task, state: TaskState, reason: str, at: float = 0.0) -> None:
        """Ends *task* for good."""
        had_begun = self._current.pop(task.key, None) is not None
        task.state, task.reason, task.stopping = state, reason, ""
        task.ended_s = at or self._now()
        self._open[job.id] -= 1
        if task.name in self._awaited:
            self._do_later(lambda: self._end_waiting(task.name))
        if not self._open[job.id]:
            self._note_change(task, lambda: self._close_job(job))
        else:
            follows = had_begun and job.spec.at_once
            self._note_change(task, (lambda: self._queue_held(job, 1)) if follows else None)

    def _close_job(self, job: Job) -> None:
        # It may have got further tasks since its last one ended.
        if self._open.get(job.id) != 0:
            return
        del self.jobs[job.id], self._open[job.id]
        self._held.pop(job.id, None)
        for over in self._waiting.pop(job.id, []):
            if not over.done():
                over.set_result(None)
        self._end_waiting(job.id)

    def _end_waiting(self, ended: int | str) -> None:
        """Looks at the jobs that waited for a job or task that has *ended*."""
        for other in list(self.jobs.values()):
            if ended in other.spec.predecessors:
                self._release_held(other)

    def _release_held(self, job: Job) -> None:
        """Queues the held tasks of *job*, as many as it may have at a time, if the jobs that they wait for are done,
        and cancels them if those can no longer succeed."""
        held = [task for task in job.tasks.values() if task.state is TaskState.HELD]
        if not held:
            return
        for needed in job.spec.after:
            if have_failed(self._find_needed(needed)):
                for task in held:
                    self._finish_task(job, task, TaskState.CANCELLED, f"job {needed} did not end well")
                return
        if self._may_start(job.spec):
            self._held[job.id] = (task for task in held if task.state is TaskState.HELD)
            begun = sum(task.state in (TaskState.QUEUED, TaskState.RUNNING) for task in job.tasks.values())
            self._queue_held(job, max(0, job.spec.at_once - begun) if job.spec.at_once else len(held))

    def _queue_held(self, job: Job, most: int) -> None:
        """Queues the next held tasks of *job*, which waits for no other one. They are not looked for from the first one
        on at each end of a task, which would take long in a large array."""
        for task in islice(self._held.get(job.id, ()), most):
            task.state = TaskState.QUEUED
            self._current[task.key] = task
            self._note_change(task, lambda task=task, key=task.key: self._request_room(job, task, key))  # type: ignore[misc]

    def _may_start(self, spec: JobSpec) -> bool:
        """Tells whether nobody holds the job, and all others have ended as *spec* demands. A job that has been removed
        since then counts as successful."""
        return not spec.on_hold and all(
            task.state is TaskState.DONE if needed in spec.after else task.state.is_final
            for needed in spec.predecessors
            for task in self._find_needed(needed)
        )

    def _find_needed(self, needed: int | str) -> list[Task]:
        """Returns the tasks of a job, or the single one, that *needed* names; none: they have been removed."""
        try:
            return self.find_tasks(str(needed))[1]
        except Refused:
            return []

    def _note_change(self, task: Task, effect: Callable[[], None] | None = None) -> None:
        """Notes that *task* has to be stored, and that *effect* is to be called afterwards."""
        self._changed[task.name] = task
        if effect is not None:
            self._effects.append(effect)
        self._schedule_flush()

    def _do_later(self, effect: Callable[[], None]) -> None:
        """Notes that *effect* is to be called once all earlier changes are stored."""
        self._effects.append(effect)
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            try:
                asyncio.get_running_loop().call_soon(self._flush)
            except RuntimeError:
                # While the jobs are loaded, there is no event loop yet.
                self._scheduled = False

    def _flush(self) -> None:
        self._scheduled = False
        if not self.flush():
            self._scheduled = True
            asyncio.get_running_loop().call_later(WRITE_AGAIN_S, self._flush)

    def flush(self) -> bool:
        """Store the changes, and call their effects. Returns whether they could be stored."""
        while self._changed or self._effects:
            if self._changed:
                try:
                    self.store.save_changes(self._changed.values())
                except StoreUnwritable as error:
                    if not self.trouble:
                        _LOGGER.error("%s; nothing is started until it can", error)
                    self.trouble = str(error)
                    return False
                self._changed.clear()
            if self.trouble:
                _LOGGER.warning("the store of jobs can be written again")
                self.trouble = ""
            effects, self._effects = self._effects, []
            for effect in effects:
                effect()
        return True


def have_failed(tasks: Sequence[Task]) -> bool:
    """Tells whether all of *tasks* have ended, and some of them not well."""
    return all(task.state.is_final for task in tasks) and any(task.state is not TaskState.DONE for task in tasks)


def make_attempt_spec(job: Job, task: Task) -> dict[str, Any]:
    """Returns everything that an agent needs to start the current attempt of *task*."""
    spec = job.spec
    variables = {"KORNEL_JOB": str(job.id), "KORNEL_TASK": task.name, "KORNEL_ATTEMPT": str(task.attempt)}
    if task.index != SINGLE:
        variables["KORNEL_INDEX"] = str(task.index)
    # A job that was submitted by another job has inherited that job's environment.
    environment = {name: value for name, value in spec.environment.items() if name != "KORNEL_INDEX"}
    return {
        "command": list(spec.command),
        "directory": spec.directory,
        "environment": {**environment, **variables},
        "umask": spec.umask,
        "vcore": spec.vcore,
        "memory": spec.memory,
        "gpu": spec.gpu,
        "devices": list(task.gpus),
        "time_s": spec.time_s,
        "kill_s": spec.kill_s,
        "log_bytes": spec.log_bytes,
    }
