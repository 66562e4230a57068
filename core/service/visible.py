"""A safe way to show a text from outside to people: on one line, in order, with nothing that a terminal would obey.

Names come from shims, configurations and tokens. A control sequence in one moves the cursor of whoever reads it, a line
break forges a line, an override of the direction of text shows another name than there is, and a character that shows
nothing makes two names look alike.
"""

from __future__ import annotations

import json
import re
from typing import Final

# Letters and marks that show nothing, or a blank, although Python counts them as printable.
_SHOW_NOTHING: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def is_visible(text: str) -> bool:
    """Tells whether *text* is all plain blanks and characters that can be seen."""
    return text.isprintable() and (text.isascii() or _SHOW_NOTHING.search(text) is None)


def write_visibly(text: str) -> str:
    r"""Returns *text* with everything else written out as Python would: ``\n``, ``\x1b``, ``\u202e``."""
    if is_visible(text):
        return text
    return "".join(c if is_visible(c) else _written_out(c) for c in text)


def write_lines(text: str) -> str:
    """Returns *text*, whose line breaks and tabs are its author's to make, with everything else written visibly."""
    return "\n".join("\t".join(map(write_visibly, line.split("\t"))) for line in text.split("\n"))


def write_json(text: str) -> str:
    """Returns the JSON document *text* with an escape of JSON's for what cannot be seen: it means the same."""
    return "\n".join(
        line if is_visible(line) else "".join(c if is_visible(c) else _json_escape(c) for c in line)
        for line in text.split("\n")
    )


def _json_escape(character: str) -> str:
    """Returns *character* as JSON may have it within a text; a blank between values stands for itself."""
    if character in "\t\r":
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
