"""``kornel config``: check a configuration, try it on a running core, and look back at earlier ones."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Final

import typer

from kornel.core.cli.options import DEFAULT_ADDRESS as ADDRESS
from kornel.core.cli.options import DEFAULT_TIMEOUT_S as TIMEOUT_S
from kornel.core.cli.options import EXIT_BAD_INPUT, EXIT_FAILED, Address, AsJson, Timeout, report_failure
from kornel.core.cli.terminal import echo_document, echo_json, echo_line, echo_text, print_error
from kornel.core.cli.text.configuration import render_history, render_impact
from kornel.core.client.calls import CoreUnreachable
from kornel.core.client.configuration import ConfigurationClient
from kornel.core.config.default import DEFAULT_CONFIGURATION

config_app = typer.Typer(help="Work with queue configurations.", no_args_is_help=True)

PREVIEW_TIMEOUT_S: Final = 60.0

ROLLBACK_HOLDS: Final = (
    "It holds until the shim or the file brings a text that it has not brought before; registering again does not end"
    " it. `kornel config rollback --undo` does, and a restart of the core."
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="Queue configuration to read.")]
Number = Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Number, as `kornel config history` shows it.")]


@config_app.command("check")
def check(file: File, as_json: AsJson = False) -> None:
    """Check a queue configuration. Exits 0 without problems, 1 with warnings only, 2 with errors."""
    # Reading configurations takes longer to import than all the other commands together.
    from kornel.core.cli.configuration_file import check_json, check_text, read_file  # noqa: PLC0415
    from kornel.core.config.derived import derived_guarantees  # noqa: PLC0415

    text = read_file(file)
    if as_json:
        raise typer.Exit(check_json(text))
    if not text:
        echo_line(f"{file}: empty, so the built-in default holds")
        return
    configuration = check_text(file, text)
    echo_line(f"{file}: checksum {configuration.checksum}")
    for line in derived_guarantees(configuration):
        echo_line(f"{file}: derived for the monitor: {line}")
    if configuration.warnings:
        raise typer.Exit(EXIT_FAILED)


@config_app.command("preview")
def preview(
    file: File,
    grpc: Address = ADDRESS,
    as_json: AsJson = False,
    timeout: Timeout = PREVIEW_TIMEOUT_S,
) -> None:
    """Show what a configuration would change on a running core, without changing it.

    Exits 2 for a file with errors, 1 when the core would refuse it at present or does not answer.
    """
    from kornel.core.cli.configuration_file import check_text, read_file  # noqa: PLC0415

    text = read_file(file)
    if text and not as_json:
        check_text(file, text)
    try:
        with ConfigurationClient(grpc, timeout) as core:
            impact = core.preview(text or DEFAULT_CONFIGURATION)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(impact)
    else:
        echo_text(render_impact(impact))
    if impact.refusals:
        raise typer.Exit(EXIT_FAILED)


@config_app.command("history")
def history(grpc: Address = ADDRESS, as_json: AsJson = False, timeout: Timeout = TIMEOUT_S) -> None:
    """List the configurations that a core was given, refused ones included."""
    try:
        with ConfigurationClient(grpc, timeout) as core:
            found = core.history()
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        echo_text(render_history(found))


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
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        echo_document(found.config or DEFAULT_CONFIGURATION)


@config_app.command("diff")
def diff(
    version: Number,
    other: Annotated[int, typer.Argument(metavar="[OTHER]", min=0, help="Number; 0: the one in force.")] = 0,
    grpc: Address = ADDRESS,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show the difference between two configurations; without a second number, to the one in force.

    Exits 0 whether or not there is a difference.
    """
    try:
        with ConfigurationClient(grpc, timeout) as core:
            before, after = core.get(version), core.get(other)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    for line in difflib.unified_diff(
        (before.config or DEFAULT_CONFIGURATION).splitlines(),
        (after.config or DEFAULT_CONFIGURATION).splitlines(),
        f"version {before.version.number}",
        f"version {after.version.number}",
        lineterm="",
    ):
        echo_line(line)


@config_app.command("rollback")
def rollback(
    version: Annotated[
        int, typer.Argument(metavar="[VERSION]", min=0, help="Number, as `kornel config history` shows it.")
    ] = 0,
    undo: Annotated[bool, typer.Option("--undo", help="End the present rollback.")] = False,
    grpc: Address = ADDRESS,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Put an earlier configuration into force again, as a new version; with --undo, end the rollback.

    A rollback holds until the shim, or the file, supplies a text that it has not supplied before, until it is undone,
    or until the core restarts. Exits 1 when the core refuses, 2 for neither or both of VERSION and --undo.
    """
    if undo == bool(version):
        print_error("either the number of a version, or --undo")
        raise typer.Exit(EXIT_BAD_INPUT)
    try:
        with ConfigurationClient(grpc, timeout) as core:
            done = core.undo_rollback() if undo else core.rollback(version)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(done)
    elif undo:
        echo_line(f"the rollback is undone: version {done.version} is in force, checksum {done.checksum}")
    elif done.changed:
        echo_line(f"version {version} is in force again, as version {done.version}, checksum {done.checksum}")
        echo_line(ROLLBACK_HOLDS if done.holds else "it is what the shim or the file brings: no rollback holds")
    else:
        echo_line(f"nothing to do: version {done.version}, in force, says the same")
