"""The memory of gang scheduling in a partition: the applications that it has to look at."""

from __future__ import annotations

from typing import Final

from kornel.core.model.applications import Application


class GangRecord:
    """Keeps the applications with gangs that something is to be done about, in order of arrival."""

    __slots__ = ("timed_out", "to_match", "without_room")

    def __init__(self) -> None:
        self.to_match: Final[dict[Application, None]] = {}
        """Applications of which a real ask may now find a placeholder to replace."""
        self.without_room: Final[dict[Application, None]] = {}
        """Applications of which one found a placeholder, but had to go elsewhere and found no node."""
        self.timed_out: Final[dict[Application, None]] = {}
        """Applications whose placeholders have waited long enough; nothing was done about it yet."""
