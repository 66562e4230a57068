"""Jobs, and their tasks with their states. A job that is no array has one task."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kornel.shim_local.jobs.spec import JobSpec

SINGLE: Final = -1
"""The index of the only task of a job that is no array."""
CANCEL: Final = "cancel"
RETIRE: Final = "retire"
"""The reason of a task that is cancelled with the notice of a preemption; for its agent it is ``cancel``, too."""
_MOST_DIGITS: Final = 15


def split_name(name: str) -> tuple[int, ...]:
    """Returns the number of the job, and of a task its index too, that people call *name*: ``17``, or ``17.3``; nothing
    if it is no such name."""
    parts = name.split(".")
    well = len(parts) <= 2 and all(part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS for part in parts)
    return tuple(map(int, parts)) if well else ()


class TaskState(StrEnum):
    """The states of a task."""

    HELD = "held"
    """The task waits for other jobs, or for other tasks of an array that runs a few at a time."""
    QUEUED = "queued"
    """The core has been asked for room."""
    RUNNING = "running"
    """The task was placed. Its process is being started, runs, or is being stopped."""
    DONE = "done"
    """The task ended with status 0."""
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Tells whether a task stays in this state."""
        return self in (TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED)


@dataclass(slots=True)
class Task:
    """One process that is to run to its end, and everything that is known about it."""

    job: int
    index: int
    state: TaskState = TaskState.QUEUED
    attempt: int = 1
    """The number of the last attempt, which waits for room, runs or has ended."""
    node: str = ""
    started_s: float = 0.0
    """The time at which the process of this attempt was started; 0 before that."""
    ended_s: float = 0.0
    status: int | None = None
    """The exit status of the last attempt, negative for a signal."""
    reason: str = ""
    """The reason for the state of the task, for people to read."""
    stopping: str = ""
    """The reason why the agent was asked to stop this attempt; empty: it was not asked."""
    failures: int = 0
    preemptions: int = 0
    losses: int = 0
    """The number of its latest attempts, one after the other, that were lost with their supervisor or machine."""
    gpus: tuple[str, ...] = ()
    """The GPUs that the core has chosen for this attempt."""

    @property
    def name(self) -> str:
        """The name by which people call the task: ``17``, or ``17.3`` in an array."""
        return str(self.job) if self.index == SINGLE else f"{self.job}.{self.index}"

    @property
    def is_cancelled(self) -> bool:
        """Tells whether the process was asked to end for good, with or without a notice."""
        return self.stopping in (CANCEL, RETIRE)

    @property
    def key(self) -> str:
        """The allocation key of this attempt."""
        return f"{self.name}-{self.attempt}"

    def start_over(self) -> None:
        """Begin the next attempt."""
        self.attempt += 1
        self.state = TaskState.QUEUED
        self.node = self.stopping = ""
        self.gpus = ()
        self.started_s = 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the values that users are shown."""
        return {
            "task": self.name, "job": self.job, "index": self.index, "state": str(self.state), "attempt": self.attempt,
            "node": self.node, "started_s": self.started_s, "ended_s": self.ended_s, "status": self.status,
            "reason": self.reason, "stopping": self.stopping, "failures": self.failures,
            "preemptions": self.preemptions, "gpus": list(self.gpus),
        }  # fmt: skip


@dataclass(slots=True)
class Job:
    """A submission with its tasks, by index."""

    id: int
    spec: JobSpec
    submitted_s: float
    tasks: dict[int, Task] = field(default_factory=dict)

    @property
    def application_id(self) -> str:
        """The ID of the application under which the core knows the job."""
        return f"job-{self.id}"

    @property
    def is_over(self) -> bool:
        """Tells whether every task has ended."""
        return all(task.state.is_final for task in self.tasks.values())

    def count_open(self) -> int:
        """Returns how many tasks have not ended."""
        return sum(not task.state.is_final for task in self.tasks.values())

    @property
    def is_done(self) -> bool:
        """Tells whether every task has succeeded."""
        return all(task.state is TaskState.DONE for task in self.tasks.values())
