"""Keeps the part that a core has in its journal: the journal itself while it leads, its standing, and its standby."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from kornel.core.service.managers.managers import Place
from kornel.core.service.managers.standing import Standing, StandingGate
from kornel.core.service.runner.engine_port import EnginePort
from kornel.core.service.runner.journal_port import Gate
from kornel.core.service.streams.streams import Switchboard

if TYPE_CHECKING:
    from kornel.core.journal.journal import Journal
    from kornel.core.journal.restoring import EngineRestorer
    from kornel.core.journal.standby import Standby
    from kornel.core.journal.writing.places import JournalPlace


class JournalPart:
    """The part of one core in its journal. A core without a journal has one, too, which says that there is none."""

    def __init__(self, journal: Journal | None, standby: Standby | None, logger: FilteringBoundLogger) -> None:
        self.journal = journal
        """The journal, if there is one and this core leads."""
        self.standby = standby
        """The part of this core among those that share the journal; ``None``: the core is the only one."""
        self.standing = standby.standing if standby is not None else Standing()
        """The standing of the core among those that share its journal."""
        self._logger = logger

    @property
    def there(self) -> bool:
        """Tells whether this core has a journal, or has one once it leads."""
        return self.journal is not None or self.standby is not None

    @property
    def lapsed(self) -> bool:
        """Tells whether another core may lead."""
        return self.journal is not None and self.journal.lapsed

    def find_kept(self, engine: EnginePort) -> JournalPlace | None:
        """Returns the part of the journal that belongs to the place of *engine*, or ``None`` if there is none."""
        return self.journal.find_place(engine) if self.journal is not None else None

    def close_place(self, place: Place) -> None:
        """Closes *place* in the journal, because it was given up."""
        if self.journal is not None:
            for kept in self.journal.places:
                if place.runner.runs(kept.engine):
                    self.journal.close_place(kept)

    def open_gate(self, kept: JournalPlace | None, switchboard: Switchboard) -> Gate:
        """Returns the gate of a place, whose responses are those of *switchboard*. *kept* is its part of the journal;
        ``None``: it has none yet."""
        if kept is None:
            return StandingGate(self.standing)
        kept.gate.responses = switchboard
        return kept.gate

    def make_restorer(self, engine: EnginePort) -> EngineRestorer | None:
        """Returns what restores *engine* from the journal, or ``None`` if this core never has one."""
        if not self.there:
            return None
        from kornel.core.journal.restoring import EngineRestorer  # noqa: PLC0415 - it needs a database

        return EngineRestorer(engine, lambda: self.journal, self._logger)
