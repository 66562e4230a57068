"""Rules for names: which are legal, how long they may be, and how deep paths may go (config.md 3).

Whole texts are matched, so a trailing newline is never allowed. Lengths are in characters. They are bounded because
many costs grow with them: a name is kept, compared, sorted, logged and sent many times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

RECOVERY_QUEUE: Final = "@recovery@"
"""A queue that the core makes for forced applications; no configuration may name it."""

RECOVERY_PATH: Final = f"root.{RECOVERY_QUEUE}"
DEFAULT_PATH: Final = "root.default"
"""The queue for applications that no rule places, if it exists."""

MOST_LEVELS: Final = 64
"""The most levels of a queue path: more than any configuration can have, and few enough to look each of them up."""

LONGEST_MANAGER: Final = 256
"""The most characters of a manager's ID, its policy group, and a partition's name in the configuration."""

LONGEST_OWNER: Final = 256
"""The most characters of a user's name, and of a group's in the configuration."""

LONGEST_NAME: Final = 1_024
"""The most characters of the ID of an application, allocation or node, a task group, a resource type, a tag's key, a
group sent along."""

LONGEST_PATH: Final = MOST_LEVELS * 66
"""The most characters of a queue's full path."""

LONGEST_GROUPS: Final = 131_072
"""The most characters of all groups sent along with one application, together."""

MOST_GROUPS: Final = 2_000
"""The most groups sent along with one application. Each takes ten bytes of memory per letter, and directories return
fewer."""

LONGEST_TAGS: Final = 262_144
"""The most characters of all tags of one entry, or all attributes of one node, together: as much as Kubernetes allows
for annotations."""

_LONGEST_SHOWN: Final = 80

QUEUE_NAME: Final = "1 to 64 letters, digits or _ : # / @ -"
USER_NAME: Final = (
    f"a user name: a letter or _, then letters, digits or : # / _ . @ -, at most one $ at the end, at most"
    f" {LONGEST_OWNER} characters"
)
GROUP_NAME: Final = f"a group name: a letter or _, then letters, digits or : _ . -, at most {LONGEST_OWNER} characters"

_QUEUE: Final = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}", re.ASCII)
_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?", re.ASCII)
_GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*", re.ASCII)
_REGEX_CHARACTERS: Final = frozenset("^$*+?()[{}|")
NO_CHARACTER: Final = "\ufffd"
"""The character that stands for one that cannot be shown."""


def is_queue_name(name: str) -> bool:
    """Tells whether *name* is a legal name of a queue."""
    return _QUEUE.fullmatch(name) is not None


def is_user_name(name: str) -> bool:
    """Tells whether *name* is a legal name of a user, in ACLs too (config.md B10)."""
    return len(name) <= LONGEST_OWNER and _USER.fullmatch(name) is not None


def is_group_name(name: str) -> bool:
    """Tells whether *name* is a legal name of a group, in ACLs too (config.md B10)."""
    return len(name) <= LONGEST_OWNER and _GROUP.fullmatch(name) is not None


def looks_like_regex(text: str) -> bool:
    """Tells whether *text* is meant as a regular expression. A dot alone does not make it one; a ``$`` at the end of a
    user name does."""
    return not _REGEX_CHARACTERS.isdisjoint(text)


def show_name(text: str) -> str:
    """Returns *text* quoted for a message, cut off where it is too long for one."""
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")


def length_flaw(what: str, length: int, most: int) -> str:
    """Returns an error text if *what* has more than *most* characters; empty if its *length* is allowed."""
    return f"{what} has {length:,} characters, at most {most:,}"


def items_length(items: Iterable[tuple[str, str]]) -> int:
    """Returns the number of characters in all keys and values together."""
    return sum([len(key) + len(value) for key, value in items])


def cut_name(name: str) -> str:
    """Returns *name*, cut to the length that the record of a refusal may hold if it was refused for its length."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."


def manager_name_flaw(what: str, name: str) -> str:
    """Returns an error text if *name*, that of *what*, cannot be a manager's ID or the name of a partition; empty if
    it can.

    Both have characters that can be seen, and blanks only between them. Brackets compose the two
    (:func:`full_partition_name`), and :data:`NO_CHARACTER` stands for those that somebody writes into a request.
    """
    strange = next((each for each in name if each in "[]" or each == NO_CHARACTER or not each.isprintable()), "")
    if strange:
        return f"{what} has the character {strange!r}; it may have any that can be seen but brackets and U+FFFD"
    return f"{what} begins or ends with a blank" if name.strip() != name else ""


def full_partition_name(rm_id: str, name: str) -> str:
    """Returns ``[rm]name``, the form used everywhere inside the core. An empty name means ``default``; a name that
    starts with ``[rm]`` is full already.

    Whatever *name* is, no partition of another manager has the result, in full or without its manager: brackets are
    replaced by :data:`NO_CHARACTER`, which no name of a partition has.
    """
    mine = f"[{rm_id}]"
    bare = name.removeprefix(mine) if name.startswith(mine) else name or "default"
    if "[" in bare or "]" in bare:
        bare = bare.replace("[", NO_CHARACTER).replace("]", NO_CHARACTER)
    return mine + bare


def bare_partition_name(name: str) -> str:
    """Returns *name* without its manager, the form that people see."""
    return name[name.index("]") + 1 :] if name.startswith("[") and "]" in name else name
