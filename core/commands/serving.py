"""Starts the server with the options of ``kornel serve``: the one module of the command line that imports the
server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import typer
from structlog.typing import FilteringBoundLogger

from kornel import __version__
from kornel.cli.configuration_file import read_file
from kornel.cli.options import EXIT_FAILED, refuse_input, report_failure
from kornel.core.commands.configuration import check_text
from kornel.core.engine.engine import Engine
from kornel.core.journal.content.calls import Beginning
from kornel.core.journal.database.choices import JournalUnusable
from kornel.core.journal.database.settings import OFF, JournalSettingsError, journal_settings
from kornel.core.process import entry
from kornel.core.process.allocator import bound_kept_memory
from kornel.core.process.documentation import find_documentation
from kornel.core.process.history import HistorySettingsError, HistoryUnusable, chosen_history
from kornel.core.process.serve_options import ServeOptions
from kornel.core.process.server_settings import (
    AddressTooOpen,
    AddressUnavailable,
    LinkUnusable,
    OriginUnusable,
    ServerSettings,
)
from kornel.core.security.errors import SecurityError
from kornel.core.security.security import Security, SecurityOptions
from kornel.core.service.logs.logs import LevelSwitch, build_logger
from kornel.core.service.machine.clock import SystemClock
from kornel.core.service.resolvers.ldap_settings import LdapSettingsError
from kornel.core.service.resolvers.sources import find_sources
from kornel.core.state.options import RESERVATION_DELAY_NS, EngineOptions

if TYPE_CHECKING:
    from kornel.core.journal.journal import Journal
    from kornel.core.journal.standby import Standby


def serve_core(options: ServeOptions) -> None:
    """Run a core until it is asked to stop. Raises :class:`typer.Exit` with a status other than 0 after a failure."""
    bound_kept_memory(options.keep_freed_mb << 20)
    levels = LevelSwitch(options.log_level)
    logger = build_logger(options.log_format, levels)
    try:
        sources = find_sources(options.ldap_settings, logger)
    except LdapSettingsError as error:
        raise refuse_input(error) from error
    text = ""
    if options.config_file is not None:
        text = read_file(options.config_file)
        check_text(options.config_file, text, sources.unavailable)
    settings = _make_settings(options, text)
    try:
        guarded = Security(
            SecurityOptions(
                options.tls_cert,
                options.tls_key,
                options.tls_client_ca,
                options.security_file,
                options.insecure_anywhere,
            ),
            clock=SystemClock(),
            logger=logger,
        )
        guarded.check(options.address)
        if settings.rest_address:
            guarded.check(settings.rest_address, "--rest-address")
        tracing = entry.tracing_to(options.tracing_endpoint, logger)
    except (SecurityError, entry.TracingUnavailable) as error:
        raise refuse_input(error) from error
    try:
        made = _make_engine(options, logger)
        well = entry.run(
            made.engine,
            settings,
            sources,
            logger,
            levels,
            guarded,
            tracing,
            made.make_engine,
            made.journal,
            made.standby,
        )
    except (AddressUnavailable, HistoryUnusable, JournalUnusable) as error:
        raise report_failure(error) from error
    if not well:
        raise typer.Exit(EXIT_FAILED)


class _Made(NamedTuple):
    """The first engine, restored from its journal if there is one. ``make_engine`` makes further engines. ``journal``
    is the journal of this core; ``standby`` is its part in a journal that several cores share.
    """

    engine: Engine
    journal: Journal | None = None
    standby: Standby | None = None
    make_engine: Callable[[], Engine] | None = None


def _make_engine(options: ServeOptions, logger: FilteringBoundLogger) -> _Made:
    """Returns the engine, with its journal if it has one. Raises :class:`JournalUnusable`. A journal belongs to one
    engine, so a core with a journal makes no further ones.
    """
    delay_ns = None if options.disable_reservation else RESERVATION_DELAY_NS
    chosen = EngineOptions(delay_ns, options.reserved_nodes, options.ended)
    try:
        settings = journal_settings(
            options.journal_place or OFF,
            options.journal_sync,
            afresh=options.journal_afresh,
            accept_loss=options.journal_accept_loss,
            keep=options.journal_keep,
            snapshot_minutes=options.journal_snapshots,
        )
    except JournalSettingsError as error:
        raise refuse_input(f"--journal: {error}") from error
    if settings is None:
        if options.journal_place is None:
            logger.info("no journal is kept; with --journal, a restarted core continues where this one stops")

        def make_engine() -> Engine:
            return Engine(chosen)

        return _Made(make_engine(), make_engine=make_engine)
    # Imported here, because a core without a journal needs no database.
    from kornel.core.journal.journal import Journal  # noqa: PLC0415
    from kornel.core.journal.standby import Standby  # noqa: PLC0415

    beginning = Beginning(__version__, False, chosen)
    logger.info("a journal is kept", journal=settings.shown)
    if settings.shared:
        standby = Standby.open(settings, beginning, logger=logger)
        return _Made(standby.engine, standby=standby)
    journal = Journal.open(settings, beginning, now_ns=SystemClock().now_ns, logger=logger)
    return _Made(journal.first.engine, journal)


def _make_settings(options: ServeOptions, default_config: str) -> ServerSettings:
    try:
        kept = chosen_history(
            options.history_place,
            list(options.history_keep or ()),
            options.history_spool,
            options.history_spool_mb * 2**20,
            address=options.address,
        )
    except HistorySettingsError as error:
        raise refuse_input(f"--history: {error}") from error
    try:
        chosen = {
            **vars(options),
            "rest_address": "" if options.rest_address.lower() == "off" else options.rest_address,
            "docs_url": options.docs_url or find_documentation(),
        }
        return ServerSettings(**chosen, default_config=default_config, history=kept)
    except LinkUnusable as error:
        raise refuse_input(error) from error
    except OriginUnusable as error:
        raise refuse_input(f"--rest-cors-origin: {error}") from error
    except AddressTooOpen as error:
        raise refuse_input(f"--test-clock: {error}") from error
