"""Determines the owner of an application (config.md 11, protocol.md 6.1, DB-17).

The engine does not look up users. The result of a resolver, or why it found nothing, comes with the application.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.commands import ApplicationSpec

NOBODY: Final = "nobody"
"""The user of running work that comes without one."""

NO_GROUP: Final = "nogroup"
"""The group of running work that comes without a user, or for whose user no groups are found."""


def groups_of(spec: ApplicationSpec) -> tuple[str, ...]:
    """Returns the groups of the owner: those given, otherwise those looked up, otherwise one with the user's name.

    Groups are used for this application only, wherever they come from (B17).
    """
    if not spec.user:
        return (NO_GROUP,)
    if spec.groups:
        return spec.groups
    if spec.unresolved:
        return (NO_GROUP,)
    return spec.looked_up or (spec.user,)
