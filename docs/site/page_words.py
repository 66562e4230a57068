"""``core/web/static/app/meanings.js``, made from the code: ``python -m docs.site.page_words`` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from docs.site.members import members
from kornel.core.domain.application_states import AppState
from kornel.core.domain.reasons import Outcome, Rejection
from kornel.core.preemption.foresight import PreemptionVerdict
from kornel.core.service.events.refusals import BAD_TEXT
from kornel.core.telling.allocations.explanation import BlockerKind

MODULE: Final = Path(__file__).resolve().parents[2] / "core" / "web" / "static" / "app" / "meanings.js"

_BAD_TEXT: Final = "The queue configuration has errors, or cannot be used as things are."

_HEADING: Final = """\
// What the words of the core mean. Written by `python -m docs.site.page_words` from the code; a test compares the two.

export const MEANINGS = """


def make_module() -> str:
    """Returns the module as it should be."""
    meanings = {
        "refusal": {**members(Rejection), BAD_TEXT: _BAD_TEXT},
        "waiting": members(BlockerKind),
        "verdict": members(PreemptionVerdict),
        "outcome": members(Outcome),
        "state": members(AppState),
    }
    plain = {
        group: {word: " ".join(text.replace("``", "").split()) for word, text in words.items()}
        for group, words in meanings.items()
    }
    return f"{_HEADING}{json.dumps(plain, indent=2, ensure_ascii=False)};\n"


if __name__ == "__main__":
    MODULE.write_text(make_module(), encoding="utf-8")
