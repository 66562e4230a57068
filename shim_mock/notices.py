"""What applications of the simulated cluster do when the core announces that it will take tasks from them."""

from __future__ import annotations

import time
from typing import Final

from shim_client import CallbackHandler, NoticeReply, PreemptionNotice
from shim_mock.cluster import SimulatedCluster, Task
from shim_mock.lifecycle import TaskState
from shim_mock.scenario import OnNotice

TOO_LATE_S: Final = 1.0
"""From the deadline to the answer of an application that answers too late, in real seconds."""


class NoticeHandler(CallbackHandler):
    """Counts notices, and answers for applications that do: they end other tasks, or say that work is saved.

    It overrides nothing else, so nothing else is subscribed to.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._noticed: set[str] = set()

    async def preemption_notice(self, notice: PreemptionNotice) -> NoticeReply | None:
        """What the notice's application makes of it. The core hears of ended tasks by their releases."""
        listed = {*notice.strict, *notice.at_risk}
        own = [task for task in self._cluster.tasks.values() if task.application.id == notice.application_id]
        for task in own:
            if task.key in listed and task.key not in self._noticed:
                self._noticed.add(task.key)
                self._cluster.accounts.queues[task.application.queue].noticed += 1
        match own[0].application.on_notice if own else None:
            case OnNotice.RELEASE:
                self._release(own, notice)
            case OnNotice.LATE:
                left_s = notice.deadline_ms / 1000 - time.time()
                self._cluster.later(left_s + TOO_LATE_S, lambda: self._release(own, notice))
            case OnNotice.CHECKPOINT:
                return NoticeReply(checkpoints=dict.fromkeys(sorted(listed), time.time_ns()))
            case _:
                pass
        return None

    def _release(self, own: list[Task], notice: PreemptionNotice) -> None:
        """End as much as the core wants back, those last that it listed."""
        listed = {*notice.strict, *notice.at_risk}
        missing = dict(notice.need)
        running = [task for task in own if task.state is TaskState.RUNNING]
        for task in sorted(running, key=lambda task: task.key in listed):
            amounts = task.group.resources
            if any(missing.get(kind, 0) > 0 for kind in amounts):
                self._cluster.finish(task)
                missing = {kind: amount - amounts.get(kind, 0) for kind, amount in missing.items()}
