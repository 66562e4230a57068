"""Makes Kornel's own metrics of the service: streams, callbacks, events, configuration, health, history."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from kornel.core.domain.reasons import Ignored
from kornel.core.metrics.families import make_counter, make_counters, make_gauge, make_gauges, make_histogram
from kornel.core.metrics.sources import HistoryGauges, JournalGauges, Sources
from kornel.core.service.calls.admission import Refusal
from kornel.core.service.machine.clock import SECOND_NS, Clock
from kornel.core.service.machine.own_memory import count_native
from kornel.core.service.managers.standing import Role, Standing


def service_families(sources: Sources) -> Iterable[Metric]:
    """Yields the metrics of the service, with those of the history only if there is one."""
    yield make_gauges("kornel_build_info", "Always 1.", ["version"], {sources.version: 1})
    yield from _stream_metrics(sources)
    yield from _families_of_callers(sources)
    yield from _callback_metrics(sources)
    yield from _events(sources)
    yield from _configuration_metrics(sources)
    yield from _health(sources)
    yield from _memory_metrics()
    if sources.standing.shared:
        yield from _standing_metrics(sources.standing)
    journal = sources.journal()
    if journal is not None:
        yield from _journal_metrics(journal, sources.clock)
    history = sources.history()
    if history is not None:
        yield from _history(history, sources.clock)


def _stream_metrics(sources: Sources) -> Iterable[Metric]:
    service = sources.service
    managers = sources.managers
    registered = managers.registered
    present = {place.rm_id: found for place in registered for found in [place.runner.presence] if found is not None}
    yield make_gauge("kornel_manager_registered", "1: a resource manager is registered.", int(bool(registered)))
    yield make_gauge(
        "kornel_manager_streams", "Open streams of registered managers.", sum(each.streams for each in present.values())
    )
    yield make_gauge(
        "kornel_manager_gone",
        "1: a resource manager is registered, and none of its streams has been open for a while.",
        int(any(each.gone for each in present.values())),
    )
    yield make_gauge("kornel_managers", "Registered resource managers.", len(registered))
    yield make_gauge(
        "kornel_managers_limit", "The most resource managers that may be registered at a time.", managers.most
    )
    yield make_gauges(
        "kornel_manager_streams_open",
        "Open streams of one manager.",
        ["manager"],
        {rm_id: found.streams for rm_id, found in present.items()},
    )
    yield make_gauges(
        "kornel_manager_intake_waiting",
        "Requests of one manager that wait for its engine.",
        ["manager"],
        {place.rm_id: place.runner.intake_waiting for place in registered},
    )
    yield make_gauges(
        "kornel_manager_configuration_version",
        "Number of the configuration in force, of one manager.",
        ["manager"],
        {place.rm_id: place.configurator.in_force for place in registered},
    )
    yield make_gauge("kornel_streams_open", "Open streams of shims, callbacks included.", service.live_streams)
    yield make_counters(
        "kornel_streams_total",
        "Streams opened, broken by the client, and ended by the core with an error.",
        ["event"],
        {"opened": service.streams_opened, "broken": service.streams_broken, "refused": service.streams_refused},
    )
    yield make_counters(
        "kornel_messages_total",
        "Messages sent and received on streams.",
        ["direction"],
        {"received": service.messages_received, "sent": service.messages_sent},
    )
    yield make_counters(
        "kornel_commands_total",
        "Requests applied and refused.",
        ["result"],
        {"applied": service.commands_applied, "refused": service.commands_refused},
    )
    yield make_gauge("kornel_intake_waiting", "Requests that wait for the engine.", sources.managers.intake_waiting)
    yield make_gauge(
        "kornel_response_queue_entries", "Response entries that no stream has taken yet.", service.queued_entries
    )
    yield make_gauge(
        "kornel_response_queue_limit",
        "The number of entries of one kind at which all are dropped.",
        sources.queue_limit,
    )
    yield make_counter(
        "kornel_response_overflows_total",
        "How many times response entries were dropped because there were too many.",
        service.response_overflows,
    )
    yield make_counter(
        "kornel_response_entries_dropped_total",
        "Response entries dropped by an overflow or a registration.",
        service.entries_dropped,
    )
    yield make_counters(
        "kornel_items_ignored_total",
        "Request entries without effect, by cause.",
        ["cause"],
        {str(cause): service.items_ignored[cause] for cause in Ignored},
    )
    yield make_counter(
        "kornel_engine_faults_total", "Exceptions inside the engine, which are always bugs.", service.engine_faults
    )
    yield make_counters(
        "kornel_group_lookups_total",
        "How many times a resolver was asked for the groups of a user, and how many of these failed.",
        ["result"],
        {
            "answered": service.group_lookups - service.group_lookups_failed,
            "failed": service.group_lookups_failed,
        },
    )
    yield make_gauge(
        "kornel_clock_ahead_seconds",
        "How far the machine's clock was set forward since the core started; negative: back.",
        sources.clock.ahead_s,
    )
    yield make_histogram(
        "kornel_event_loop_lag_seconds", "How late the event loop runs what is due.", sources.measures.lag.lag
    )


def _families_of_callers(sources: Sources) -> Iterable[Metric]:
    admission = sources.admission
    yield make_gauge("kornel_calls_open", "Open calls of gRPC, including streams.", admission.open)
    yield make_counters(
        "kornel_calls_refused_total",
        "Calls of gRPC that the core refused, by reason.",
        ["reason"],
        {str(refusal): admission.refused[refusal] for refusal in Refusal},
    )


def _on_the_wall(at_ns: int, clock: Clock) -> float:
    """Returns *at_ns* in seconds of the wall clock, which alerts use; 0, for never, stays 0."""
    return at_ns / SECOND_NS + clock.ahead_s if at_ns else 0.0


def _callback_metrics(sources: Sources) -> Iterable[Metric]:
    service, boards = sources.service, [place.callbacks for place in sources.managers.places]
    yield make_gauge(
        "kornel_callback_attached",
        "1: a shim answers questions.",
        int(any(board.attachment is not None for board in boards)),
    )
    yield make_counters(
        "kornel_callback_questions_total",
        "Questions sent to the shim, and questions dropped before that.",
        ["result"],
        {"sent": service.questions_sent, "dropped": service.questions_dropped},
    )
    yield make_counter(
        "kornel_callback_answers_total", "Answers of the shim, including late ones.", service.answers_received
    )
    yield make_histogram("kornel_callback_seconds", "The time from sending a question to its answer.", sources.latency)
    yield make_gauge(
        "kornel_callback_silence_seconds",
        "The time from the first to the last question sent since the last answer.",
        max(board.times.silence_ns() for board in boards) / SECOND_NS,
    )
    yield make_counters(
        "kornel_notices_total",
        "Notices sent to the shim, by kind.",
        ["kind", "result"],
        {
            ("scheduling-state", "sent"): service.scheduling_states_sent,
            ("scheduling-state", "dropped"): service.scheduling_states_dropped,
            ("preemption", "sent"): service.preemption_notices_sent,
            ("preemption", "dropped"): service.preemption_notices_dropped,
            ("event", "sent"): service.events_sent,
            ("event", "dropped"): service.events_dropped,
        },
    )


def _events(sources: Sources) -> Iterable[Metric]:
    ring, places = sources.events.events, sources.events.places
    yield make_counter("kornel_events_total", "Events that happened.", ring.next_id)
    yield make_gauge("kornel_event_ring_entries", "Events that can be read.", len(ring))
    yield make_gauge("kornel_event_ring_capacity", "The most events that can be kept to be read.", ring.capacity)
    yield make_gauge("kornel_event_streams", "Clients that follow events.", len(places))
    yield make_counter(
        "kornel_event_streams_dropped_total", "Clients dropped because they read too slowly.", places.dropped
    )
    yield make_counter(
        "kornel_event_streams_missed_total", "Events overwritten before a client could read them.", places.missed
    )


def _configuration_metrics(sources: Sources) -> Iterable[Metric]:
    managers, measures = sources.managers, sources.measures
    configurator = managers.leader.configurator
    yield make_gauge(
        "kornel_configuration_version",
        "Number of the configuration in force, of the first manager, whose settings are the core's; 0: none.",
        configurator.in_force,
    )
    yield make_counters(
        "kornel_configurations_total",
        "Configurations that came into force or were refused.",
        ["origin", "result"],
        measures.configurations,
    )
    yield make_gauge(
        "kornel_configuration_changed_timestamp_seconds",
        "When a configuration last came into force; 0: never.",
        _on_the_wall(measures.configured_ns, sources.clock),
    )
    held = [found for place in managers.places for found in [place.configurator.rollback_held] if found is not None]
    yield make_gauge(
        "kornel_configuration_rollback_holds",
        "1: a rollback is in force, and texts sent before it are not applied.",
        int(bool(held)),
    )
    yield make_gauge(
        "kornel_configuration_rollback_kept_out",
        "How many texts the rollbacks in force have kept out; 0: none, or no rollback is in force.",
        sum(each.kept_out for each in held),
    )
    yield make_gauge(
        "kornel_configuration_file_problem",
        "1: the configuration file cannot be used.",
        int(bool(managers.problem)),
    )


def _health(sources: Sources) -> Iterable[Metric]:
    report = sources.health.report
    if report is None:
        return
    yield make_gauge("kornel_healthy", "1: the last health check found nothing wrong.", int(report.healthy))
    yield make_gauges(
        "kornel_health_check",
        "1: the check succeeded.",
        ["number", "check"],
        {(str(n), check.name): int(check.succeeded) for n, check in enumerate(report.checks)},
    )
    yield make_gauge(
        "kornel_health_checked_timestamp_seconds",
        "When the last health check was made.",
        _on_the_wall(report.at_ns, sources.clock),
    )


def _memory_metrics() -> Iterable[Metric]:
    native = count_native()
    if native is not None:
        yield make_gauges(
            "kornel_native_memory_bytes",
            "Memory of the C library's allocator, mostly for gRPC: used, and free (kept or given back to the system).",
            ["state"],
            {"used": native.used_bytes, "free": native.free_bytes},
        )


def _standing_metrics(standing: Standing) -> Iterable[Metric]:
    yield make_gauge("kornel_leader", "1: this core leads, of those that share the journal.", int(standing.leads))
    yield make_counter(
        "kornel_leader_changes_total",
        "How many times a core has begun to lead, in the life of the journal.",
        standing.epoch,
    )
    if standing.leads:
        yield make_gauge(
            "kornel_lease_age_seconds",
            "The time since this core, which leads, began the last renewal of the lease that was answered.",
            round(standing.find_lease_age(), 3),
        )
    yield make_gauge(
        "kornel_standby_unfit",
        "1: this core no longer follows and never leads, because its state is not the leader's.",
        int(standing.role is Role.UNFIT),
    )
    yield make_gauge(
        "kornel_standby_records_behind",
        "Records of the journal that this core has not replayed.",
        standing.records_behind,
    )
    yield make_gauge(
        "kornel_standby_behind_seconds",
        "How old what this core shows may be; 0: it leads.",
        round(standing.behind_s, 3),
    )


def _journal_metrics(journal: JournalGauges, clock: Clock) -> Iterable[Metric]:
    yield make_gauge(
        "kornel_journal_epoch", "How many cores have written the journal, including this one.", journal.epoch
    )
    yield make_counter("kornel_journal_records_total", "Records of the journal, of all epochs.", journal.last_record)
    yield make_gauge(
        "kornel_journal_records_behind",
        "Calls of the engine whose record is not durable yet.",
        journal.last_record - journal.last_durable,
    )
    yield make_gauge(
        "kornel_journal_waiting", "Sets of effects that wait until their record is durable.", journal.sets_waiting
    )
    yield make_counter(
        "kornel_journal_bytes_total", "Bytes written to the journal since the start.", journal.bytes_written
    )
    yield make_histogram("kornel_journal_commit_seconds", "How long commits of the journal took.", journal.commits)
    yield make_gauge(
        "kornel_journal_problem",
        "1: the journal cannot be written, and nothing is accepted.",
        int(bool(journal.problem)),
    )
    snapshots = journal.snapshots
    yield make_gauge(
        "kornel_journal_snapshot_timestamp_seconds",
        "The time of which the newest snapshot is; 0: there is none.",
        _on_the_wall(snapshots.at_ns, clock),
    )
    yield make_gauge("kornel_journal_snapshot_bytes", "Size of the newest snapshot.", snapshots.size)
    yield make_gauge(
        "kornel_journal_snapshot_duration_seconds",
        "How long it took to make the newest snapshot; 0: an earlier core has made it.",
        snapshots.took_s,
    )
    yield make_gauge(
        "kornel_journal_snapshot_problem",
        "1: the last snapshot could not be made.",
        int(bool(snapshots.problem)),
    )


def _history(history: HistoryGauges, clock: Clock) -> Iterable[Metric]:
    yield make_gauge("kornel_history_queue_entries", "Entries that wait in memory.", history.queued)
    yield make_gauge("kornel_history_spool_bytes", "Bytes that wait on the disk for the database.", history.spool_bytes)
    yield make_gauge(
        "kornel_history_spool_limit_bytes",
        "The most bytes that may wait on the disk for the database.",
        history.spool_limit,
    )
    yield make_counters(
        "kornel_history_records_total",
        "Records of the history: safe on disk, stored in the database, dropped for lack of room, refused for ever.",
        ["result"],
        {
            "stored": history.stored,
            "committed": history.committed,
            "dropped": history.dropped,
            "refused": history.refused,
        },
    )
    yield make_gauge(
        "kornel_history_set_aside",
        "Records that the database refuses, and odd files of the spool, which an operator has to look at.",
        history.set_aside,
    )
    yield make_gauge("kornel_history_problem", "1: something is wrong with the history.", int(bool(history.problem)))
    yield make_gauge(
        "kornel_history_committed_timestamp_seconds",
        "When the database last stored something; 0: never.",
        _on_the_wall(history.last_commit_ns, clock),
    )
