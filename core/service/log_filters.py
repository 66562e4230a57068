"""What every log line passes before it is written: nothing in it may be a secret, and nothing may look like a line.

IDs, queue names and messages come from shims and configurations. A line break in one would let its author write lines
of the log; a control sequence would let him write on the administrator's terminal. All of it takes time in proportion
to what is written, however it is made up.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from core.domain.secrets import HIDDEN, hide_secret_values, names_secret
from core.service.visible import write_visibly

LONGEST_VALUE: Final = 10_000
LONGEST_READ: Final = 65_536
"""Characters of a value that are looked at: more than is written, since a secret may reach beyond what is."""


def protect(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor, to come right before the renderer."""
    for key, value in line.items():
        line[key] = HIDDEN if names_secret(key) else _safe(value, key == "exception")
    return line


def _safe(value: Any, lines: bool = False) -> Any:
    """*value* with secrets hidden and control characters written out. *lines*: it may have several, each indented."""
    if isinstance(value, str):
        shown = hide_secret_values(value[:LONGEST_READ])
        if lines:
            return "\n  ".join(write_visibly(part) for part in shown.split("\n"))
        return write_visibly(shown[:LONGEST_VALUE])
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {
            _safe(str(key)): HIDDEN if names_secret(str(key)[-LONGEST_VALUE:]) else _safe(found)
            for key, found in value.items()
        }
    if isinstance(value, list | tuple):
        return [_safe(item) for item in value]
    return _safe(str(value))
