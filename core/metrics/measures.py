"""Counters that are kept while the core runs. Numbers that can be read from the engine at a scrape are not counted
here."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import product
from typing import Final

from kornel.core.metrics.decisions import Decisions
from kornel.core.metrics.timings import Timings
from kornel.core.service.configuration.configuration_history import Origin, Version
from kornel.core.service.machine.clock import Clock
from kornel.core.service.metrics.metrics import Durations

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVERY_S: Final = 0.25


class LoopLag:
    """Measures the delay of the event loop. ``lag``: how late each measurement came."""

    def __init__(self) -> None:
        self.lag = Durations(BOUNDS_S)

    async def measure_for_ever(self) -> None:
        """Measures four times a second."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + EVERY_S
            await asyncio.sleep(EVERY_S)
            self.lag.add(max(0.0, loop.time() - due_s))


class Measures:
    """The counters that are kept while the core works. ``timings`` and ``decisions`` count for all managers;
    ``timings.of_engine`` makes the ``EngineTimer`` of one, and ``decisions.of_manager`` its ``EffectObserver``.

    ``configurations``: the numbers that came into force or were refused, by origin and result.
    """

    def __init__(self, *, clock: Clock) -> None:
        """Makes all counters, starting at zero."""
        self.decisions = Decisions(lambda name: "", clock.now_ns)
        self.timings = Timings(self.decisions)
        self.lag = LoopLag()
        self.configurations: Counter[tuple[str, str]] = Counter(
            dict.fromkeys(product(map(str, Origin), ("applied", "refused")), 0)
        )
        self.configured_ns = 0
        """The time when a configuration last came into force; 0: none has."""

    def version_added(self, version: Version) -> None:
        """Count a configuration that came into force or was refused."""
        self.configurations[str(version.origin), "applied" if version.applied else "refused"] += 1
        if version.applied:
            self.configured_ns = version.at_ns
