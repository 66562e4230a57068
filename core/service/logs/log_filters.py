"""Filters every log line before it is written, so that it contains no secret and nothing that looks like another line.

IDs, queue names and messages come from shims and configurations. Written as they are, a line break in one could
forge a line of the log, and a control sequence could change what the administrator's terminal shows. The time taken is
proportional to the length of what is written, whatever it contains.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from kornel.core.domain.secrets import HIDDEN, hide_secret_values, names_secret
from kornel.shared.visible import write_visibly

LONGEST_VALUE: Final = 10_000
LONGEST_READ: Final = 65_536
"""The most characters of a value that are looked at, which are more than are written, because a secret may extend
beyond those."""


def protect_line(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Makes the values of *line* safe to write. It is a structlog processor, to be used right before the renderer."""
    for key, value in line.items():
        line[key] = HIDDEN if names_secret(key) else _make_safe(value, key == "exception")
    return line


def _make_safe(value: Any, lines: bool = False) -> Any:
    """Returns *value* with secrets hidden and control characters written out. *lines* tells whether it may have several
    lines, each of which is indented."""
    if isinstance(value, str):
        shown = hide_secret_values(value[:LONGEST_READ])
        if lines:
            return "\n  ".join(write_visibly(part) for part in shown.split("\n"))
        return write_visibly(shown[:LONGEST_VALUE])
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {
            _make_safe(str(key)): HIDDEN if names_secret(str(key)[-LONGEST_VALUE:]) else _make_safe(found)
            for key, found in value.items()
        }
    if isinstance(value, list | tuple):
        return [_make_safe(item) for item in value]
    return _make_safe(str(value))
