"""Plays a scenario: the model of its cluster and a core, one event after the other.

At one time the core comes first, then what the agenda of the model has for that time, then the messages that follow
from both: a configuration, then one message for each stream in the order nodes, applications, allocations, until nobody
has anything to say. Nothing here waits or reads a clock.
"""

from __future__ import annotations

from typing import Final

from kornel.core.engine.engine import Engine
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.shim_mock.model.cluster import ClusterModel
from kornel.shim_mock.model.lifecycle import TaskState
from kornel.shim_mock.model.notices import NoticeAnswers
from kornel.shim_mock.scenario import Scenario
from kornel.simulate.figures import Figures
from kornel.simulate.simulated_core import SimulatedCore
from kornel.simulate.virtual_time import VirtualAgenda

RM_ID: Final = "shim-mock"
VERSION: Final = "shim-mock"
REST_S: Final = 3600.0
"""A run ends when nothing is planned any more and nothing has happened for so many of the core's seconds."""


class Simulation:
    """One run of *scenario*. *engine*: a new one by default. *keeps_ended*: the model keeps tasks that have ended."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        engine: Engine | None = None,
        keeps_ended: bool = False,
    ) -> None:
        self._scenario: Final = scenario
        self._clock: Final = ManualClock()
        self._began_ns: Final = self._clock.now_ns()
        self.agenda: Final = VirtualAgenda(self._clock, scenario.speed)
        self.figures: Final = Figures(self.agenda)
        self.model: Final = ClusterModel(scenario, self.agenda, observer=self.figures, keeps_ended=keeps_ended)
        notices = NoticeAnswers(self.model, self.agenda)
        self.core: Final = SimulatedCore(
            self._clock,
            RM_ID,
            self.model.handle_update,
            notices.answer_notice,
            self.figures.note_effects,
            engine,
        )
        self.stopped = False
        """Set to end the run before its next event."""
        self.lasted_ns = 0
        """The core's time that the figures are about: all that was played, without a rest at the end."""

    def play(self, until_s: float | None = None) -> None:
        """Play until *until_s* of the core's seconds, the duration of the scenario, or until nothing happens any more.

        Raises :class:`SimulationFailed`.
        """
        rested = False
        try:
            rested = self._play(until_s)
        finally:
            self.lasted_ns = round(self.model.last_activity_s * SECOND_NS) if rested else self.agenda.elapsed_ns
            for task in self.model.tasks.values():
                if task.state is TaskState.WAITING:
                    self.figures.note_waiting(task, self.lasted_ns)
            self.figures.count_running(self.lasted_ns)

    def _play(self, until_s: float | None) -> bool:
        """Tells whether the run came to rest, and not to its end."""
        duration_s = self._scenario.duration_s
        if until_s is None and duration_s is not None:
            until_s = duration_s / self._scenario.speed
        until_ns = None if until_s is None else self._began_ns + round(until_s * SECOND_NS)
        noticed = any(application.on_notice is not None for application in self._scenario.applications)
        self.core.register(self._scenario.config, VERSION, notices=noticed)
        self.model.begin()
        self._send_due()
        while not self.stopped:
            at_ns = self._next_ns()
            if until_ns is not None and (at_ns is None or at_ns > until_ns):
                self._move_to(until_ns)
                return False
            if at_ns is None or (until_ns is None and at_ns > self._rest_ns()):
                return True
            due_ns = self.core.next_call_ns()
            self._move_to(at_ns)
            if due_ns is not None and due_ns <= at_ns:
                self.core.run_slices()
            if (quiet_ns := self._quiet_ns()) is not None and quiet_ns <= at_ns:
                self.model.play_late()
            self._send_due()
        return False

    def _send_due(self) -> None:
        """Do what is due, and send what follows, until nobody has anything to say."""
        core, model = self.core, self.model
        while True:
            self.agenda.run_due()
            messages = model.take_messages()
            if not any(messages):
                return
            for change in messages.changes:
                core.update_configuration(change.config)
            if messages.nodes:
                core.send_nodes(messages.nodes)
            if messages.applications:
                core.send_applications(messages.applications)
            if messages.allocations:
                core.send_allocations(messages.allocations)

    def _next_ns(self) -> int | None:
        """Returns the time of the next event; ``None``: nothing can happen any more."""
        wanted = (self.core.next_call_ns(), self.agenda.next_ns(), self._quiet_ns())
        return min((at_ns for at_ns in wanted if at_ns is not None), default=None)

    def _quiet_ns(self) -> int | None:
        """Returns when the core counts as quiet for what waits until then; ``None``: nothing does, or not yet."""
        if not self.model.late or not self.model.all_sent:
            return None
        return self._began_ns + round((self.model.last_activity_s + self._scenario.settle_s) * SECOND_NS)

    def _rest_ns(self) -> float:
        """Returns the time after which nothing is expected to happen."""
        if self.agenda.next_ns() is not None or self.model.late or not self.model.all_sent:
            return float("inf")
        return self._began_ns + round((self.model.last_activity_s + REST_S) * SECOND_NS)

    def _move_to(self, at_ns: int) -> None:
        self._clock.advance(max(0, at_ns - self._clock.now_ns()))
