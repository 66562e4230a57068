"""Who asks for a place: the owner with groups, the tags, and whether the work runs already (protocol.md 6.1, 6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from core.domain.commands import ApplicationSpec

NOBODY: Final = ("nobody", ("nogroup",))
"""User and groups of running work that comes without an owner (DB-17)."""

_FORCE_TAG: Final = "application.create.force"
_TRUE: Final = frozenset({"1", "t", "true"})


class Applicant(NamedTuple):
    """An application as placement sees it.

    queue   as submitted, may be empty
    tags    by lower-case key
    forced  the application has running containers and is turned away by no rule
    """

    user: str
    groups: tuple[str, ...]
    queue: str
    tags: Mapping[str, str]
    forced: bool


def applicant_of(spec: ApplicationSpec) -> Applicant:
    """Groups are used as given, for this application only (B17); without any, the user is the only group."""
    # Keys may differ in case alone: whichever order they come in, the same one counts.
    tags = {key.lower(): value for key, value in sorted(spec.tags, reverse=True)}
    forced = tags.get(_FORCE_TAG, "").lower() in _TRUE
    user, groups = spec.user, spec.groups or (spec.user,)
    if forced and not user:
        user, groups = NOBODY
    return Applicant(user, groups, spec.queue, tags, forced)
