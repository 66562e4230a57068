"""Keeps what the health services of a core say: of the whole core, of each gRPC service, and of four parts of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.process.services import READING
from kornel.core.service.managers.standing import Standing
from kornel.core.service.services.health_service import HealthService

CONFIGURATION_FILE: Final = "kornel.v1.Configuration"
"""The health service of the configuration file: NOT_SERVING while the file cannot be used."""

HISTORY: Final = "kornel.v1.History"
"""The health service of the durable history: NOT_SERVING while records have to wait in the spool."""

MANAGERS: Final = "kornel.v1.Managers"
"""The health service of the managers' engines: NOT_SERVING while the state of one of them cannot be trusted."""

JOURNAL: Final = "kornel.v1.Journal"
"""The health service of the journal: NOT_SERVING while it cannot be written, so that no commands are accepted."""


class Readiness:
    """The readiness of a core, from which :attr:`service` answers."""

    def __init__(self, standing: Standing, logger: FilteringBoundLogger, has_lapsed: Callable[[], bool]) -> None:
        """Makes the readiness of a core that has not started. *has_lapsed* tells whether another core may lead."""
        self.service = HealthService(logger, has_lapsed)
        """The service that tells callers."""
        self._standing = standing
        self._has_lapsed = has_lapsed
        self._services: Collection[str] = ()
        self._up = False
        self._damaged = False
        self._journal_fails = False
        self._ready = False

    @property
    def ready(self) -> bool:
        """Tells whether requests are accepted, the state can be trusted, and no other core may lead."""
        return self._ready and not self._has_lapsed()

    def name_services(self, services: Collection[str]) -> None:
        """Notes the names of the gRPC *services* of the core."""
        self._services = services

    def start(self, parts: Collection[str]) -> None:
        """Reports the core, and each of *parts*, such as :data:`HISTORY`, as serving unless it has failed."""
        self._up = True
        self.update()
        for part in parts:
            self.set_part(part, not (part == JOURNAL and self._journal_fails))

    def stop(self) -> None:
        """Reports from now on that the core is stopping."""
        self._up = self._ready = False
        self.service.stop_serving()

    def set_part(self, part: str, serving: bool) -> None:
        """Reports *part* of the core as serving or not, which does not change what the core as a whole does."""
        self.service.set_serving(part, serving)

    def set_damaged(self, damaged: bool) -> None:
        """Notes whether no engine can be trusted."""
        if damaged is not self._damaged:
            self._damaged = damaged
            self.update()

    def set_journal(self, works: bool) -> None:
        """Notes whether the journal can be written. While it cannot, no commands are accepted."""
        self.set_part(JOURNAL, works)
        self._journal_fails = not works
        self.update()

    def update(self) -> None:
        """Updates what is said of the core and its services, also because its standing has changed. A core that stands
        by only serves services that answer questions."""
        # A store that works again while the core is stopping does not make the core ready again.
        leads = self._standing.leads
        self._ready = self._up and not self._damaged and not self._journal_fails and leads
        for name in ("", *self._services):
            answers = name in READING and self._up and not self._damaged and not leads
            self.service.set_serving(name, self._ready or answers)


def write_ready_file(path: Path, text: str) -> None:
    """Writes *text* so that a reader of the file never sees a part of it."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(text + "\n", encoding="utf-8")
    scratch.replace(path)
