"""``kornel config``: check a configuration, try it on a running core, and look back at earlier ones."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import typer
from kornel.v1 import configuration_pb2 as pb

from core.cli.options import DEFAULT_ADDRESS as ADDRESS
from core.cli.options import DEFAULT_TIMEOUT_S as TIMEOUT_S
from core.cli.options import EXIT_BAD_INPUT, EXIT_FAILED, Address, AsJson, Timeout, echo_json, failed
from core.config.loader import DEFAULT_CONFIGURATION, checksum, load
from core.config.model import Configuration
from core.config.problems import ConfigError, Problem
from core.service.client import CoreUnreachable
from core.service.configuration_client import ConfigurationClient
from core.service.configuration_text import render_history, render_impact
from core.service.status_codes import problem_message

config_app = typer.Typer(help="Work with queue configurations.", no_args_is_help=True)

PREVIEW_TIMEOUT_S: Final = 60.0

File = Annotated[Path, typer.Argument(metavar="FILE", help="Queue configuration to read.")]
Number = Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Number, as `kornel config history` shows it.")]


@config_app.command("check")
def check(file: File, as_json: AsJson = False) -> None:
    """Tell what is wrong with a queue configuration. Exits 0 for nothing, 1 for warnings only, 2 for errors."""
    text = read_file(file)
    if as_json:
        raise typer.Exit(_check_json(text))
    if not text:
        typer.echo(f"{file}: empty, so the built-in default holds")
        return
    configuration = checked(file, text)
    typer.echo(f"{file}: checksum {configuration.checksum}")
    if configuration.warnings:
        raise typer.Exit(EXIT_FAILED)


@config_app.command("preview")
def preview(
    file: File,
    grpc: Address = ADDRESS,
    as_json: AsJson = False,
    timeout: Timeout = PREVIEW_TIMEOUT_S,
) -> None:
    """Tell what a configuration would change on a running core, without changing it.

    Exits 2 for a file with errors, 1 when the core would refuse it as things stand or does not answer.
    """
    text = read_file(file)
    if text and not as_json:
        checked(file, text)
    try:
        with ConfigurationClient(grpc, timeout) as core:
            impact = core.preview(text or DEFAULT_CONFIGURATION)
    except CoreUnreachable as error:
        raise failed(error) from error
    if as_json:
        echo_json(impact)
    else:
        typer.echo(render_impact(impact))
    if impact.refusals:
        raise typer.Exit(EXIT_FAILED)


@config_app.command("history")
def history(grpc: Address = ADDRESS, as_json: AsJson = False, timeout: Timeout = TIMEOUT_S) -> None:
    """List the configurations a core was given, the ones it refused included."""
    try:
        with ConfigurationClient(grpc, timeout) as core:
            found = core.history()
    except CoreUnreachable as error:
        raise failed(error) from error
    if as_json:
        echo_json(found)
    else:
        typer.echo(render_history(found))


@config_app.command("show")
def show(
    version: Annotated[int, typer.Argument(metavar="[VERSION]", min=0, help="Number; 0: the one in force.")] = 0,
    grpc: Address = ADDRESS,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Print the text of a configuration; without a number, of the one in force."""
    try:
        with ConfigurationClient(grpc, timeout) as core:
            found = core.get(version)
    except CoreUnreachable as error:
        raise failed(error) from error
    if as_json:
        echo_json(found)
    else:
        typer.echo(found.config or DEFAULT_CONFIGURATION, nl=not found.config.endswith("\n"))


@config_app.command("diff")
def diff(
    version: Number,
    other: Annotated[int, typer.Argument(metavar="[OTHER]", min=0, help="Number; 0: the one in force.")] = 0,
    grpc: Address = ADDRESS,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show how to get from one configuration to another, without a second number to the one in force.

    Exits 0 in either case, also when there is no difference.
    """
    try:
        with ConfigurationClient(grpc, timeout) as core:
            before, after = core.get(version), core.get(other)
    except CoreUnreachable as error:
        raise failed(error) from error
    for line in difflib.unified_diff(
        (before.config or DEFAULT_CONFIGURATION).splitlines(),
        (after.config or DEFAULT_CONFIGURATION).splitlines(),
        f"version {before.version.number}",
        f"version {after.version.number}",
        lineterm="",
    ):
        typer.echo(line)


@config_app.command("rollback")
def rollback(version: Number, grpc: Address = ADDRESS, as_json: AsJson = False, timeout: Timeout = TIMEOUT_S) -> None:
    """Put an earlier configuration into force again, as a new version."""
    try:
        with ConfigurationClient(grpc, timeout) as core:
            done = core.rollback(version)
    except CoreUnreachable as error:
        raise failed(error) from error
    if as_json:
        echo_json(done)
    elif done.changed:
        typer.echo(f"version {version} is in force again, as version {done.version}, checksum {done.checksum}")
    else:
        typer.echo(f"nothing to do: version {done.version}, in force, says the same")


def read_file(path: Path) -> str:
    """The text of *path*. Exits if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        typer.echo(f"{path}: {why or error}", err=True)
        raise typer.Exit(EXIT_BAD_INPUT) from error


def checked(path: Path, text: str, unavailable_resolvers: Mapping[str, str] = MappingProxyType({})) -> Configuration:
    """Print every problem of *text* and return what it means. Exits if it means nothing, or nothing that works here."""
    try:
        configuration = load(text, unavailable_resolvers=unavailable_resolvers)
    except ConfigError as error:
        _print_problems(path, error.problems)
        raise typer.Exit(EXIT_BAD_INPUT) from error
    _print_problems(path, configuration.warnings)
    return configuration


def _check_json(text: str) -> int:
    """Print the judgement as ``ValidateConfigurationResponse`` and return the exit status."""
    problems: tuple[Problem, ...]
    try:
        problems, valid = load(text).warnings, True
    except ConfigError as error:
        problems, valid = error.problems, False
    found = [problem_message(problem) for problem in problems]
    echo_json(pb.ValidateConfigurationResponse(valid=valid, checksum=checksum(text) if valid else "", problems=found))
    if not valid:
        return EXIT_BAD_INPUT
    return EXIT_FAILED if found else 0


def _print_problems(path: Path, problems: tuple[Problem, ...]) -> None:
    """One line each, in the form that editors understand: file, line, column, severity."""
    for problem in problems:
        place = f":{problem.line}:{problem.column}" if problem.line else ""
        where = f"{problem.path}: " if problem.path else ""
        expected = f" (expected {problem.expected})" if problem.expected else ""
        print(f"{path}{place}: {problem.severity}: {where}{problem.message}{expected}", file=sys.stderr)
