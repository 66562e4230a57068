"""Commands ``kornel config``: check a configuration, preview it on a running core, and show earlier ones."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated, Final

import typer

from kornel.core.cli.earlier_versions import find_version, list_earlier_versions
from kornel.core.cli.options import DEFAULT_ADDRESS as ADDRESS
from kornel.core.cli.options import DEFAULT_TIMEOUT_S as TIMEOUT_S
from kornel.core.cli.options import EXIT_BAD_INPUT, EXIT_FAILED, Address, AsJson, ManagerName, Timeout, report_failure
from kornel.core.cli.terminal import echo_document, echo_json, echo_line, print_error, show_text
from kornel.core.cli.text.configuration import render_history, render_impact
from kornel.core.cli.text.documents import message_values
from kornel.core.client.calls import CoreUnreachable
from kornel.core.client.configuration import ConfigurationClient
from kornel.core.config.default import DEFAULT_CONFIGURATION

config_app = typer.Typer(help="Work with queue configurations.", no_args_is_help=True)

PREVIEW_TIMEOUT_S: Final = 60.0

HAS_HIDDEN: Final = (
    "secrets are shown as [hidden]; cores refuse such a text, but `kornel config rollback` restores the real one"
)
HAS_HIDDEN_BOTH: Final = "secrets are shown as [hidden], so differences between them cannot be seen"

ROLLBACK_HOLDS: Final = (
    "It stays in force until the shim or the file supplies a new text; registering again does not end it."
    " `kornel config rollback --undo` does, and so does a restart of a core without a journal."
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="Queue configuration to read.")]
Name = Annotated[str, typer.Argument(metavar="VERSION", help="A version as `kornel config history` names it.")]
OtherName = Annotated[str, typer.Argument(metavar="[OTHER]", help="Another version; 0: the one in force.")]


@config_app.command("check")
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
    # The modules that read configurations take longer to import than all other commands together.
    from kornel.core.cli.configuration_file import check_json, check_text, choose_warnings, read_file  # noqa: PLC0415
    from kornel.core.config.derived import derived_guarantees  # noqa: PLC0415

    text = read_file(file)
    if as_json:
        raise typer.Exit(check_json(text, yunikorn=yunikorn))
    if not text:
        echo_line(f"{file}: empty, so the built-in default applies")
        return
    configuration = check_text(file, text, yunikorn=yunikorn)
    echo_line(f"{file}: checksum {configuration.checksum}")
    for line in derived_guarantees(configuration):
        echo_line(f"{file}: derived for the monitor: {line}")
    if choose_warnings(configuration.warnings, yunikorn=yunikorn):
        raise typer.Exit(EXIT_FAILED)


@config_app.command("preview")
def preview(
    file: File,
    grpc: Address = ADDRESS,
    manager: ManagerName = "",
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
        with ConfigurationClient(grpc, timeout, manager) as core:
            impact = core.preview(text or DEFAULT_CONFIGURATION)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(impact)
    else:
        show_text(render_impact(impact))
    if impact.refusals:
        raise typer.Exit(EXIT_FAILED)


@config_app.command("history")
def history(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="The most versions to show, the newest first; 0: all.")
    ] = 50,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show versions of earlier runs that are the same as the one before.")
    ] = False,
    grpc: Address = ADDRESS,
    manager: ManagerName = "",
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """List the configurations that the core received in this and earlier runs, including refused ones.

    Earlier runs come from the stored history. With --json: kornel.v1.GetConfigurationHistoryResponse, of this run.
    """
    try:
        with ConfigurationClient(grpc, timeout, manager) as core:
            found = core.history()
        earlier = [] if as_json else list_earlier_versions(grpc, timeout, limit, manager, everything=everything)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
        return
    versions = [(str(version.number), version) for version in reversed(found.versions)]
    show_text(render_history([*versions, *earlier][: limit or None]))


@config_app.command("show")
def show(
    version: Annotated[
        str, typer.Argument(metavar="[VERSION]", help="A version as `kornel config history` names it; 0: in force.")
    ] = "0",
    grpc: Address = ADDRESS,
    manager: ManagerName = "",
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Print the text of a configuration; without a version, of the one in force."""
    try:
        found = find_version(grpc, timeout, version, manager)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        echo_document(found.config or DEFAULT_CONFIGURATION)
        if found.has_hidden:
            print_error(HAS_HIDDEN)


@config_app.command("diff")
def diff(
    version: Name,
    other: OtherName = "0",
    grpc: Address = ADDRESS,
    manager: ManagerName = "",
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show the difference between two configurations; without a second version, to the one in force.

    With --json: both versions without their texts, and the lines of the difference. Exits 0 whether or not there is a
    difference.
    """
    try:
        before, after = find_version(grpc, timeout, version, manager), find_version(grpc, timeout, other, manager)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    lines = list(
        difflib.unified_diff(
            (before.config or DEFAULT_CONFIGURATION).splitlines(),
            (after.config or DEFAULT_CONFIGURATION).splitlines(),
            f"version {version if version != '0' else before.version.number}",
            f"version {other if other != '0' else after.version.number}",
            lineterm="",
        )
    )
    if as_json:
        sides = {"before": message_values(before.version), "after": message_values(after.version)}
        echo_json(json.dumps({**sides, "lines": lines}, indent=2))
        return
    for line in lines:
        echo_line(line)
    if before.has_hidden or after.has_hidden:
        print_error(HAS_HIDDEN_BOTH)


@config_app.command("rollback")
def rollback(
    version: Annotated[
        int, typer.Argument(metavar="[VERSION]", min=0, help="Number, as `kornel config history` shows it.")
    ] = 0,
    undo: Annotated[bool, typer.Option("--undo", help="End the present rollback.")] = False,
    grpc: Address = ADDRESS,
    manager: ManagerName = "",
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Put an earlier configuration into force again, as a new version; with --undo, end the rollback.

    A rollback holds until the shim, or the file, supplies a text that it has not supplied before, until it is undone,
    or until a core without a journal restarts.

    Exits 1 when the core refuses, 2 for neither or both of VERSION and --undo.
    """
    if undo == bool(version):
        print_error("give either the number of a version or --undo")
        raise typer.Exit(EXIT_BAD_INPUT)
    try:
        with ConfigurationClient(grpc, timeout, manager) as core:
            done = core.undo_rollback() if undo else core.rollback(version)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(done)
    elif undo:
        echo_line(f"the rollback is undone: version {done.version} is in force, checksum {done.checksum}")
    elif done.changed:
        echo_line(f"version {version} is in force again, as version {done.version}, checksum {done.checksum}")
        echo_line(
            ROLLBACK_HOLDS
            if done.holds
            else "it is the text that the shim or the file supplies: no rollback is in force"
        )
    else:
        echo_line(f"nothing to do: version {done.version}, which is in force, is the same")
