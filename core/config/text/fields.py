"""Reads single values by type, strictly: each reader reports errors at their place and returns a default.

A null counts as absent everywhere: empty text, no list, no mapping, false, 0. Rules: config.md 1.1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kornel.core.config.text.problems import Problem, ProblemLog, Remark, Severity
from kornel.core.config.text.yaml_reader import MappingNode, Node, ScalarNode, SequenceNode, shorten_text

UINT64_MAX: Final = 2**64 - 1

NO_PLACES: Final[Mapping[str, str]] = MappingProxyType({})

_TRUE: Final = frozenset({"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE: Final = frozenset({"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_DIGITS: Final = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_BARE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


# Fields are not frozen, for the same reason as the nodes of :mod:`kornel.core.config.text.yaml_reader`.
@dataclass(slots=True, eq=False)
class Field:
    """A value in the text with its place. ``node`` is ``None`` for a key that was not given.

    row         its line in the text from which it was read
    above       the field that contains it; for the document itself, the log
    key         its name in a mapping or its index in a list; the document has none
    moved       the number of lines to add to ``row``, if the value was read from another text than ``above``
    unreadable  tells whether an error was reported for the value, so that problems that follow from it are left out
    """

    node: Node | None
    row: int
    column: int
    above: Field | ProblemLog
    key: str | int = ""
    moved: int = 0
    unreadable: bool = False

    @property
    def log(self) -> ProblemLog:
        """The log that problems go to."""
        here: Field | ProblemLog = self
        while isinstance(here, Field):
            here = here.above
        return here

    @property
    def line(self) -> int:
        """The line of the field in the text that is being read."""
        line = self.row
        here: Field | ProblemLog = self
        while isinstance(here, Field):
            line += here.moved
            here = here.above
        return line

    @property
    def path(self) -> str:
        """The keys that lead to the field, such as ``partitions[0].queues[0]``; the text is only made when a problem
        needs it."""
        steps: list[str | int] = []
        here = self
        while isinstance(here.above, Field):
            steps.append(here.key)
            here = here.above
        path = ""
        for step in reversed(steps):
            if isinstance(step, int):
                path += f"[{step}]"
            elif _BARE_KEY.fullmatch(step) is None:
                path += f"[{shorten_text(step)}]"
            else:
                path += f".{step}" if path else step
        return path

    @property
    def given(self) -> bool:
        """Tells whether there is a value that is not null."""
        return self.node is not None and not (isinstance(self.node, ScalarNode) and self.node.is_null)

    def error(self, message: str, expected: str = "") -> None:
        """Report an error at the field."""
        if not self.unreadable:
            self.log.add(Problem(Severity.ERROR, self.line, self.column, self.path, message, expected))

    def warning(self, message: str, expected: str = "") -> None:
        """Report a warning at the field."""
        if not self.unreadable:
            self.log.add_remark(Remark(self, message, expected))

    def mapping(self, keys: Iterable[str], elsewhere: Mapping[str, str] = NO_PLACES) -> dict[str, Field]:
        """Returns a field for each of *keys*, absent ones included. Other keys in the text are errors; *elsewhere* says
        of some of them where they belong."""
        known = {key: Field(None, self.row, self.column, self, key) for key in keys}
        for key, found in self.entries().items():
            if key in known:
                known[key] = found
                continue
            near = f"{key.lower()!r}" if key.lower() in known else f"one of {', '.join(known)}"
            near = f"it under {elsewhere[key]}" if key in elsewhere else near
            found.error(f"unknown key {shorten_text(key)}", near)
        return known

    def entries(self) -> dict[str, Field]:
        """Returns the mapping with all its keys; empty if it is absent."""
        if not self.given:
            return {}
        if not isinstance(self.node, MappingNode):
            self._refuse_value(f"{self._kind_of()} found", "a mapping")
            return {}
        return {entry.key: Field(entry.value, entry.line, entry.column, self, entry.key) for entry in self.node.entries}

    def items(self) -> list[Field]:
        """Returns the entries of a list; empty if it is absent."""
        if not self.given:
            return []
        if not isinstance(self.node, SequenceNode):
            self._refuse_value(f"{self._kind_of()} found", "a list")
            return []
        return [Field(item, item.line, item.column, self, index) for index, item in enumerate(self.node.items)]

    def text(self, default: str = "") -> str:
        """Returns the scalar as it was written, even ``10`` and ``true``."""
        if not self.given:
            return default
        if not isinstance(self.node, ScalarNode):
            self._refuse_value(f"{self._kind_of()} found", "text")
            return default
        return self.node.text

    def texts(self) -> list[tuple[str, Field]]:
        """Returns a list of scalars as they were written, each with its place; a null is empty text."""
        return [(item.text(), item) for item in self.items()]

    def text_map(self) -> dict[str, tuple[str, Field]]:
        """Returns a mapping of text to text; a null value is empty text."""
        return {key: (found.text(), found) for key, found in self.entries().items()}

    def boolean(self, default: bool = False) -> bool:
        """Returns the truth value, *default* if it is absent. Quoted text is not a truth value."""
        if not self.given:
            return default
        if isinstance(self.node, ScalarNode) and self.node.plain:
            if self.node.text in _TRUE:
                return True
            if self.node.text in _FALSE:
                return False
        self._refuse_value(f"{self._kind_of()} found", "true or false, without quotes")
        return default

    def unsigned(self, default: int = 0, *, least: int = 0) -> int:
        """Returns the value, or *default* if it is absent. A value has to be from *least* to 2^64-1, in plain decimal
        digits without quotes."""
        if not self.given:
            return default
        if isinstance(self.node, ScalarNode) and self.node.plain and _DIGITS.fullmatch(self.node.text):
            value = int(self.node.text)
            if least <= value <= UINT64_MAX:
                return value
        self._refuse_value(
            f"{self._kind_of()} found", f"a whole number from {least} to 2^64-1, without quotes or leading zeros"
        )
        return default

    def number(self, default: float = 0.0, *, most: float = math.inf) -> float:
        """Returns the value, or *default* if it is absent. A value has to be finite and from 0 to *most*."""
        if not self.given:
            return default
        if isinstance(self.node, ScalarNode) and self.node.plain and _NUMBER.fullmatch(self.node.text):
            value = float(self.node.text)
            if math.isfinite(value) and 0 <= value <= most:
                # An exact -0.0 would pass the comparison and print oddly.
                return abs(value)
        bounds = "of 0 or more" if most == math.inf else f"from 0 to {most:g}"
        self._refuse_value(f"{self._kind_of()} found", f"a number {bounds}, without quotes")
        return default

    def choice(self, choices: Iterable[str], default: str) -> str:
        """Returns the value, or *default* if it is absent or empty. A value has to be exactly one of *choices*."""
        written = self.text()
        allowed = list(choices)
        if not written:
            return default
        if written not in allowed:
            self._refuse_value(f"{shorten_text(written)} is not known", f"one of {', '.join(allowed)}")
            return default
        return written

    def _refuse_value(self, message: str, expected: str) -> None:
        self.error(message, expected)
        self.unreadable = True

    def _kind_of(self) -> str:
        if isinstance(self.node, ScalarNode):
            return shorten_text(self.node.text) if self.node.plain else f"quoted text {shorten_text(self.node.text)}"
        return "a list" if isinstance(self.node, SequenceNode) else "a mapping"
