"""Answers notices of preemption for the applications of a model."""

from __future__ import annotations

from typing import Final

from kornel.shim_client import NoticeReply, PreemptionNotice
from kornel.shim_mock.model.agenda import Agenda
from kornel.shim_mock.model.cluster import SECOND_NS, ClusterModel
from kornel.shim_mock.model.lifecycle import TaskState
from kornel.shim_mock.model.tasks import Task
from kornel.shim_mock.scenario import OnNotice

TOO_LATE_S: Final = 1.0
"""The core's seconds after the deadline at which an application answers that is too late on purpose."""


class NoticeAnswers:
    """Counts preemption notices, and answers them for applications that react: such an application ends other tasks, or
    reports checkpoints."""

    def __init__(self, cluster: ClusterModel, agenda: Agenda) -> None:
        self._cluster = cluster
        self._agenda = agenda
        self._noticed: set[str] = set()

    def answer_notice(self, notice: PreemptionNotice) -> NoticeReply | None:
        """Returns the reply of the application that the notice is for. The core learns of ended tasks from their
        releases."""
        listed = {*notice.strict, *notice.at_risk}
        own = [task for task in self._cluster.tasks.values() if task.application.id == notice.application_id]
        for task in own:
            if task.key in listed and task.key not in self._noticed:
                self._noticed.add(task.key)
                self._cluster.accounts.queues[task.application.queue].noticed += 1
        match own[0].application.on_notice if own else None:
            case OnNotice.RELEASE:
                self._end_tasks(own, notice)
            case OnNotice.LATE:
                left_s = notice.deadline_ms / 1000 - self._agenda.wall_ns / SECOND_NS
                self._cluster.call_later(left_s + TOO_LATE_S, lambda: self._end_tasks(own, notice))
            case OnNotice.CHECKPOINT:
                return NoticeReply(checkpoints=dict.fromkeys(sorted(listed), self._agenda.wall_ns))
            case _:
                pass
        return None

    def _end_tasks(self, own: list[Task], notice: PreemptionNotice) -> None:
        """End tasks until the amount that the core needs is free. Tasks that the core listed last are ended first."""
        listed = {*notice.strict, *notice.at_risk}
        missing = dict(notice.need)
        running = [task for task in own if task.state is TaskState.RUNNING]
        for task in sorted(running, key=lambda task: task.key in listed):
            amounts = task.group.resources
            if any(missing.get(kind, 0) > 0 for kind in amounts):
                self._cluster.end_task(task)
                missing = {kind: amount - amounts.get(kind, 0) for kind, amount in missing.items()}
