"""Every call of the engine as one line of JSON: a failure that can be read, shrunk and played again.

Amounts and commands are written by type name, with fields that hold their default left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from kornel.core.domain import commands
from kornel.core.domain.commands import Command
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest, Wish

_TYPES: Final[Mapping[str, type]] = {
    name: value
    for name, value in vars(commands).items()
    if isinstance(value, type) and (is_dataclass(value) or hasattr(value, "_fields"))
}

APPLY: Final = "apply"
CYCLE: Final = "cycle"
PREEMPT: Final = "preempt"
END: Final = "end"
"""Nothing is left, and after a few days nothing is remembered."""


class Call(NamedTuple):
    """One call of the engine. ``budget`` is that of a slice."""

    kind: str
    now_ns: int
    command: Command | None = None
    budget: int = 0


def write(path: Path, calls: Iterable[Call], heading: Mapping[str, object]) -> None:
    """*heading* says where the calls come from; it is the first line and means nothing to :func:`read`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(heading), *(line(call) for call in calls)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> list[Call]:
    return [parse(text) for text in path.read_text(encoding="utf-8").splitlines()[1:]]


def line(call: Call) -> str:
    entry: dict[str, object] = {"call": call.kind, "now_ns": call.now_ns}
    if call.command is not None:
        entry["command"] = _encode(call.command)
    if call.budget:
        entry["budget"] = call.budget
    return json.dumps(entry)


def parse(text: str) -> Call:
    entry = json.loads(text)
    command = cast("Command | None", _decode(entry.get("command")))
    return Call(entry["call"], entry["now_ns"], command, entry.get("budget", 0))


def _encode(value: object) -> object:
    if isinstance(value, Resources):
        return {"Resources": dict(value)}
    if type(value).__name__ in _TYPES and not isinstance(value, int):
        defaults = _defaults(type(value))
        given = {name: getattr(value, name) for name in defaults}
        shown = {n: _encode(v) for n, v in given.items() if defaults[n] is MISSING or v != defaults[n]}
        return {type(value).__name__: shown}
    if isinstance(value, tuple):
        return [_encode(entry) for entry in value]
    return value


def _defaults(kind: type) -> dict[str, object]:
    if is_dataclass(kind):
        return {field.name: field.default for field in fields(kind)}
    record = cast("Any", kind)
    return {name: record._field_defaults.get(name, MISSING) for name in record._fields}


def _decode(value: object) -> object:
    if isinstance(value, dict):
        [(name, content)] = value.items()
        if name == "Resources":
            return Resources(content)
        if name == TopologyRequest.__name__:
            content["wish"] = Wish(content["wish"])
        return _TYPES[name](**{field: _decode(entry) for field, entry in content.items()})
    if isinstance(value, list):
        return tuple(_decode(entry) for entry in value)
    return value
