"""Which names are legal, and how deep paths may go: config.md 3.

Whole texts are matched, so a trailing newline is never tolerated.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

RECOVERY_QUEUE: Final = "@recovery@"
"""Made by the core itself for forced applications; no configuration may use it."""

RECOVERY_PATH: Final = f"root.{RECOVERY_QUEUE}"
DEFAULT_PATH: Final = "root.default"
"""Where applications go that no rule places, if there is such a queue."""

MOST_LEVELS: Final = 64
"""Of a queue path. More than any configuration can have, and few enough to look each of them up."""

QUEUE_NAME: Final = "1 to 64 letters, digits or _ : # / @ -"
USER_NAME: Final = "a user name: a letter or _, then letters, digits or : # / _ . @ -, at most one $ at the end"
GROUP_NAME: Final = "a group name: a letter or _, then letters, digits or : _ . -"

_QUEUE: Final = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}", re.ASCII)
_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?", re.ASCII)
_GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*", re.ASCII)
_REGEX_CHARACTERS: Final = frozenset("^$*+?()[{}|")
_LONGEST_REGEX: Final = 512
# What other engines for regular expressions refuse because it cannot be matched in linear time.
_BACKTRACKING: Final = re.compile(r"\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9]|[*+?}]\+", re.ASCII)
_ESCAPED_OR_CLASS: Final = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def is_queue_name(name: str) -> bool:
    return _QUEUE.fullmatch(name) is not None


def is_user_name(name: str) -> bool:
    """Also holds for the names in ACLs (config.md B10)."""
    return _USER.fullmatch(name) is not None


def is_group_name(name: str) -> bool:
    """Also holds for the names in ACLs (config.md B10)."""
    return _GROUP.fullmatch(name) is not None


def looks_like_regex(text: str) -> bool:
    """A dot alone is not enough; a user name that ends in ``$`` counts."""
    return not _REGEX_CHARACTERS.isdisjoint(text)


def regex_flaw(text: str) -> str | None:
    """Why *text* is no regular expression that a filter can use; ``None`` when it is one.

    Look-around, back-references and possessive repeats are refused: they are not portable between engines.
    """
    if len(text) > _LONGEST_REGEX:
        return f"longer than {_LONGEST_REGEX} characters"
    if _BACKTRACKING.search(_ESCAPED_OR_CLASS.sub("x", text)):
        return "look-around, back-references and possessive repeats are not supported"
    try:
        compile_regex(text)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error) or "too complex"
    return None


def compile_regex(text: str) -> re.Pattern[str]:
    """*text*, in which :func:`regex_flaw` finds nothing, ready for use."""
    with warnings.catch_warnings():
        # "[[" and the like are legal today; a notice for Python programmers is nothing to an administrator.
        warnings.simplefilter("ignore")
        return re.compile(text)
