"""``docs/reasons.md``, made from the code: ``python -m docs.site.reasons_page`` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from docs.site.markdown import cell, table
from docs.site.members import members
from kornel.core.domain.application_states import TRANSITIONS, AppState
from kornel.core.domain.reasons import Ignored, Outcome, Rejection, Unschedulable
from kornel.core.preemption.foresight import PreemptionVerdict
from kornel.core.telling.allocations.explanation import PERMANENT, BlockerKind

PAGE: Final = Path(__file__).resolve().parents[1] / "reasons.md"

_INTRODUCTION: Final = """\
# Reasons and states

The words of each table are a closed set: a program may compare with them. A release may add words, and none changes its
meaning. `python -m docs.site.reasons_page` writes this page from the code, and a test compares the two.
"""

_REFUSALS: Final = """\
## Refusals

A refused entry is answered in `rejected` or `rejectedAllocations`. Its reason begins with one of these tokens, then a
colon, a space, and text for people: `no-queue: no placement rule matched`. Compare the token only.
"""

_IGNORED: Final = """\
## Entries without effect

Entries that the interface never answers are counted instead: `GetStatus` tells, and the metric
`kornel_items_ignored_total`.
"""

_STATES: Final = """\
## States of an application

`UpdatedApplication.state` and REST use these words. `Rejected` is not sent on the stream.
"""

_WAITING: Final = """\
## Why an ask waits

`BlockerKind` is what [explain](explain.md) answers with, in every interface. Those marked *lasting* do not go away by
waiting; a quota that is smaller than the ask is lasting too.
"""

_FAILING: Final = """\
`GetStatus` and the failures of an ask say with these words how the last try to place it ended:
"""

_PREEMPTING: Final = """\
## How a try to preempt ended

Decisions of [preemption](preemption.md), their events, metrics and history use these words.
"""

_HELPING: Final = """\
`explain` says with these words whether preemption could help an ask:
"""


def page() -> str:
    """The page as it should be."""
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield _REFUSALS
    yield from _words("Token", Rejection)
    yield _IGNORED
    yield from _words("Reason", Ignored)
    yield _STATES
    yield from table("State", "Meaning", "Next")
    for state, text in members(AppState).items():
        following = sorted({str(after) for (before, _), after in TRANSITIONS.items() if before == state != after})
        yield f"| `{state}` | {cell(text)} | {', '.join(following)} |"
    yield ""
    yield _WAITING
    yield from table("Kind", "Meaning", "")
    for kind, text in members(BlockerKind).items():
        yield f"| `{kind}` | {cell(text)} | {'lasting' if kind in PERMANENT else ''} |"
    yield ""
    yield _FAILING
    yield from _words("Reason", Unschedulable)
    yield _PREEMPTING
    yield from _words("Outcome", Outcome)
    yield _HELPING
    yield from _words("Verdict", PreemptionVerdict)


def _words(title: str, kind: type[Enum]) -> Iterator[str]:
    yield from table(title, "Meaning")
    for value, text in members(kind).items():
        yield f"| `{value}` | {cell(text)} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
