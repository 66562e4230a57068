"""Reads and checks a file with a queue configuration, and prints its problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import typer

from kornel.core.cli.options import EXIT_BAD_INPUT, EXIT_FAILED
from kornel.core.cli.terminal import echo_json, print_error
from kornel.core.config.loader import checksum_of, load
from kornel.core.config.model import Configuration
from kornel.core.config.text.problems import ConfigError, Problem
from kornel.core.telling.encoding.kornel_v1 import encode_problem
from kornel.v1 import configuration_pb2 as pb


def read_file(path: Path) -> str:
    """Returns the text of *path*. Exits if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        print_error(f"{path}: {why or error}")
        raise typer.Exit(EXIT_BAD_INPUT) from error


def choose_warnings(warnings: Sequence[Problem], *, yunikorn: bool) -> tuple[Problem, ...]:
    """Returns *warnings* without those about differences from YuniKorn, unless *yunikorn* asks for them."""
    return tuple(warning for warning in warnings if yunikorn or "YuniKorn" not in warning.message)


def check_text(
    path: Path,
    text: str,
    unavailable_resolvers: Mapping[str, str] = MappingProxyType({}),
    *,
    yunikorn: bool = False,
) -> Configuration:
    """Print the problems of *text* and return its configuration. Exits if it is not valid, or does not work on this
    machine."""
    try:
        configuration = load(text, unavailable_resolvers=unavailable_resolvers)
    except ConfigError as error:
        _print_problems(path, error.problems)
        raise typer.Exit(EXIT_BAD_INPUT) from error
    _print_problems(path, choose_warnings(configuration.warnings, yunikorn=yunikorn))
    return configuration


def check_json(text: str, *, yunikorn: bool) -> int:
    """Print the result as a ``ValidateConfigurationResponse`` and return the exit status."""
    problems: tuple[Problem, ...]
    try:
        problems, valid = choose_warnings(load(text).warnings, yunikorn=yunikorn), True
    except ConfigError as error:
        problems, valid = error.problems, False
    found = [encode_problem(problem) for problem in problems]
    echo_json(
        pb.ValidateConfigurationResponse(valid=valid, checksum=checksum_of(text) if valid else "", problems=found)
    )
    if not valid:
        return EXIT_BAD_INPUT
    return EXIT_FAILED if found else 0


def _print_problems(path: Path, problems: tuple[Problem, ...]) -> None:
    """Print one line for each problem, in the form that editors understand: file, line, column, severity."""
    for problem in problems:
        place = f":{problem.line}:{problem.column}" if problem.line else ""
        where = f"{problem.path}: " if problem.path else ""
        expected = f" (expected {problem.expected})" if problem.expected else ""
        print_error(f"{path}{place}: {problem.severity}: {where}{problem.message}{expected}")
