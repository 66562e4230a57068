"""Reads a file with a queue configuration, and prints its problems."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from kornel.cli.options import refuse_input
from kornel.cli.terminal import print_error
from kornel.v1.configuration_pb2 import ConfigurationProblem

File = Annotated[Path, typer.Argument(metavar="FILE", help="Queue configuration to read.")]


def read_file(path: Path) -> str:
    """Returns the text of *path*. Exits if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise refuse_input(f"{path}: {why or error}") from error


def choose_warnings(warnings: Iterable[ConfigurationProblem], *, yunikorn: bool = False) -> list[ConfigurationProblem]:
    """Returns *warnings* without those about differences from YuniKorn, unless *yunikorn* asks for them."""
    return [warning for warning in warnings if yunikorn or "YuniKorn" not in warning.message]


def print_problems(path: Path, problems: Iterable[ConfigurationProblem]) -> None:
    """Print one line for each problem, in the form that editors understand: file, line, column, severity."""
    for problem in problems:
        place = f":{problem.line}:{problem.column}" if problem.line else ""
        severity = ConfigurationProblem.Severity.Name(problem.severity).removeprefix("SEVERITY_").lower()
        where = f"{problem.path}: " if problem.path else ""
        expected = f" (expected {problem.expected})" if problem.expected else ""
        print_error(f"{path}{place}: {severity}: {where}{problem.message}{expected}")
