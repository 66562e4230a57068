"""Assembles the server of a core, starts it, and stops it in a fixed order.

To stop, health reports NOT_SERVING and no further calls are accepted; what clients have sent is applied; the responses
are flushed; every stream ends UNAVAILABLE, so that shims connect again; and calls that have not ended within the grace
period are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import grpc
from structlog.typing import FilteringBoundLogger

from kornel.core.journal.database.choices import JournalUnusable
from kornel.core.metrics.decisions import QUEUES_REMEMBERED
from kornel.core.metrics.exposition import Exposition
from kornel.core.metrics.measures import Measures
from kornel.core.metrics.sources import Sources as MetricsSources
from kornel.core.process.grpc_transport import OPTIONS, listen_at, reachable_address
from kornel.core.process.history import History
from kornel.core.process.journal_part import JournalPart
from kornel.core.process.places import PlaceMaker, recall_versions
from kornel.core.process.readiness import CONFIGURATION_FILE, HISTORY, JOURNAL, MANAGERS, Readiness, write_ready_file
from kornel.core.process.server_settings import AddressTooOpen, AddressUnavailable, ServerSettings
from kornel.core.process.services import ServiceParts, add_services, health_handlers, make_services, name_calls
from kornel.core.process.socket_lock import SocketLock, SocketTaken
from kornel.core.process.usage_sampler import UsageSampler
from kornel.core.rest.application import RestApplication, Services
from kornel.core.rest.documents.history import UsageHistory, count_running
from kornel.core.rest.documents.page_links import checked_links
from kornel.core.rest.http.access import Proofs
from kornel.core.rest.http.browser_rules import BrowserRules, checked_origins, local_hosts
from kornel.core.rest.http.guard_door import GuardDoor
from kornel.core.rest.http.server import HttpServer, RestAddressUnavailable
from kornel.core.security.errors import SecurityError
from kornel.core.security.security import Security
from kornel.core.service.callbacks.callback_board import CallbackBoard
from kornel.core.service.callbacks.callback_times import BOUNDS_S
from kornel.core.service.calls.admission import AdmissionInterceptor
from kornel.core.service.calls.rpc import Handler
from kornel.core.service.configuration.configuration_file import ConfigurationFile
from kornel.core.service.configuration.judging import Judge
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.events.refusals import RefusalKeeper
from kornel.core.service.logs.logs import LevelSwitch, LogLevel
from kornel.core.service.machine.clock import SECOND_NS, Clock, ManualClock, SystemClock, watch_clock
from kornel.core.service.machine.garbage import RECORDS_PER_QUEUE, GarbageKeeper, GarbageRounds
from kornel.core.service.managers.health import HealthKeeper
from kornel.core.service.managers.managers import Lobby, Managers, Place
from kornel.core.service.managers.standing import StandingInterceptor
from kornel.core.service.metrics.metrics import Durations, ServiceMetrics
from kornel.core.service.resolvers.lookups import GroupLookups
from kornel.core.service.resolvers.sources import Sources
from kornel.core.service.runner.engine_port import EnginePort
from kornel.core.service.streams.presence import Presence
from kornel.core.service.streams.streams import Switchboard
from kornel.core.service.wire.status_codes import ShuttingDown
from kornel.core.telling.reader import PartitionReader
from kornel.core.web.page import Page
from kornel.shared.addresses import stays_on_this_machine

if TYPE_CHECKING:
    from kornel.core.journal.journal import Journal
    from kornel.core.journal.standby import Followed, Standby
    from kornel.core.tracing.tracing import Tracing  # It is an extra, which need not be installed.

AUDITED_AT_END: Final = 20_000
"""The most records of a core whose books are audited before it ends, which takes about a second."""


class KornelServer:
    """A core: it serves an engine for each resource manager. Use: ``start()``, then ``serve(stop)`` or ``stop()``."""

    def __init__(
        self,
        engine: EnginePort,
        settings: ServerSettings,
        *,
        clock: Clock,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
        garbage: GarbageKeeper,
        sources: Sources | None = None,
        levels: LevelSwitch | None = None,
        security: Security | None = None,
        tracing: Tracing | None = None,
        make_engine: Callable[[], EnginePort] | None = None,
        journal: Journal | None = None,
        standby: Standby | None = None,
    ) -> None:
        """Builds the server without starting it. Raises :class:`kornel.core.process.history.HistoryUnusable`.

        *sources*: the resolvers that work here; absent: those that need no settings. *levels*: the level switch of
        *logger*. *security* absent: every caller that reaches the address may do everything. *tracing* absent: nothing
        is traced. *engine* is that of the first manager, and *make_engine* makes those of further ones; absent: the
        core serves one manager at a time, unless it has a journal, which makes them. *journal*: the journal of
        *engine* and of the engines of further managers; absent: there is none. *standby* follows another core with
        *engine*, and provides the journal once this core leads.
        """
        sources = sources or Sources.without_settings()
        self._settings = settings
        self._security = security
        self._tracing = tracing
        self._clock = clock
        self._logger = logger
        self._metrics = metrics
        self._garbage = garbage
        self.admission = AdmissionInterceptor(settings.calls, logger, garbage.expect_garbage)
        """The open calls, and their bound."""
        self.events = events = EventJournal(str(uuid4()), logger=logger)
        """The latest events."""
        self.health = HealthKeeper(
            lambda: self.managers.reader.partitions(),  # noqa: PLW0108 - the managers are made with this observer
            lambda: self.managers.leader.runner.extra_config(),  # noqa: PLW0108
            clock=clock,
            logger=logger,
            absence=lambda: self.managers.absence,
        )
        """The keeper of health reports."""
        self.refusals = RefusalKeeper(clock=clock, logger=logger)
        """The latest entries and configurations that were refused."""
        self.usage = UsageHistory(lambda: count_running(self.managers.reader), clock=clock, kept=settings.usage_samples)
        """The usage history, with a sample per minute."""
        self.measures = Measures(clock=clock)
        """The counters for metrics."""
        self.history = History(
            settings.history, clock=clock, logger=logger, keeps_events=lambda: events.settings.tracking
        )
        """The stored history."""
        self._usage_sampler = UsageSampler(
            self._partitions_kept,
            self.history.keep_usage,
            clock=clock,
            logger=logger,
        )
        self._levels = levels or LevelSwitch(LogLevel.INFO)
        self._latency = Durations(BOUNDS_S)
        self._make_engine = make_engine
        self.part = part = JournalPart(journal, standby, logger)
        """The part of this core in its journal."""
        self.standing = part.standing
        """The standing of the core among those that share its journal."""
        self.readiness = Readiness(self.standing, logger, lambda: part.lapsed)
        """The keeper of what the health services say."""
        self._places = PlaceMaker(
            settings=settings,
            clock=clock,
            metrics=metrics,
            logger=logger,
            garbage=garbage,
            part=part,
            history=self.history,
            events=events,
            measures=self.measures,
            health=self.health,
            refusals=self.refusals,
            judge=Judge(sources.unavailable, logger=logger),
            latency=self._latency,
            tracing=tracing,
            on_presence=self._on_presence,
            on_damage=lambda place, damaged: self.managers.note_damage(place, damaged=damaged),
            on_file_problem=self._on_file_problem,
            on_settings=self._follow_leader,
        )
        engines = [engine] if journal is None else [kept.engine for kept in journal.places]
        first, *further = map(self._places.make_place, engines)
        self.managers = Managers(
            first,
            lobby=Lobby(Switchboard(metrics), CallbackBoard(clock=clock, metrics=metrics, logger=logger)),
            make=self._make_further_place if make_engine or journal or standby else None,
            most=settings.managers,
            logger=logger,
            on_change=self._on_damage,
            on_given_up=part.close_place,
        )
        """The resource managers, each with an engine of its own."""
        for place in further:
            self.managers.add_place(place)
        if journal is not None:
            journal.on_problem = self._on_journal_problem
            for place, kept in zip((first, *further), journal.places, strict=True):
                recall_versions(place, kept.kept)
                if kept.configured is not None:
                    place.configurator.go_on(*kept.configured)
        self._garbage_rounds = GarbageRounds(
            garbage,
            records=lambda: sum(
                views.size + RECORDS_PER_QUEUE * views.queue_count for views in self.managers.reader.partitions()
            ),
            idle=lambda: self.managers.asleep and not self.managers.questions.waiting,
            logger=logger,
        )
        self._lookups = GroupLookups(
            sources.working, self.managers.reader.resolver_of, clock=clock, metrics=metrics, logger=logger
        )
        self._file: ConfigurationFile | None = None
        if settings.config_file is not None:
            self._file = ConfigurationFile(settings.config_file, settings.default_config, self.managers, logger=logger)
        self.metrics = self._make_metrics()
        """The metrics for Prometheus."""
        self._http = self._make_http() if settings.rest_address else None
        self._calls: dict[str, Handler] = {}
        """The handlers of gRPC by service and method, such as ``AdminService/DrainNode``."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._server: grpc.aio.Server | None = None
        self._lock: SocketLock | None = None
        self.address = ""
        """The address of gRPC, once started."""
        self.rest_address = ""
        """The address of HTTP, once started; empty: none."""

    def _make_metrics(self) -> Exposition:
        return Exposition(
            MetricsSources(
                measures=self.measures,
                managers=self.managers,
                service=self._metrics,
                admission=self.admission,
                latency=self._latency,
                events=self.events,
                health=self.health,
                history=self.history.status,
                journal=lambda: self.part.journal.status() if self.part.journal is not None else None,
                standing=self.standing,
                clock=self._clock,
                version=self._settings.version,
                queue_limit=self._settings.queue_limit,
            ),
            aliases=self._settings.metric_aliases,
        )

    def _make_http(self) -> HttpServer:
        settings, security = self._settings, self._security
        guard = security.guard if security else None
        services = Services(
            managers=self.managers,
            events=self.events,
            history=self.usage,
            health=self.health,
            metrics=self.metrics.render_pieces,
            ready=lambda: self.readiness.ready,
            log_level=lambda: self._levels.name,
            calls=lambda: self._calls,
            local=stays_on_this_machine(settings.rest_address),
            clock=self._clock,
            logger=self._logger,
            version=settings.version,
            standing=self.standing if self.standing.shared else None,
            door=GuardDoor(guard, self.managers.reader.may_administer_first) if guard else None,
            proofs=Proofs(
                guarded=bool(guard),
                certificate=bool(security and security.tls and security.tls.demands_certificate),
            ),
            rules=BrowserRules(
                # Callers that prove their identity use a host name in a certificate, or a token that no page of
                # another origin has, so the host need not be checked.
                hosts=local_hosts(settings.rest_hosts or ())
                if stays_on_this_machine(settings.rest_address) and not (security and security.asks_who_calls)
                else None,
                origins=checked_origins(settings.rest_origins or ()),
                tokens=bool(guard),
            ),
            page=Page(),
            links=checked_links(settings.docs_url, settings.grafana_url),
        )
        rest = RestApplication(services)
        return HttpServer(
            rest.app,
            settings.rest_address,
            logger=self._logger,
            tls=security.tls.make_context if security and security.tls else None,
            on_stop=rest.close,
            connections=settings.rest_connections,
        )

    async def start(self) -> str:
        """Starts to listen and serve. Returns the address, and writes it to the ready file.

        Raises :class:`AddressUnavailable`, :class:`AddressTooOpen` or
        :class:`kornel.core.journal.journal.JournalUnusable`.
        """
        security = self._security
        if security is not None:
            try:
                security.check(self._settings.address)
                if self._settings.rest_address:
                    security.check(self._settings.rest_address, "--rest-address")
            except SecurityError as error:
                raise AddressTooOpen(str(error)) from error
        limits = {"grpc.max_allowed_incoming_connections": self._settings.connections}
        limits.update(security.transport_options() if security is not None else ())
        server = grpc.aio.server(
            options=tuple({**dict(OPTIONS), **limits}.items()),
            interceptors=(
                self.admission,
                *(() if security is None else security.interceptors()),
                *((StandingInterceptor(self.standing),) if self.standing.shared else ()),
                # It is the innermost interceptor, so it sees calls as the services see them, and none that was refused.
                *(() if self._tracing is None else (self._tracing.make_interceptor(),)),
            ),
        )
        self._add_services(server)
        try:
            self._lock = SocketLock(self._settings.address)
        except (SocketTaken, OSError) as error:
            raise AddressUnavailable(f"cannot listen on {self._settings.address!r}: {error}") from error
        if self._http is not None:
            try:
                self._http.listen()
            except RestAddressUnavailable as error:
                self._lock.release()
                raise AddressUnavailable(str(error)) from error
            self.rest_address = self._http.address
        tls = security.tls if security is not None else None
        try:
            self.address = listen_at(
                server, self._settings.address, tls.grpc_credentials() if tls is not None else None
            )
        except AddressUnavailable:
            self._lock.release()
            if self._http is not None:
                await self._http.stop()
            raise
        self._server = server
        self._garbage.start()
        loop = asyncio.get_running_loop()
        self.history.start(partial(_call_in, loop, self._on_history_problem))
        if self.part.journal is not None:
            self.part.journal.start()
        if self.standing.leads:
            self._start_managers()
        await server.start()
        self.health.start()
        self.usage.start()
        self._begin_work(self.measures.lag.measure_for_ever())
        self._begin_work(self._garbage_rounds.look_for_ever())
        self._begin_work(watch_clock(self._clock, self._logger))
        if self._http is not None:
            await self._http.start()
        parts = {
            MANAGERS: True,
            JOURNAL: self.part.there,
            HISTORY: self.history.kept,
            CONFIGURATION_FILE: self._file is not None,
        }
        self.readiness.start([part for part, there in parts.items() if there])
        if self.standing.leads:
            self._decide_from_now_on()
        if self.part.standby is not None:
            try:
                await self._stand_by(self.part.standby)
            except JournalUnusable:
                await self.stop()
                raise
        if security is not None:
            self._begin_work(security.follow())
        self._logger.info(
            "serving", address=self.address, rest=self.rest_address or "off", version=self._settings.version
        )
        if self._settings.ready_file is not None:
            write_ready_file(self._settings.ready_file, self.address)
        return self.address

    async def _stand_by(self, standby: Standby) -> None:
        assert isinstance(self._clock, SystemClock | ManualClock), "both can follow another core's"
        await standby.start(
            self._clock,
            self._settings.advertised or reachable_address(self.address),
            on_lead=self._take_over,
            on_followed=self._follow_places,
            on_problem=self._on_journal_problem,
        )

    def _follow_places(self, followed: Followed) -> None:
        """Has a place for each engine of the leader, and the configurations that the leader has."""
        self._have_places([replayed.engine for replayed in followed.places])
        for replayed in followed.changed:
            place = self._find_or_make_place(replayed.engine)
            recall_versions(place, replayed.kept)
            if replayed.configured is not None:
                place.configurator.go_on(*replayed.configured, note="as the leader accepted it")
        self._follow_leader()

    def _have_places(self, engines: Sequence[EnginePort]) -> None:
        if engines:
            self.managers.follow_places([self._find_or_make_place(engine) for engine in engines])

    def _find_or_make_place(self, engine: EnginePort) -> Place:
        found = next((place for place in self.managers.places if place.runner.runs(engine)), None)
        return found or self._places.make_place(engine)

    def _take_over(self, journal: Journal) -> None:
        """Begins to lead, with *journal*, where the former leader ended."""
        self._have_places([kept.engine for kept in journal.places])
        self.part.journal = journal
        journal.on_problem = self._on_journal_problem
        journal.start()
        for kept in journal.places:
            place = self._find_or_make_place(kept.engine)
            place.runner.take_over(kept.untold, kept.progress, self.part.open_gate(kept, place.switchboard))
            kept.engine.record_events()
        self._start_managers()
        self.readiness.update()
        self._decide_from_now_on()

    def _start_managers(self) -> None:
        found = [each for views in self.managers.reader.partitions() for each in views.gauges(QUEUES_REMEMBERED)]
        self.measures.decisions.take_baseline([gauges for gauges in found if gauges is not None])
        self.managers.start()

    def _decide_from_now_on(self) -> None:
        """Starts everything that only a leading core does."""
        if self.history.kept:
            self._usage_sampler.start()
        if self._file is not None:
            if self.part.journal is not None and any(place.configurator.lags_behind for place in self.managers.places):
                self._begin_work(self._file.reload())
            if self._settings.watch:
                self._begin_work(self._file.watch())

    async def serve(self, stop: asyncio.Event) -> bool:
        """Serves until *stop* is set, then stops in order. Returns false if the partition task has ended by itself,
        which is a bug."""
        ends = {asyncio.create_task(event.wait()) for event in (stop, self.managers.died)}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        died = self.managers.died.is_set()
        await self.stop()
        return not died

    def reload(self) -> None:
        """Reads the files with which the core was started again: queue configuration, certificates, security."""
        security = self._security
        if security is not None:
            security.reload()
        if self._file is None and security is not None and (security.tls or security.guard):
            return
        if not self.standing.leads:
            self._logger.info("asked to read the configuration file again, which only the leading core does")
        elif self._file is None:
            self._logger.warning("asked to read the configuration file again, but the core was given none")
        else:
            self._begin_work(self._file.reload())

    async def stop(self) -> None:
        """Stops the parts in the order that this module states."""
        assert self._server is not None
        for work in self._under_way:
            work.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        http_down = asyncio.create_task(self._http.stop()) if self._http is not None else None
        self.usage.stop()
        self._usage_sampler.stop()
        await self.health.stop()
        self.readiness.stop()
        if self.part.standby is not None:
            await self.part.standby.stop()
        # This comes first, because from now on gRPC accepts no new calls while the open ones are being ended.
        down = asyncio.create_task(self._server.stop(self._settings.grace_s))
        await self.managers.stop()
        if self.part.journal is not None:
            await self.part.journal.hand_over()  # By now everything that was decided is written.
        self.managers.finish_streams(ShuttingDown("the core is shutting down"))
        self.events.events.close()
        await self._streams_gone()
        # Calls that are still open, such as health watches, would never end by themselves.
        await self._server.stop(None)
        await down
        if self._lock is not None:
            self._lock.release()
        await self._lookups.close()
        await self.managers.close()
        await self._places.judge.process.close()
        if http_down is not None:
            await http_down
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        if self.part.journal is not None:
            await asyncio.to_thread(self.part.journal.close, self._settings.grace_s)
        await asyncio.to_thread(self.history.close, self._settings.grace_s)
        self._log_summary()

    def _add_services(self, server: grpc.aio.Server) -> None:
        services = make_services(
            ServiceParts(
                managers=self.managers,
                lookups=self._lookups,
                events=self.events,
                history=self.history.service,
                health=self.health,
                refusals=self.refusals,
                standing=self.standing,
                clock=self._clock,
                metrics=self._metrics,
                logger=self._logger,
                version=self._settings.version,
                callback_timeout_ns=int(self._settings.callback_timeout_s * SECOND_NS),
                moves_clock=self._settings.test_clock,
            )
        )
        self.readiness.name_services(services)
        self._calls = name_calls(services)
        add_services(server, {**services, **health_handlers(self.readiness.service)})

    async def _streams_gone(self) -> None:
        """Wait for the streams to end, at most for the grace period."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.grace_s
        while (self._metrics.live_streams or self.events.places) and loop.time() < deadline:  # noqa: ASYNC110 - a few turns, once in a life
            await asyncio.sleep(0.005)

    def _make_further_place(self) -> Place:
        self.standing.check_leads()
        if self.part.journal is not None:
            engine: EnginePort = self.part.journal.open_place().engine
        else:
            assert self._make_engine is not None
            engine = self._make_engine()
        return self._places.make_place(engine, self.managers.leader.configurator.default_text)

    def _partitions_kept(self) -> list[PartitionReader]:
        """Returns the partitions of all managers whose history is kept."""
        return [
            views
            for place in self.managers.registered
            if place.history.wanted
            for views in place.runner.reader.partitions()
        ]

    def _follow_leader(self) -> None:
        """Follows the extra settings that apply to the whole core."""
        extra_config = self.managers.leader.runner.extra_config()
        self.events.follow_settings(extra_config)
        self.health.settings_changed()
        self._levels.follow_settings(extra_config)

    def _on_damage(self) -> None:
        """Updates whether the core serves, which it does as long as the engine of one manager can be trusted.

        A manager that was removed no longer counts for problems with the configuration file.
        """
        if self._file is not None:
            self.readiness.set_part(CONFIGURATION_FILE, not self.managers.problem)
        self.readiness.set_part(MANAGERS, not self.managers.one_damaged)
        self.readiness.set_damaged(self.managers.damaged)

    def _on_file_problem(self, place: Place, problem: str) -> None:
        self.readiness.set_part(CONFIGURATION_FILE, not self.managers.problem)
        if place is self.managers.leader or place.rm_id:
            place.tell(f"configuration file not applied: {problem}" if problem else "configuration file is good again")

    def _on_presence(self, found: Presence) -> None:
        if found.gone:
            self._logger.warning("resource manager is gone", rm_id=found.rm_id, cause=found.words)
        else:
            self._logger.info("resource manager is back", rm_id=found.rm_id)
        self.health.check_at_once()

    def _on_journal_problem(self, problem: str) -> None:
        self.readiness.set_journal(works=not problem)
        if self.part.journal is not None and self.part.journal.lost:
            self.standing.problem = problem
            self.readiness.stop()
            self.managers.died.set()

    def _on_history_problem(self, problem: str) -> None:
        self.readiness.set_part(HISTORY, not problem)

    def _begin_work(self, work: Coroutine[None, None, None]) -> None:
        """Begins *work*, which :meth:`stop` ends."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _log_summary(self) -> None:
        try:
            counts = self.managers.reader.final_counts(AUDITED_AT_END)
        except Exception as error:  # A damaged engine must not prevent the process from ending.
            self._logger.error("stopped, without a summary of the engine", exc_info=error, **self._metrics.as_dict())
            return
        self._logger.info("stopped", **counts._asdict(), **self._metrics.as_dict())


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[str], None], text: str) -> None:
    """Schedules *call* in *loop* from another thread, which may run longer than the loop."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, text)
