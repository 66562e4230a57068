"""Defines the interface of a resolver."""

from __future__ import annotations

from typing import Protocol


class Unresolved(Exception):
    """The groups of a user cannot be determined. The text says why. It becomes part of a rejection, so it must not
    contain secrets."""


class GroupSource(Protocol):
    """A source of the groups of users."""

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Returns the groups of *user*, at least one. It may take long, and is called from several threads at once.

        Raises :class:`Unresolved`.
        """
