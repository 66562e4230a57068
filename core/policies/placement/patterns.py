"""Compiles the regular expressions of placement filters (config.md 8.3), in the syntax of RE2, which YuniKorn's filters
have too.

Names are chosen by anybody and matched on the engine's thread, so the time that this takes must not depend on how a
name was made up: RE2 never goes back in the text. An expression that would need that is not accepted. At worst RE2
follows all instructions of an expression at each byte of the name, which takes about 4 ns for each
(:mod:`kornel.core.policies.placement.effort`).
"""

from __future__ import annotations

import re
from typing import Final, Protocol

import re2

LONGEST: Final = 512
"""The most characters of one expression."""

MEMORY: Final = 128 * 1024
"""The most bytes for the program of an expression and for what it keeps while it runs, enough for about 5,000
instructions."""

_ENDLESS_REPEAT: Final = re.compile(r"\{[0-9]*,?[0-9]{9}", re.ASCII)
_QUOTED_OR_ESCAPED: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)


class Pattern(Protocol):
    """An expression ready for use. ``programsize``: the number of its instructions."""

    programsize: int

    def search(self, text: str, /) -> object | None:
        """Returns a true value if the expression matches a part of *text*, otherwise ``None``."""


def find_flaw(text: str) -> str | None:
    """Returns why *text* is not a regular expression that a filter can use; ``None``: it is one."""
    if len(text) > LONGEST:
        return f"longer than {LONGEST} characters"
    # RE2 accepts two things that Go refuses: a repeat that is too large to be read as one, and a byte within a
    # character.
    if _ENDLESS_REPEAT.search(text):
        return "invalid repetition size"
    if any(match[1] == "C" for match in _QUOTED_OR_ESCAPED.finditer(text)):
        return r"invalid escape sequence: \C"
    try:
        compile_pattern(text)
    except re2.error as error:
        return _describe_pattern(error)
    return None


def compile_pattern(text: str) -> Pattern:
    """Returns the compiled expression *text*, in which :func:`find_flaw` finds nothing."""
    options = re2.Options()
    options.max_mem = MEMORY
    options.log_errors = False
    options.never_capture = True
    pattern: Pattern = re2.compile(text, options)
    return pattern


def _describe_pattern(error: Exception) -> str:
    said = error.args[0] if error.args else b""
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    if "too large" in words:
        return "too complex"
    return f"{words}; look-around, back-references and possessive repeats do not exist in RE2's language"
