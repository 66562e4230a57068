"""What applications of the simulated cluster do when the core announces that it will take tasks from them."""

from __future__ import annotations

from shim_client import CallbackHandler, PreemptionNotice
from shim_mock.cluster import SimulatedCluster
from shim_mock.lifecycle import TaskState
from shim_mock.scenario import OnNotice


class NoticeHandler(CallbackHandler):
    """Counts notices, and ends other tasks of an application that answers them.

    It overrides nothing else, so nothing else is subscribed to.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._noticed: set[str] = set()

    async def preemption_notice(self, notice: PreemptionNotice) -> None:
        """Release as much as the core wants back, those last that it listed. It hears of that by the releases."""
        listed = {*notice.strict, *notice.at_risk}
        own = [task for task in self._cluster.tasks.values() if task.application.id == notice.application_id]
        for task in own:
            if task.key in listed and task.key not in self._noticed:
                self._noticed.add(task.key)
                self._cluster.accounts.queues[task.application.queue].noticed += 1
        if not own or own[0].application.on_notice is not OnNotice.RELEASE:
            return
        missing = dict(notice.need)
        running = [task for task in own if task.state is TaskState.RUNNING]
        for task in sorted(running, key=lambda task: task.key in listed):
            amounts = task.group.resources
            if any(missing.get(kind, 0) > 0 for kind in amounts):
                self._cluster.finish(task)
                missing = {kind: amount - amounts.get(kind, 0) for kind, amount in missing.items()}
