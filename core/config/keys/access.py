"""Reads access lists: who may submit to a queue or administer it. Rules: config.md 9, V7, B10."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from kornel.core.config.text.fields import Field
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.access import NOBODY, AccessList
from kornel.core.domain.names import is_group_name, is_user_name

_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_GROUP_WORDS: Final = re.compile(
    r"(?i)(^|[-_.])(admins|administrators|developers|devs|everyone|group|groups|operators|ops|staff|sudo|team|teams|users"
    r"|wheel)$"
)
_UPSTREAM_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_.@-]*[$]?", re.ASCII)
_UPSTREAM_GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_-]*", re.ASCII)


def parse_administrators(field: Field) -> AccessList:
    """Reads an access list as :func:`parse_access` does, and warns of a user that was probably meant as a group."""
    access = parse_access(field)
    if not access.groups and len(access.users) == 1 and _GROUP_WORDS.search(access.users[0]):
        name = shorten_text(access.users[0])
        field.warning(
            f"{name} is the name of a user here, since no blank stands before it: groups come after a blank",
            f'" {access.users[0]}" for the group',
        )
    return access


def parse_access(field: Field) -> AccessList:
    """Reads ``users groups``: two comma-separated lists with a blank between, or ``*``.

    More than two parts are an error at *field*; entries that can never match are left out with a warning.
    """
    if not field.given:
        return NOBODY
    written = field.text()
    text = written.strip(" \t\r\n")
    parts = _BLANKS.split(text) if text else []
    if len(parts) > 2:
        field.error(f"access list {shorten_text(text)} has {len(parts)} parts", "users, one blank, groups; or *")
        return NOBODY
    if len(parts) == 1 and written[:1] in (" ", "\t"):
        parts.insert(0, "")
    users, groups = [*parts, "", ""][:2]
    if "*" in (users, groups):
        if users == "*" and groups not in ("", "*"):
            field.warning(f"groups {shorten_text(groups)} add nothing to *")
        return AccessList(text, everybody=True)
    if users.endswith(",") and groups:
        field.warning(
            f"the blank in {shorten_text(text)} ends the users: {shorten_text(groups)} are groups", "no blank after ,"
        )
    _warn_of_wider_names(field, "user", users, is_user_name, _UPSTREAM_USER)
    _warn_of_wider_names(field, "group", groups, is_group_name, _UPSTREAM_GROUP)
    return AccessList(
        text,
        users=tuple(name for name in _split_list(users) if _warn_unless_valid(field, "user", name, is_user_name(name))),
        groups=tuple(
            name for name in _split_list(groups) if _warn_unless_valid(field, "group", name, is_group_name(name))
        ),
    )


def _split_list(names: str) -> list[str]:
    return list(dict.fromkeys(name for name in names.split(",") if name))


def _warn_unless_valid(field: Field, kind: str, name: str, valid: bool) -> bool:
    if not valid:
        field.warning(f"{kind} {shorten_text(name)} is no valid name and is left out of the access list")
    return valid


def _warn_of_wider_names(
    field: Field, kind: str, names: str, valid: Callable[[str], bool], upstream: re.Pattern[str]
) -> None:
    """Warn of names that are legal in limits, and here in access lists as well (B10), but grant nothing upstream."""
    wider = [name for name in _split_list(names) if valid(name) and upstream.fullmatch(name) is None]
    if wider:
        listed = shorten_text(", ".join(wider))
        field.warning(f"YuniKorn leaves {kind} {listed} out of access lists; here access is granted")
