"""What every log line passes before it is written: nothing in it may be a secret, and nothing may look like a line.

IDs, queue names and messages come from shims and configurations. A line break in one would let its author write lines
of the log; a control sequence would let him write on the administrator's terminal. All of it takes time in proportion
to what is written, however it is made up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from core.domain.secrets import HIDDEN, names_secret
from core.service.visible import write_visibly

LONGEST_VALUE: Final = 10_000
LONGEST_READ: Final = 65_536
"""Characters of a value that are looked at: more than is written, since a secret may reach beyond what is."""

_SECRET_VALUE: Final = re.compile(
    r"krn_[A-Za-z0-9_-]{43}"
    r"|(?<=bearer )\S+"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""Our tokens, other bearer tokens, user and password in an address, private keys."""

# What only begins like a JWT is taken as a whole too: a search that began anew within it would read it again and again.
_JWT: Final = re.compile(r"eyJ[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]*)?", re.IGNORECASE)


def protect(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor, to come right before the renderer."""
    for key, value in line.items():
        line[key] = HIDDEN if names_secret(key) else _safe(value, key == "exception")
    return line


def _safe(value: Any, lines: bool = False) -> Any:
    """*value* with secrets hidden and control characters written out. *lines*: it may have several, each indented."""
    if isinstance(value, str):
        shown = _hide_secrets(value[:LONGEST_READ])
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


def _hide_secrets(text: str) -> str:
    return _JWT.sub(lambda found: HIDDEN if found[1] else found[0], _SECRET_VALUE.sub(HIDDEN, text))
