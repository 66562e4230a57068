"""The values that a core records about its configurations for the next core."""

from __future__ import annotations

from typing import NamedTuple

from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.service.configuration.configuration_history import ConfigurationHistory, Version
from kornel.core.service.configuration.rollbacks import Rollback


class ConfigurationState(NamedTuple):
    """The state of a configurator, without its versions.

    brought     the manager's latest text; empty: the text of the file is used
    brought_by  the last text of each origin, by the name of the origin
    file_holds  the file is in force, or would be without a rollback
    last        the last command that was accepted
    rollback    the rollback in force
    """

    brought: str = ""
    brought_by: tuple[tuple[str, str], ...] = ()
    file_holds: bool = True
    last: UpdateConfiguration = UpdateConfiguration(rm_id="", config="")
    rollback: Rollback | None = None


class ConfigurationNote(NamedTuple):
    """A change: versions that were added, and the state afterwards."""

    versions: tuple[Version, ...]
    state: ConfigurationState


class KeptConfigurations:
    """The content of all notes together."""

    def __init__(self) -> None:
        self.history = ConfigurationHistory()
        self.state: ConfigurationState | None = None
        """The state in the last note; ``None`` if there was no note."""

    def take_note(self, note: ConfigurationNote) -> None:
        """Adds the content of *note*."""
        for version in note.versions:
            self.history.take_version(version)
        self.state = note.state

    def as_note(self) -> ConfigurationNote | None:
        """Returns one note with the whole content, or ``None`` if there is none."""
        return ConfigurationNote(self.history.kept_versions(), self.state) if self.state is not None else None
