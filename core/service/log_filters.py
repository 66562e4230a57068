"""Filters of every log line before it is written: it holds no secret, and nothing that looks like another line.

IDs, queue names and messages come from shims and configurations. A line break in one would let its author write lines
of the log; a control sequence would let him write on the administrator's terminal. All of it takes time in proportion
to what is written, however it is made up.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from kornel.core.domain.secrets import HIDDEN, hide_secret_values, names_secret
from kornel.core.service.visible import write_visibly

LONGEST_VALUE: Final = 10_000
LONGEST_READ: Final = 65_536
"""Characters of a value that are looked at: more than is written, since a secret may reach beyond what is."""


def protect_line(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Makes the values of *line* safe to write: a structlog processor, to come right before the renderer."""
    for key, value in line.items():
        line[key] = HIDDEN if names_secret(key) else _make_safe(value, key == "exception")
    return line


def _make_safe(value: Any, lines: bool = False) -> Any:
    """Returns *value* with secrets hidden and control characters written out. *lines*: it may have several, each
    indented."""
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
