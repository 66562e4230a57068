"""Starts and stops the durable history of one core: its writer and its queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from structlog.typing import FilteringBoundLogger

from kornel.core.archive.absent_history import AbsentHistory
from kornel.core.archive.defaults import DEFAULT_SPOOL_BYTES
from kornel.core.archive.settings import (
    HistorySettings,
    HistorySettingsError,
    default_history,
    history_settings,
)
from kornel.core.archive.spool import SpoolUnusable
from kornel.core.archive.usage_samples import UsageSample
from kornel.core.config.keys.event_settings import keeps_history
from kornel.core.domain.effects import Effect
from kornel.core.service.configuration.configuration_history import Version
from kornel.core.service.machine.clock import Clock
from kornel.core.service.metrics.metrics import EffectObserver

if TYPE_CHECKING:
    from kornel.core.archive.archive import Archive, ArchiveStatus
    from kornel.core.archive.history_service import HistoryService

__all__ = [
    "History",
    "HistoryChoice",
    "HistorySettingsError",
    "HistoryUnusable",
    "chosen_history",
]


class HistoryUnusable(Exception):
    """The history that the options ask for cannot be kept."""


@dataclass(frozen=True, slots=True)
class HistoryChoice:
    """The choice whether and how a history is kept. ``settings`` ``None``: no history. ``required`` tells whether the
    core must not serve without it."""

    settings: HistorySettings | None = None
    required: bool = False


NO_HISTORY: Final = HistoryChoice()


def chosen_history(
    where: str | None,
    keep: list[str],
    spool: Path | None = None,
    spool_bytes: int = DEFAULT_SPOOL_BYTES,
    *,
    address: str,
) -> HistoryChoice:
    """Returns the history that the options choose for the core at *address*. Raises :class:`HistorySettingsError`.

    *where* ``None``: no option was given, so the core uses its own file, or has no history if that is not possible.
    """
    settings = history_settings(where or default_history(address), keep, spool, spool_bytes, address=address)
    return HistoryChoice(settings, required=where is not None)


class ManagerHistory:
    """The history of one manager, which may choose that nothing is kept. *archive* absent: nothing is kept."""

    def __init__(self, archive: Archive | None) -> None:
        self._archive = archive
        self._pausing = False

    @property
    def wanted(self) -> bool:
        """Tells whether a history of the manager is kept."""
        return not self._pausing

    @property
    def observers(self) -> tuple[EffectObserver, ...]:
        """The observers of the effects of the manager's engine."""
        return (self,) if self._archive is not None else ()

    def follow_settings(self, extra_config: Mapping[str, str]) -> None:
        """Follows *extra_config* from now on."""
        self._pausing = not keeps_history(extra_config)

    def observe(self, effects: Sequence[Effect]) -> None:
        """Store those of *effects* that belong to the history."""
        if self._archive is not None and not self._pausing:
            self._archive.observe(effects)

    def version_added(self, version: Version) -> None:
        """Store a configuration that came into force or was refused."""
        if self._archive is not None and not self._pausing:
            self._archive.version_added(version)


class History:
    """The durable history of one core. Raises :class:`HistoryUnusable` if a required history cannot be kept."""

    def __init__(
        self,
        choice: HistoryChoice,
        *,
        clock: Clock,
        logger: FilteringBoundLogger,
        keeps_events: Callable[[], bool] = lambda: True,
    ) -> None:
        self._archive: Archive | None = None
        self.service: HistoryService | AbsentHistory = AbsentHistory(logger)
        if choice.settings is not None:
            try:
                self._archive, self.service = _open_history(choice.settings, clock, logger, keeps_events)
            except ImportError as error:
                raise HistoryUnusable(
                    f"{choice.settings.shown}: {error}; {choice.settings.missing_driver_hint}"
                ) from error
            except SpoolUnusable as error:
                if choice.required:
                    raise HistoryUnusable(f"history: {error}") from error
                logger.warning("no history is kept, the place for it cannot be used", reason=str(error))

    @property
    def kept(self) -> bool:
        """Tells whether a history is kept."""
        return self._archive is not None

    def of_manager(self) -> ManagerHistory:
        """Returns a history for one more manager."""
        return ManagerHistory(self._archive)

    def status(self) -> ArchiveStatus | None:
        """Returns the state of the history; ``None``: none is kept."""
        return self._archive.status() if self._archive is not None else None

    def start(self, on_problem: Callable[[str], None]) -> None:
        """Begins to write. *on_problem*: as for :class:`kornel.core.archive.archive.Archive`; it is called by other
        threads."""
        if self._archive is not None:
            self._archive.on_problem = on_problem
            self._archive.start()

    def keep_usage(self, samples: Sequence[UsageSample]) -> None:
        """Store how full queues were."""
        if self._archive is not None:
            self._archive.keep_usage(samples)

    def close(self, patience_s: float) -> None:
        """Blocks until everything queued is stored, and for up to *patience_s* seconds while the database accepts
        it."""
        self.service.close()
        if self._archive is not None:
            self._archive.close(patience_s)


def _open_history(
    settings: HistorySettings, clock: Clock, logger: FilteringBoundLogger, keeps_events: Callable[[], bool]
) -> tuple[Archive, HistoryService]:
    # Imported here, because a core without a history needs no database.
    from kornel.core.archive.archive import Archive  # noqa: PLC0415
    from kornel.core.archive.history_service import HistoryService  # noqa: PLC0415
    from kornel.core.archive.reader import HistoryReader  # noqa: PLC0415

    reader = HistoryReader(settings)
    archive = Archive(settings, now_ns=clock.now_ns, logger=logger, keeps_events=keeps_events)
    return archive, HistoryService(archive, reader, logger=logger)
