"""Makes the place of a resource manager in a core: its streams and callbacks, the runner of its engine, its
configurations and its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.effects import EventRecorded
from kornel.core.domain.history.events import shorten_event_text
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.metrics.measures import Measures
from kornel.core.process.history import History
from kornel.core.process.journal_part import JournalPart
from kornel.core.process.server_settings import ServerSettings
from kornel.core.service.callbacks.callback_board import CallbackBoard
from kornel.core.service.configuration.configuration_history import ConfigurationNote, KeptConfigurations, Version
from kornel.core.service.configuration.configuring import Configurator
from kornel.core.service.configuration.judging import Judge
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.events.refusals import RefusalKeeper
from kornel.core.service.machine.clock import Clock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.managers.health import HealthKeeper
from kornel.core.service.managers.managers import Place
from kornel.core.service.metrics.metrics import Durations, ServiceMetrics
from kornel.core.service.runner.engine_port import EnginePort
from kornel.core.service.runner.runner import PartitionRunner
from kornel.core.service.streams.presence import Presence, PresenceKeeper
from kornel.core.service.streams.streams import Switchboard
from kornel.si.v1 import si_pb2

if TYPE_CHECKING:
    from kornel.core.tracing.tracing import Tracing  # It is an extra, which need not be installed.


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceMaker:
    """Holds what the places of all managers share, and whom they report to.

    on_presence      a manager is gone, or back
    on_damage        the engine of a place cannot be trusted any more (true), or can be again
    on_file_problem  the configuration file does not apply to a place, with the reason; empty: it does again
    on_settings      the extra settings of a place may have changed
    """

    settings: ServerSettings
    clock: Clock
    metrics: ServiceMetrics
    logger: FilteringBoundLogger
    garbage: GarbageKeeper
    part: JournalPart
    history: History
    events: EventJournal
    measures: Measures
    health: HealthKeeper
    refusals: RefusalKeeper
    judge: Judge
    latency: Durations
    tracing: Tracing | None
    on_presence: Callable[[Presence], None]
    on_damage: Callable[[Place, bool], None]
    on_file_problem: Callable[[Place, str], None]
    on_settings: Callable[[], None]

    def make_place(self, engine: EnginePort, default_config: str | None = None) -> Place:
        """Returns a place for a manager with *engine*. *default_config*: the present text of the file; ``None``: its
        text when the core started."""
        clock, logger, metrics = self.clock, self.logger, self.metrics
        presence = PresenceKeeper(clock, self.on_presence)
        switchboard = Switchboard(metrics, queue_limit=self.settings.queue_limit, presence=presence)
        callbacks = CallbackBoard(clock=clock, metrics=metrics, logger=logger, presence=presence, latency=self.latency)
        history = self.history.of_manager()
        kept = self.part.find_kept(engine)
        if self.part.standing.leads:
            engine.record_events()

        def say_of_root(said: str) -> None:
            told = [_event_of_root(clock.now_ns(), said)]
            callbacks.deliver_effects(told)
            for observer in (self.events, *history.observers):
                observer.observe(told)

        def follow_settings(extra_config: Mapping[str, str]) -> None:
            # The effects of unregistering a manager are the last ones that it causes.
            if engine.rm_id:
                history.follow_settings(extra_config)
            self.on_settings()

        def add_version(version: Version) -> None:
            history.version_added(version)
            for observer in (self.events, self.measures, self.refusals):
                observer.version_added(version)

        def take_note(note: ConfigurationNote) -> None:
            if (found := self.part.find_kept(engine)) is not None:
                found.take_note(note)

        runner = PartitionRunner(
            engine,
            switchboard,
            clock=clock,
            metrics=metrics,
            logger=logger,
            garbage=self.garbage,
            callbacks=callbacks,
            presence=presence,
            on_damage=lambda damaged: self.on_damage(place, damaged),
            observers=(
                self.measures.decisions.of_manager(lambda name: runner.reader.queue_of(name)),  # noqa: PLW0108
                self.events,
                self.health,
                self.refusals.of_manager(lambda: engine.rm_id),
                *history.observers,
                *(() if self.tracing is None else (self.tracing,)),
            ),
            on_settings=follow_settings,
            timer=self.measures.timings.of_engine(),
            gate=self.part.open_gate(kept, switchboard),
            untold=kept.untold if kept is not None else (),
            progress=kept.progress if kept is not None else None,
            on_receipt=engine.note_receipt if isinstance(engine, RecordingEngine) else lambda receipt: None,
            restorer=self.part.make_restorer(engine),
            under_way=lambda: (found := self.part.find_kept(engine)) is not None and found.has_work_under_way(),
            on_submit=None if self.tracing is None else self.tracing.note_submitted,
        )
        configurator = Configurator(
            runner,
            clock=clock,
            logger=logger,
            garbage=self.garbage,
            default=self.settings.default_config if default_config is None else default_config,
            on_problem=lambda problem: self.on_file_problem(place, problem),
            on_version=add_version,
            on_rollback=say_of_root,
            on_note=take_note,
            judge=self.judge,
        )
        place = Place(runner, switchboard, callbacks, presence, configurator, say_of_root, history)
        return place


def _event_of_root(at_ns: int, message: str) -> EventRecorded:
    """Returns an event about the root queue, because the event history has no events about configurations."""
    record = si_pb2.EventRecord
    return EventRecorded(
        record.QUEUE, "root", "", record.SET, record.DETAILS_NONE, at_ns, None, shorten_event_text(message)
    )


def recall_versions(place: Place, kept: KeptConfigurations) -> None:
    """Makes *place* know the configurations that a former core of its manager has *kept*."""
    note = kept.as_note()
    if note is not None:
        place.configurator.remember(note)
