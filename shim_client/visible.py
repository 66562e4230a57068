"""Writes texts from the core so that they can be shown safely: on one line, without control characters that a terminal
would execute."""

from __future__ import annotations

import re
from typing import Final

# Characters that are invisible or blank, although Python counts them as printable.
_SHOW_NOTHING: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def write_visibly(text: str) -> str:
    r"""Returns *text* with invisible and control characters written out: ``\n``, ``\x1b``, ``\u202e``."""
    return "".join(
        c if c.isprintable() and not _SHOW_NOTHING.match(c) else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
