"""Runs the process: an event loop, signal handlers, and one server."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from structlog.typing import FilteringBoundLogger

from kornel import __version__
from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.security.security import Security
from kornel.core.service.logs.logs import LevelSwitch
from kornel.core.service.machine.clock import ManualClock, SystemClock, wall_ns
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.resolvers.sources import Sources
from kornel.core.service.runner.engine_port import EnginePort
from kornel.shared.event_loop import loop_factory

if TYPE_CHECKING:
    from kornel.core.journal.journal import Journal
    from kornel.core.journal.standby import Standby
    from kornel.core.tracing.tracing import Tracing


SWITCH_INTERVAL_S: Final = 0.001


class TracingUnavailable(Exception):
    """Spans cannot be sent to the given receiver."""


def tracing_to(endpoint: str, logger: FilteringBoundLogger) -> Tracing | None:
    """Returns tracing to an OTLP receiver; ``None`` for an empty *endpoint*. Raises :class:`TracingUnavailable`."""
    if not endpoint:
        return None
    try:
        from kornel.core.tracing.export import BadEndpoint, tracing_to  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TracingUnavailable(f"tracing needs the extra packages of kornel[tracing]: {error}") from error
    try:
        return tracing_to(endpoint, __version__, logger)
    except BadEndpoint as error:
        raise TracingUnavailable(str(error)) from error


def run(
    engine: EnginePort,
    settings: ServerSettings,
    sources: Sources,
    logger: FilteringBoundLogger,
    levels: LevelSwitch,
    security: Security | None = None,
    tracing: Tracing | None = None,
    make_engine: Callable[[], EnginePort] | None = None,
    journal: Journal | None = None,
    standby: Standby | None = None,
) -> bool:
    """Serve *engine* until SIGTERM or SIGINT. Returns false if it ended because of a bug. *levels*: the level switch of
    *logger*. *make_engine* makes the engines of further resource managers. *journal*: the journal of *engine*; absent:
    there is none. *standby* follows another core with *engine*, and takes over from it.

    Raises :class:`kornel.core.process.server.AddressUnavailable`, :class:`kornel.core.process.server.AddressTooOpen` or
    :class:`kornel.core.process.history.HistoryUnusable`.
    """
    # After this time, a thread that reads a configuration or a page of the history leaves the interpreter to the event
    # loop. With Python's default of 5 ms, a health check, which takes some ten turns, would wait several times as long.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(
            _serve(engine, settings, sources, logger, levels, security, tracing, make_engine, journal, standby)
        )


async def _serve(
    engine: EnginePort,
    settings: ServerSettings,
    sources: Sources,
    logger: FilteringBoundLogger,
    levels: LevelSwitch,
    security: Security | None,
    tracing: Tracing | None,
    make_engine: Callable[[], EnginePort] | None,
    journal: Journal | None,
    standby: Standby | None,
) -> bool:
    before = journal or standby
    last_ns = before.last_ns if before is not None else 0
    server = KornelServer(
        engine,
        settings,
        clock=ManualClock(max(wall_ns(), last_ns)) if settings.test_clock else SystemClock(last_ns),
        metrics=ServiceMetrics(),
        logger=logger,
        garbage=GarbageKeeper(),
        sources=sources,
        levels=levels,
        security=security,
        tracing=tracing,
        make_engine=make_engine,
        journal=journal,
        standby=standby,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    await server.start()
    return await server.serve(stop)
