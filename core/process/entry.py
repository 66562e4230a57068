"""The process: an event loop, signals, and one server."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from structlog.typing import FilteringBoundLogger

from core.process.server import KornelServer, ServerSettings
from core.service.clock import ManualClock, SystemClock
from core.service.engine_port import EnginePort
from core.service.garbage import GarbageKeeper
from core.service.metrics import ServiceMetrics
from core.service.resolvers.sources import Sources

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def core_version() -> str:
    """Version of the installed distribution; ``unknown`` when run from a tree that was never installed."""
    try:
        return version("kornel")
    except PackageNotFoundError:
        return "unknown"


def loop_factory() -> LoopFactory | None:
    """uvloop's, where it is installed; ``None`` means the standard library's."""
    try:
        import uvloop  # noqa: PLC0415 - optional, so nothing else may import it
    except ImportError:
        return None
    return uvloop.new_event_loop


def run(engine: EnginePort, settings: ServerSettings, sources: Sources, logger: FilteringBoundLogger) -> bool:
    """Serve *engine* until SIGTERM or SIGINT. False: it ended because of a bug.

    Raises :class:`core.process.server.AddressUnavailable` and :class:`core.process.history.HistoryUnusable`.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(engine, settings, sources, logger))


async def _serve(engine: EnginePort, settings: ServerSettings, sources: Sources, logger: FilteringBoundLogger) -> bool:
    server = KornelServer(
        engine,
        settings,
        clock=ManualClock(time.time_ns()) if settings.test_clock else SystemClock(),
        metrics=ServiceMetrics(),
        logger=logger,
        garbage=GarbageKeeper(),
        sources=sources,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    await server.start()
    return await server.serve(stop)
