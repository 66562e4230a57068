"""The interface of a resolver."""

from __future__ import annotations

from typing import Protocol


class Unresolved(Exception):
    """The groups of a user cannot be found out. The text says why, and ends up in a rejection: no secrets in it."""


class GroupSource(Protocol):
    """Tells the groups of users."""

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Returns the groups of *user*, at least one. May take its time; called from several threads at once.

        Raises :class:`Unresolved`.
        """
