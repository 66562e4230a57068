"""Documents that the web page needs and that YuniKorn does not have: the caller, the results of a search, the queue
that placement rules choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.telling.configuration.placement_answer import PlacementAnswer
from kornel.core.telling.encoding.documents import Document, always, if_any, listed
from kornel.core.telling.encoding.values import FLAG, TEXT, TEXTS
from kornel.core.telling.name_search import FoundName


class CallerReport(NamedTuple):
    """A caller as the core knows it. ``refusal``: why the caller cannot change anything from the page; empty: it
    can."""

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
    description=(
        "The caller, under the name that is recorded with what it does. Without a security file everybody has all"
        " permissions."
    ),
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
    """The names that were found. ``more``: kinds of which more were found than asked for."""

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
    description="Without a queue, no rule found one; outcomes tells the result of each rule.",
)
