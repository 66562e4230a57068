"""Decides the next state of a task from the end of its attempt."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kornel.shim_local.amounts import write_bytes, write_duration
from kornel.shim_local.jobs.spec import JobSpec
from kornel.shim_local.jobs.task import CANCEL, Task, TaskState

PREEMPT: Final = "preempt"
REFUSED: Final = "refused"
"""The reason of a task that runs, but that the core no longer accepts, for instance because its queue is gone."""
TIME: Final = "time"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The next state of a task, and the reason. If the state is not final, the task is started again after
    *pause_s*."""

    state: TaskState
    reason: str = ""
    failed: bool = False
    preempted: bool = False
    pause_s: float = 0.0
    losses: int = 0
    """The number of attempts in a row that were lost with this one."""


UNREADY_PAUSE_S: Final = 5.0
MOST_LOSSES: Final = 6
"""The number of attempts in a row that may be lost with their supervisor or machine before the task has failed."""
LOSS_PAUSE_S: Final = 2.0
"""The pause after the second lost attempt in a row. It doubles with each further one; after the first there is none."""
LONG_RUN_S: Final = 3600.0
"""The time after which an attempt did not bring down its supervisor or machine: earlier losses are forgotten."""


def judge_end(task: Task, spec: JobSpec, end: Mapping[str, Any]) -> Outcome:
    """Returns the next state of *task* after the *end* that its agent reported."""
    stopped = end.get("stopped") or (task.stopping if end.get("never") else "")
    # What was cancelled is over in whatever way it ends: a lost attempt cannot say that it was stopped, and one that
    # was preempted before says only that.
    if stopped == CANCEL or task.is_cancelled:
        return Outcome(TaskState.CANCELLED, "cancelled")
    if stopped == REFUSED:
        return Outcome(TaskState.FAILED, task.reason)
    if end.get("unready"):
        return Outcome(TaskState.QUEUED, f"{task.node} could not start it: {end['unready']}", pause_s=UNREADY_PAUSE_S)
    if stopped == PREEMPT:
        return _start_again(spec, "preempted", preempted=True)
    if end.get("lost"):
        return _judge_loss(task, spec, str(end["lost"]), float(end["at"]))
    if stopped == TIME:
        return _judge_failure(task, spec, f"ran longer than its limit of {write_duration(spec.time_s)}")
    if end.get("refused"):
        return Outcome(TaskState.FAILED, str(end["refused"]), failed=True)
    if end.get("status") == 0:
        return Outcome(TaskState.DONE)
    if end.get("oom"):
        return _judge_failure(task, spec, f"ran out of its {write_bytes(spec.memory)} of memory")
    return _judge_failure(task, spec, describe_status(end.get("status")))


def describe_status(status: int | None) -> str:
    """Returns an exit status in words."""
    if status is None:
        return "ended in an unknown way"
    if status >= 0:
        return f"exit status {status}"
    if status == -signal.SIGKILL:
        return "killed by SIGKILL: by somebody, or by the kernel because the machine ran out of memory"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _start_again(spec: JobSpec, reason: str, *, preempted: bool = False) -> Outcome:
    if spec.requeue:
        return Outcome(TaskState.QUEUED, reason, preempted=preempted)
    return Outcome(TaskState.FAILED, f"{reason}, and may not be started again", preempted=preempted)


def _judge_loss(task: Task, spec: JobSpec, reason: str, at_s: float) -> Outcome:
    ran_long = bool(task.started_s) and at_s - task.started_s >= LONG_RUN_S
    losses = 1 if ran_long else task.losses + 1
    if losses > MOST_LOSSES:
        return Outcome(TaskState.FAILED, f"{reason}: {losses} attempts in a row were lost", losses=losses)
    pause_s = LOSS_PAUSE_S * 2 ** (losses - 2) if losses > 1 else 0.0
    again = f"{reason}; tried again after {write_duration(pause_s)}" if pause_s and spec.requeue else reason
    return replace(_start_again(spec, again), losses=losses, pause_s=pause_s)


def _judge_failure(task: Task, spec: JobSpec, reason: str) -> Outcome:
    if task.failures < spec.retries:
        return Outcome(TaskState.QUEUED, f"{reason}; tried again", failed=True)
    return Outcome(TaskState.FAILED, reason, failed=True)
