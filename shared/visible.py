"""Makes texts from outside safe to show: on one line, in order, without anything that a terminal would obey.

Names come from shims, configurations and tokens. In a name, a control sequence could move the reader's cursor, a line
break could forge a line, a change of the direction of text could show another name, and an invisible character could
make two names look alike.
"""

from __future__ import annotations

import json
import re
from typing import Final

# Letters and marks that are invisible or look like a blank, although Python counts them as printable.
_SHOW_NOTHING: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def is_visible(text: str) -> bool:
    """Tells whether *text* consists of plain blanks and visible characters only."""
    return text.isprintable() and (text.isascii() or _SHOW_NOTHING.search(text) is None)


def write_visibly(text: str) -> str:
    r"""Returns *text* with everything else written as Python would write it: ``\n``, ``\x1b``, ``\u202e``."""
    if is_visible(text):
        return text
    return "".join(c if is_visible(c) else _written_out(c) for c in text)


def write_lines(text: str) -> str:
    """Returns *text* with its line breaks and tabs, and with everything else that is not visible written out."""
    return "\n".join("\t".join(map(write_visibly, line.split("\t"))) for line in text.split("\n"))


def write_json(text: str) -> str:
    """Returns the JSON document *text* with JSON escapes for invisible characters, which does not change its
    meaning."""
    return "\n".join(
        line if is_visible(line) else "".join(c if is_visible(c) else _json_escape(c) for c in line)
        for line in text.split("\n")
    )


def _json_escape(character: str) -> str:
    """Returns the JSON escape of *character*; a blank between values stays as it is."""
    if character in "\t\r":
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
