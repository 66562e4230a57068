"""A strict reader of YAML documents: every value keeps its position, and all mistakes are reported at once with their
positions.

PyYAML's loader forgets positions, keeps the last of two equal keys, and turns ``010`` or ``yes`` into other values.
This module reads PyYAML's node tree instead, which has the raw text and the line of each value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: its line, counted from 1 (0: the whole file), the field as a path such as ``nodes[1].count``, and
    the reason.
    """

    file: str
    line: int
    field: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.field}: {self.reason}" if self.field else f"{place}: {self.reason}"


class InputError(ValueError):
    """An input file cannot be used. It is raised once, with all problems that were found."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(slots=True)
class Findings:
    """The problems found in one file."""

    file: str
    problems: list[Problem] = field(default_factory=list)

    def add(self, line: int, path: str, reason: str) -> None:
        """Note one mistake."""
        self.problems.append(Problem(self.file, line, path, reason))

    def raise_if_any(self) -> None:
        """Raise InputError if anything was noted."""
        if self.problems:
            raise InputError(tuple(sorted(self.problems, key=lambda problem: problem.line)))


def read_text(path: Path) -> str:
    """Returns the text of *path*. Raises InputError if it cannot be read as UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError((Problem(str(path), 0, "", error.strerror or str(error)),)) from error
    except UnicodeDecodeError as error:
        raise InputError((Problem(str(path), 0, "", f"not UTF-8 text: {error.reason}"),)) from error


def compose_document(text: str, file: str) -> yaml.Node:
    """Returns the node tree of the only document in *text*.

    Raises InputError for anything that is not one YAML document.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError((Problem(file, line, "", f"not YAML: {error.problem or error.context}"),)) from error
    except yaml.YAMLError as error:
        raise InputError((Problem(file, 0, "", f"not YAML: {error}"),)) from error
    except RecursionError as error:
        raise InputError((Problem(file, 0, "", "nested too deeply"),)) from error
    if root is None:
        raise InputError((Problem(file, 0, "", "the file is empty"),))
    return root


@dataclass(frozen=True, slots=True)
class Cursor:
    """One value of a document, with its position and a method to report a mistake in it."""

    node: yaml.Node
    path: str
    findings: Findings

    @property
    def line(self) -> int:
        """The line of the value, counted from 1."""
        return int(self.node.start_mark.line) + 1

    def reject(self, reason: str) -> None:
        """Report a mistake in this value, with its *reason*."""
        self.findings.add(self.line, self.path, reason)

    def is_mapping(self) -> bool:
        """Tells whether the value is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    def text(self) -> str:
        """Returns the raw text of a scalar. A value of another kind is reported and counts as empty."""
        if isinstance(self.node, yaml.ScalarNode):
            return str(self.node.value)
        self.reject("expected a single value")
        return ""

    def parse(self, parser: Callable[[str], Value], default: Value) -> Value:
        """Returns the value that *parser* reads from the scalar. If *parser* raises ValueError, that is reported and
        *default* returned."""
        if not isinstance(self.node, yaml.ScalarNode):
            self.reject("expected a single value")
            return default
        try:
            return parser(str(self.node.value))
        except ValueError as error:
            self.reject(str(error))
            return default

    def items(self) -> Iterator[Cursor]:
        """Yields the values of a list. A value of another kind is reported and counts as empty."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.reject("expected a list")
            return
        for index, node in enumerate(self.node.value):
            yield Cursor(node, f"{self.path}[{index}]", self.findings)

    def entries(self) -> dict[str, Cursor]:
        """Returns the entries of a mapping by key. A value of another kind, keys that are no texts, and repeated keys
        are reported."""
        if not isinstance(self.node, yaml.MappingNode):
            self.reject("expected a mapping")
            return {}
        found: dict[str, Cursor] = {}
        for key_node, value_node in self.node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.findings.add(line, self.path, "a key must be plain text")
                continue
            key = str(key_node.value)
            path = f"{self.path}.{key}" if self.path else key
            if key in found:
                self.findings.add(line, path, "repeated key")
                continue
            found[key] = Cursor(value_node, path, self.findings)
        return found

    def fields(self, *known: str, required: tuple[str, ...] = ()) -> dict[str, Cursor]:
        """Returns the entries of a mapping with a fixed set of keys. Unknown and missing keys are reported."""
        entries = self.entries()
        for key, value in list(entries.items()):
            if key not in known:
                self.findings.add(value.line, value.path, f"unknown field; known here: {', '.join(known)}")
                del entries[key]
        if self.is_mapping():
            for key in required:
                if key not in entries:
                    path = f"{self.path}.{key}" if self.path else key
                    self.findings.add(self.line, path, "missing")
        return entries
