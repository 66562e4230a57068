"""The document about the caller, for the web page. YuniKorn has none, and it is about HTTP, so gRPC has none either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.telling.encoding.documents import Document, always
from kornel.core.telling.encoding.values import FLAG, TEXT, TEXTS


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
