"""The tasks of a model, and what becomes of their applications."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from kornel.shim_client import Ask
from kornel.shim_mock.model.lifecycle import TaskEvent, TaskState
from kornel.shim_mock.scenario import Application, TaskGroup
from kornel.si.v1 import si_pb2 as si

REQUIRED_NODE: Final = "yunikorn.apache.org/requiredNode"


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


class TaskObserver(Protocol):
    """Sees what becomes of each task, at the time at which it happens."""

    def note_ask(self, task: Task) -> None:
        """Note that *task* was asked for."""

    def note_start(self, task: Task) -> None:
        """Note that *task* was placed."""

    def note_end(self, task: Task) -> None:
        """Note that *task* has ended or was given up; its state says how, and its node whether it ever ran."""


class NoObserver:
    """Notes nothing."""

    def note_ask(self, task: Task) -> None:
        """Does nothing."""

    def note_start(self, task: Task) -> None:
        """Does nothing."""

    def note_end(self, task: Task) -> None:
        """Does nothing."""
