"""Writes the functions that are made from tables.

A table is read once and becomes a function with a line for each field, as one would write it by hand, because walking
over the rows of the table for each record would take twice as long, and a list may have tens of thousands of records.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from kornel.core.telling.encoding.records import Itself, Made, Source

_NUMBERS: Final = count()


class FunctionText:
    """The text of a function of one *record*, line by line, and the objects that it names."""

    def __init__(self, title: str, parameters: str = "record") -> None:
        self._title = title
        self._lines = [f"def encode({parameters}):"]
        self._scope: dict[str, Any] = {}

    def name_of(self, thing: object) -> str:
        """Returns the name of *thing* in the text."""
        name = f"_{len(self._scope)}"
        self._scope[name] = thing
        return name

    def add(self, line: str) -> None:
        """Adds one more line to the body."""
        self._lines.append(f"    {line}")

    def value_of(self, source: Source) -> str:
        """Returns the expression for the value that *source* takes from the record."""
        match source:
            case Itself():
                return "record"
            case Made(make, fields):
                return self.call_of(make, [f"record.{field}" for field in fields])
            case path:
                return f"record.{path}"

    def call_of(self, function: Callable[..., Any], arguments: Sequence[str]) -> str:
        """Returns the expression that calls *function* with *arguments*, which are expressions too."""
        return f"{self.name_of(function)}({', '.join(arguments)})"

    def make_function(self) -> Callable[..., Any]:
        """Returns the function. Tracebacks and debuggers can show its text."""
        text = "\n".join([*self._lines, ""])
        place = f"<{self._title} {next(_NUMBERS)}>"
        linecache.cache[place] = len(text), None, text.splitlines(keepends=True), place
        # The text consists of field names from tables and classes of this program, never of anything from outside.
        exec(compile(text, place, "exec"), self._scope)  # noqa: S102
        made: Callable[..., Any] = self._scope["encode"]
        return made
