"""Hears notices of preemption over gRPC, for the applications of the simulated cluster."""

from __future__ import annotations

from kornel.shim_client import CallbackHandler, NoticeReply, PreemptionNotice
from kornel.shim_mock.clock import SimulatedClock
from kornel.shim_mock.cluster import SimulatedCluster
from kornel.shim_mock.model.notices import NoticeAnswers


class NoticeHandler(CallbackHandler):
    """Passes notices to the model. It overrides no other callback, so the shim subscribes only to notices."""

    def __init__(self, cluster: SimulatedCluster, clock: SimulatedClock) -> None:
        self._answers = NoticeAnswers(cluster, clock)

    async def preemption_notice(self, notice: PreemptionNotice) -> NoticeReply | None:
        """Returns the reply of the application that the notice is for."""
        return self._answers.answer_notice(notice)
