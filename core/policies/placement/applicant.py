"""Defines what placement knows of an application: its owner with groups, its tags, and whether it runs already
(protocol.md 6.1, 6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kornel.core.domain.commands import ApplicationSpec
from kornel.core.policies.owners import NOBODY, groups_of

_FORCE_TAG: Final = "application.create.force"
_TRUE: Final = frozenset({"1", "t", "true"})


class Applicant(NamedTuple):
    """An application as placement sees it.

    queue   the queue named when it was submitted; may be empty
    tags    its tags, by key in lower case
    forced  tells whether it has running containers, so that no rule may refuse it
    """

    user: str
    groups: tuple[str, ...]
    queue: str
    tags: Mapping[str, str]
    forced: bool


def applicant_of(spec: ApplicationSpec) -> Applicant:
    """Returns the applicant for a new application. Only running work may come without a user; for other applications
    the user stays empty, so that they are refused."""
    # Two keys may differ in case only; sorting makes the same one count in whatever order they come.
    tags = {key.lower(): value for key, value in sorted(spec.tags, reverse=True)}
    forced = tags.get(_FORCE_TAG, "").lower() in _TRUE
    user = spec.user or (NOBODY if forced else "")
    return Applicant(user, groups_of(spec), spec.queue, tags, forced)
