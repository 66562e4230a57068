"""The applicant for a place: the owner with groups, the tags, and whether the work runs already (protocol.md 6.1,
6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kornel.core.domain.commands import ApplicationSpec
from kornel.core.policies.owners import NOBODY, groups_of

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
    """Returns the applicant for a new application. Only running work may come without a user; anybody else's is left
    empty, to be refused."""
    # Keys may differ in case alone: whichever order they come in, the same one counts.
    tags = {key.lower(): value for key, value in sorted(spec.tags, reverse=True)}
    forced = tags.get(_FORCE_TAG, "").lower() in _TRUE
    user = spec.user or (NOBODY if forced else "")
    return Applicant(user, groups_of(spec), spec.queue, tags, forced)
