"""Documents that a page for people needs and that upstream does not have: who asks, what was found, where work goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.telling.configuration.placement_answer import PlacementAnswer
from kornel.core.telling.encoding.documents import Document, always, if_any, listed
from kornel.core.telling.encoding.values import FLAG, TEXT, TEXTS
from kornel.core.telling.name_search import FoundName


class CallerReport(NamedTuple):
    """A caller as the core knows it. ``refusal``: why it cannot change anything from here; empty: it can."""

    name: str
    permissions: Sequence[str]
    guarded: bool
    refusal: str


CALLER_REPORT: Final = Document(
    "Caller",
    CallerReport,
    {
        "name": always(TEXT, "name"),
        "permissions": always(TEXTS, "permissions"),
        "guarded": always(FLAG, "guarded"),
        "refusal": always(TEXT, "refusal"),
    },
    description="Who asks, as it is recorded with what they do. Without a security file everybody has all permissions.",
)

_FOUND: Final = Document(
    "",
    FoundName,
    {
        "kind": always(TEXT, "kind"),
        "name": always(TEXT, "name"),
        "place": if_any(TEXT, "place"),
        "state": if_any(TEXT, "state"),
    },
)


class SearchAnswer(NamedTuple):
    """The names that were found. ``more``: kinds of which there is more than was asked for."""

    found: Sequence[FoundName]
    more: Sequence[str]


SEARCH: Final = Document(
    "Search",
    SearchAnswer,
    {"found": always(listed(_FOUND), "found"), "more": always(TEXTS, "more")},
    description="Kinds: application, ended, queue, node, user, ask, allocation.",
)

PLACEMENT: Final = Document(
    "Placement",
    PlacementAnswer,
    {
        "queue": if_any(TEXT, "queue"),
        "exists": always(FLAG, "exists"),
        "above": if_any(TEXT, "above"),
        "outcomes": if_any(TEXTS, "outcomes"),
    },
    description="No queue: no rule finds one, and outcomes says what came of each.",
)
