"""What every log line passes before it is written: nothing in it may be a secret, and nothing may look like a line.

IDs, queue names and messages come from shims and configurations. A line break in one would let its author write lines
of the log; a control sequence would let him write on the administrator's terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

HIDDEN: Final = "[hidden]"
LONGEST_VALUE: Final = 10_000

_SECRET_KEY: Final = re.compile(
    r"(?:^|[_-])(?:token|tokens|secret|password|passwd|authorization|api[_-]?key|private[_-]?key)$", re.IGNORECASE
)
_SECRET_VALUE: Final = re.compile(
    r"krn_[A-Za-z0-9_-]{43}"
    r"|eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
    r"|(?<=bearer )\S+"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""Our tokens, JWTs, other bearer tokens, user and password in an address, private keys."""

# Line separators and what turns the direction of text around look like something else too.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def protect(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor, to come right before the renderer."""
    for key, value in line.items():
        line[key] = HIDDEN if _SECRET_KEY.search(key) else _safe(value, key == "exception")
    return line


def _safe(value: Any, lines: bool = False) -> Any:
    """*value* with secrets hidden and control characters written out. *lines*: it may have several, each indented."""
    if isinstance(value, str):
        shown = _SECRET_VALUE.sub(HIDDEN, value)
        if lines:
            return "\n  ".join(_escaped(part) for part in shown.split("\n"))
        return _escaped(shown[:LONGEST_VALUE])
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {
            _safe(str(key)): HIDDEN if _SECRET_KEY.search(str(key)) else _safe(found) for key, found in value.items()
        }
    if isinstance(value, list | tuple):
        return [_safe(item) for item in value]
    return _safe(str(value))


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)
