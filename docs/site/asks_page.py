"""``docs/life-of-an-ask.md``, made from the table of the code: ``python -m docs.site.asks_page`` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.site.markdown import cell, table
from docs.site.members import members
from kornel.core.domain.ask_places import MOVES, AskMove, AskPlace, WaitsFor

PAGE: Final = Path(__file__).resolve().parents[1] / "life-of-an-ask.md"

_INTRODUCTION: Final = """\
# The life of an ask

An ask that finds room at once waits, and is placed:

```text
nowhere ── wait ──► waiting ── place ──► placed ── end ──► gone
```

Everything else that can happen is below. An ask is in one place at a time.
[`move_ask`](../core/state/waiting/places.py) is the only function that moves it, and refuses a move that is not in
the table; the audit reckons from the records of the partition where each ask is, and compares.
`python -m docs.site.asks_page` writes this page from [`ask_places.py`](../core/domain/ask_places.py), and a test
compares the two.
"""

_PLACES: Final = """\
## Places
"""

_MOVES: Final = """\
## Moves

Room may be held on a node for an ask in any of the places `reserved`, `held` and `refused`; it keeps that room when it
moves between them.
"""

_LACKING: Final = """\
## What a parked ask waits for

Equal asks of an application wait as one group. A group that the next cycle need not try is parked until it may
get what it waits for. Then the first of those who wait for the same is tried, and the next one as long as there is
enough:
"""


def page() -> str:
    """Returns the page as it should be."""
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "```mermaid"
    yield "stateDiagram-v2"
    for place, after, moves in _arrows():
        yield f"    {_word(place)} --> {_word(after)}: {', '.join(_word(move) for move in moves)}"
    yield "```"
    yield ""
    yield _PLACES
    yield from table("Place", "Meaning", "Left by")
    for place, text in zip(AskPlace, members(AskPlace).values(), strict=True):
        leaving = [f"{_word(move)} → {_word(MOVES[move][place])}" for move in AskMove if place in MOVES[move]]
        yield f"| `{_word(place)}` | {cell(text)} | {', '.join(leaving) or 'nothing'} |"
    yield ""
    yield _MOVES
    yield from table("Move", "Meaning", "From")
    for move, text in zip(AskMove, members(AskMove).values(), strict=True):
        yield f"| `{_word(move)}` | {cell(text)} | {', '.join(map(_word, MOVES[move]))} |"
    yield ""
    yield _LACKING
    yield from table("Waits for", "Meaning")
    for lacking, text in members(WaitsFor).items():
        yield f"| `{lacking}` | {cell(text)} |"


def _arrows() -> Iterator[tuple[AskPlace, AskPlace, list[AskMove]]]:
    """Yields each pair of places that moves lead from and to, with these moves."""
    for place in AskPlace:
        for after in AskPlace:
            moves = [move for move in AskMove if MOVES[move].get(place) is after]
            if moves:
                yield place, after, moves


def _word(member: AskPlace | AskMove) -> str:
    return member.name.lower().replace("_", "-")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
