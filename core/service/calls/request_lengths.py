"""Limits on the lengths of a request's texts, checked before anything else sees the request.

Entries of a list (asks, nodes, answers) are not looked at here: the engine refuses each of them by itself and says why.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kornel.core.domain.names import LONGEST_GROUPS, LONGEST_MANAGER, LONGEST_NAME, length_flaw
from kornel.core.service.wire.status_codes import InvalidRequest

LONGEST_TEXT: Final = 8_192
"""The most characters of any text that has no limit of its own: paths, prefixes, the token of a page."""

LONGEST_BUILD_INFO: Final = 65_536
"""The most characters of the keys and values of ``buildInfo`` together."""

LONGEST_SETTINGS: Final = 1_048_576
"""The most characters of the keys and values of the extra settings together: as much as a ConfigMap holds."""

LIMITS: Final = {
    "rmID": LONGEST_MANAGER,
    "rm_id": LONGEST_MANAGER,
    "policyGroup": LONGEST_MANAGER,
    "policy_group": LONGEST_MANAGER,
    "version": LONGEST_NAME,
    "partition": LONGEST_NAME,
    "user": LONGEST_NAME,
    "groups": LONGEST_GROUPS,
    "buildInfo": LONGEST_BUILD_INFO,
    "extraConfig": LONGEST_SETTINGS,
    "extra_config": LONGEST_SETTINGS,
}
"""The limits by the name of a field; of a map or a list of texts, for all of it together."""

UNLIMITED: Final = frozenset({"config", "json"})
"""The fields with documents, whose limits are checked where they are read; the message has a limit too."""


def check_lengths(message: Message) -> None:
    """Raises :class:`InvalidRequest` for a text in *message*, entries of lists left out, that is too long."""
    for field, value in message.ListFields():
        if field.name in UNLIMITED:
            continue
        if field.message_type is None:
            if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
                length = sum(map(len, value)) if field.is_repeated else len(value)
                _check(field.name, length, LIMITS.get(field.name, LONGEST_TEXT))
        elif field.message_type.GetOptions().map_entry:
            _check(field.name, _map_length(value), LIMITS.get(field.name, LONGEST_TEXT))
        elif not field.is_repeated:
            check_lengths(value)


def _check(name: str, length: int, most: int) -> None:
    if length > most:
        raise InvalidRequest(length_flaw(name, length, most))


def _map_length(items: Any) -> int:
    """Returns the number of characters of all keys, and of those values that are texts."""
    return sum(len(key) + (len(value) if isinstance(value, str) else 0) for key, value in items.items())
