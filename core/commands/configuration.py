"""Command ``kornel config check``: reads a file with a queue configuration as a core would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from kornel.cli.configuration_file import File, choose_warnings, print_problems, read_file
from kornel.cli.options import EXIT_BAD_INPUT, EXIT_FAILED, AsJson
from kornel.cli.terminal import echo_json, echo_line
from kornel.core.config.derived import derived_guarantees
from kornel.core.config.loader import checksum_of, load
from kornel.core.config.model import Configuration
from kornel.core.config.text.problems import ConfigError
from kornel.core.telling.encoding.kornel_v1 import encode_problem
from kornel.v1 import configuration_pb2 as pb


def check(
    file: File,
    yunikorn: Annotated[
        bool, typer.Option("--yunikorn", help="Also warn of parts that Apache YuniKorn reads differently.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a queue configuration.

    Exits 0 without problems, 1 with warnings only, 2 with errors.
    """
    text = read_file(file)
    if as_json:
        raise typer.Exit(_check_json(text, yunikorn=yunikorn))
    if not text:
        echo_line(f"{file}: empty, so the built-in default applies")
        return
    configuration, warnings = check_text(file, text, yunikorn=yunikorn)
    echo_line(f"{file}: checksum {configuration.checksum}")
    for line in derived_guarantees(configuration):
        echo_line(f"{file}: derived for the monitor: {line}")
    if warnings:
        raise typer.Exit(EXIT_FAILED)


def check_text(
    path: Path,
    text: str,
    unavailable_resolvers: Mapping[str, str] = MappingProxyType({}),
    *,
    yunikorn: bool = False,
) -> tuple[Configuration, list[pb.ConfigurationProblem]]:
    """Print the problems of *text*. Returns its configuration, and the warnings. Exits if it is not valid, or does not
    work on this machine."""
    try:
        configuration = load(text, unavailable_resolvers=unavailable_resolvers)
    except ConfigError as error:
        print_problems(path, map(encode_problem, error.problems))
        raise typer.Exit(EXIT_BAD_INPUT) from error
    warnings = choose_warnings(map(encode_problem, configuration.warnings), yunikorn=yunikorn)
    print_problems(path, warnings)
    return configuration, warnings


def _check_json(text: str, *, yunikorn: bool) -> int:
    """Print the result as a ``ValidateConfigurationResponse`` and return the exit status."""
    try:
        found, valid = choose_warnings(map(encode_problem, load(text).warnings), yunikorn=yunikorn), True
    except ConfigError as error:
        found, valid = [encode_problem(problem) for problem in error.problems], False
    echo_json(
        pb.ValidateConfigurationResponse(valid=valid, checksum=checksum_of(text) if valid else "", problems=found)
    )
    if not valid:
        return EXIT_BAD_INPUT
    return EXIT_FAILED if found else 0
