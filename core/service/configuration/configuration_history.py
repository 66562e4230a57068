"""Keeps the configurations that a core was given, including refused ones, in memory and up to a bound.

A core with a journal notes them for the next core, which starts with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from kornel.core.config.text.problems import Problem
from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.service.configuration.rollbacks import Rollback

MOST_VERSIONS: Final = 50
MOST_CHARACTERS: Final = 32 * 2**20
"""The most characters of all texts together; the version in force is kept however long it is."""


class Origin(StrEnum):
    """The source of a configuration."""

    REGISTRATION = "registration"
    UPDATE = "update"
    FILE = "file"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Version:
    """One configuration.

    number    from 1, never used twice
    at_ns     when the core decided on it, Unix nanoseconds
    rm_id     the manager that it was for; empty for a file while nobody is registered
    checksum  empty for a text that cannot be used
    applied   tells whether it came into force
    reason    why it did not; empty if it did
    problems  errors and warnings in the order of the text
    principal the caller that brought it (:func:`kornel.core.service.connections.callers.principal`), or ``file``
    note      what happened to a rollback with it; empty: nothing
    """

    number: int
    at_ns: int
    origin: Origin
    rm_id: str
    checksum: str
    text: str
    applied: bool
    reason: str
    problems: tuple[Problem, ...]
    principal: str = ""
    note: str = ""


class ConfigurationHistory:
    """Versions, the oldest first. ``in_force``: the number of the version in force, 0 while nobody is registered."""

    def __init__(self, most_versions: int = MOST_VERSIONS, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_versions = most_versions
        self._most_characters = most_characters
        self._versions: deque[Version] = deque()
        self._characters = 0
        self._last = 0
        self.in_force = 0

    def add(
        self,
        *,
        at_ns: int,
        origin: Origin,
        rm_id: str,
        text: str,
        checksum: str = "",
        reason: str = "",
        problems: Sequence[Problem] = (),
        principal: str = "",
        note: str = "",
    ) -> Version:
        """Adds a configuration, which was refused if there is a *reason*, and is in force from now on otherwise."""
        self._last += 1
        version = Version(
            self._last,
            at_ns,
            origin,
            rm_id,
            checksum,
            text,
            not reason,
            reason,
            tuple(problems),
            principal=principal,
            note=note,
        )
        self.take_version(version)
        return version

    def take_version(self, version: Version) -> None:
        """Add *version* with its present number."""
        self._last = max(self._last, version.number)
        self._versions.append(version)
        self._characters += len(version.text)
        if version.applied:
            self.in_force = version.number
        self._drop_texts()

    def list_since(self, number: int) -> tuple[Version, ...]:
        """Returns the kept versions with a number greater than *number*, the oldest first."""
        return tuple(version for version in self._versions if version.number > number)

    @property
    def last(self) -> int:
        """Returns the number of the newest version, or 0 if there was none."""
        return self._last

    def kept_versions(self) -> tuple[Version, ...]:
        """Returns all versions that are kept, the oldest first."""
        return tuple(self._versions)

    def get(self, number: int) -> Version | None:
        """Returns version *number*; 0: the one in force. ``None``: there is none, or it is no longer kept."""
        wanted = number or self.in_force
        return next((version for version in self._versions if version.number == wanted), None)

    def refused_last(self, text: str, reason: str) -> bool:
        """Tells whether the newest version is *text*, refused for the same *reason*."""
        return bool(self._versions) and (self._versions[-1].text, self._versions[-1].reason) == (text, reason)

    def _drop_texts(self) -> None:
        while len(self._versions) > 1 and (
            len(self._versions) > self._most_versions or self._characters > self._most_characters
        ):
            victim = next((v for v in self._versions if v.number != self.in_force), None)
            if victim is None or victim.number == self._last:
                return
            self._versions.remove(victim)
            self._characters -= len(victim.text)


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
