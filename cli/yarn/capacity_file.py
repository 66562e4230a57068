"""Reads the properties of a Capacity Scheduler file, queue by queue, with the capacities that they state."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

PREFIX: Final = "yarn.scheduler.capacity."
_TYPES: Final = {"memory-mb": "memory", "vcores": "vcore"}
_TERM: Final = re.compile(r"([0-9.]+)\s*([A-Za-z%]*)")
_POWERS: Final = ("", "k", "m", "g", "t", "p")


class Value(str):
    """The text of a property, and *where* it stands: its file and its name."""

    __slots__ = ("where",)
    where: str

    def __new__(cls, text: str, where: str) -> Value:
        """Returns *text* with its place."""
        value = super().__new__(cls, text)
        value.where = where
        return value


class Term(NamedTuple):
    """A part of what the parent has: *number* percent (``%``), or by weight among its siblings (``w``); or an amount in
    base units."""

    number: Fraction
    unit: str = ""


@dataclass
class YarnQueue:
    """A queue of the file with its own properties, by their keys behind the path."""

    path: str
    keys: dict[str, Value] = field(default_factory=dict)
    children: list[YarnQueue] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    def walk(self) -> Iterator[YarnQueue]:
        """Yields the queue and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def makes_children(self) -> bool:
        """Tells whether queues are created below it for users or groups."""
        switches = ("auto-create-child-queue.enabled", "auto-queue-creation-v2.enabled")
        return any(is_true(self.keys.get(switch)) for switch in switches)


def is_true(value: str | None) -> bool:
    """Tells whether a switch of YARN is on."""
    return value is not None and value.strip().lower() == "true"


def read_count(value: Value | None) -> int:
    """Returns a whole number; 0: nothing is said. Raises ``ValueError`` for anything else."""
    if value is None or not value.strip():
        return 0
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value.where}: {value.strip()!r} is not a whole number") from None


def read_number(value: Value | None) -> Fraction | None:
    """Returns a number with a decimal point or without; ``None``: nothing is said. Raises ``ValueError`` for anything
    else."""
    if value is None or not value.strip():
        return None
    try:
        return Fraction(float(value)).limit_denominator(10**9)
    except (ValueError, OverflowError):
        raise ValueError(f"{value.where}: {value.strip()!r} is not a number") from None


def read_properties(text: str, file: object) -> dict[str, Value]:
    """Returns the properties in *text*, of *file*, by name. Raises ``ValueError`` if it is no configuration of
    Hadoop."""
    try:
        top = ET.fromstring(text)  # noqa: S314 - the file is the administrator's own
    except ET.ParseError as error:
        raise ValueError(f"{file}: is not XML: {error}") from error
    if top.tag == "allocations":
        raise ValueError(
            f"{file}: is a file of the Fair Scheduler; see docs/from-yarn.md for how to translate it by hand"
        )
    if top.tag != "configuration":
        raise ValueError(f"{file}: begins with <{top.tag}>, not with <configuration>")
    found = ((one.findtext("name", "").strip(), one.findtext("value") or "") for one in top.iter("property"))
    return {name: Value(value.strip("\n\t"), f"{file}: {name}") for name, value in found if name}


def read_tree(properties: Mapping[str, Value]) -> tuple[YarnQueue, dict[str, Value]]:
    """Returns the root with all queues that the lists name, and the properties of the scheduler that belong to none of
    these. Raises ``ValueError`` without a list of the root's queues."""
    ours = {name.removeprefix(PREFIX): value for name, value in properties.items() if name.startswith(PREFIX)}
    if "root.queues" not in ours:
        raise ValueError(f"{PREFIX}root.queues is missing, so this is no file of the Capacity Scheduler")
    root = _read_queue("root", ours)
    queues = {queue.path: queue for queue in root.walk()}
    others: dict[str, Value] = {}
    for name, value in ours.items():
        parts = name.split(".")
        paths = (".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1))
        path = next((path for path in paths if path in queues), None)
        if path is None:
            others[name] = value
        else:
            queues[path].keys[name.removeprefix(f"{path}.")] = value
    return root, others


def _read_queue(path: str, ours: Mapping[str, str]) -> YarnQueue:
    names = [name.strip() for name in ours.get(f"{path}.queues", "").split(",")]
    return YarnQueue(path, children=[_read_queue(f"{path}.{name}", ours) for name in names if name])


def read_capacity(value: Value | None) -> dict[str, Term]:
    """Returns the terms of a capacity by resource type; the one for all types has none. Raises ``ValueError`` for what
    is neither a percentage, a weight nor a list of amounts."""
    text = (value or "").strip()
    if value is None or not text:
        return {}
    try:
        if not text.startswith("["):
            return {"": _read_term("", text, bare="%")}
        parts = [part.partition("=") for part in text.strip("[]").split(",") if part.strip()]
        kinds = [_TYPES.get(name.strip(), name.strip()) for name, _, _ in parts]
        return {kind: _read_term(kind, part[2].strip(), bare="") for kind, part in zip(kinds, parts, strict=True)}
    except ValueError as error:
        raise ValueError(
            f"{value.where}: {error}; expected is a percentage, a weight such as 2w, or amounts such as"
            " [memory=10240,vcores=12]"
        ) from None


def _read_term(kind: str, text: str, *, bare: str) -> Term:
    if text == "-1":
        return Term(Fraction(100), "%")  # For a maximum: none but the parent's.
    matched = _TERM.fullmatch(text)
    try:
        number, unit = Fraction(matched[1] if matched else ""), (matched[2] if matched else "") or bare
    except ValueError:
        raise ValueError(f"{text!r} is no capacity") from None
    if unit in ("%", "w"):
        return Term(number, unit)
    return Term(number * _size_of(kind, unit))


def _size_of(kind: str, unit: str) -> int:
    """Returns the size of *unit* in base units of the resource type *kind*. Bare memory is in MiB."""
    if kind == "memory" and not unit:
        return 1 << 20
    letter = unit.lower().removesuffix("b")
    base: int = 1024 if letter.endswith("i") else 1000
    if letter.removesuffix("i") not in _POWERS:
        raise ValueError(f"{unit!r} is no unit of {kind}")
    scale: int = base ** _POWERS.index(letter.removesuffix("i"))
    return scale * (1000 if kind == "vcore" else 1)
