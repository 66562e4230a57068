"""Decides the next state of a task from the end of its attempt."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kornel.shim_local.amounts import write_bytes, write_duration
from kornel.shim_local.jobs.spec import JobSpec
from kornel.shim_local.jobs.task import Task, TaskState

CANCEL: Final = "cancel"
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


UNREADY_PAUSE_S: Final = 5.0


def judge_end(task: Task, spec: JobSpec, end: Mapping[str, Any]) -> Outcome:
    """Returns the next state of *task* after the *end* that its agent reported."""
    stopped = end.get("stopped") or (task.stopping if end.get("never") else "")
    if stopped == CANCEL:
        return Outcome(TaskState.CANCELLED, "cancelled")
    if stopped == REFUSED:
        return Outcome(TaskState.FAILED, task.reason)
    if end.get("unready"):
        return Outcome(TaskState.QUEUED, f"{task.node} could not start it: {end['unready']}", pause_s=UNREADY_PAUSE_S)
    if stopped == PREEMPT:
        return _start_again(spec, "preempted", preempted=True)
    if end.get("lost"):
        return _start_again(spec, str(end["lost"]))
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


def _judge_failure(task: Task, spec: JobSpec, reason: str) -> Outcome:
    if task.failures < spec.retries:
        return Outcome(TaskState.QUEUED, f"{reason}; tried again", failed=True)
    return Outcome(TaskState.FAILED, reason, failed=True)
