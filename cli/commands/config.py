"""Commands ``kornel config``: check a configuration, preview it on a running core, and show earlier ones."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import typer

from kornel.cli.asking import ManagerCore, asks_core
from kornel.cli.commands.earlier_versions import find_version, list_earlier_versions
from kornel.cli.configuration_file import File, choose_warnings, print_problems, read_file
from kornel.cli.loading import OF_THE_CORE, CommandSource, GroupOnDemand
from kornel.cli.options import EXIT_BAD_INPUT, EXIT_FAILED, Timeout, refuse_input
from kornel.cli.terminal import echo_document, echo_json, echo_line, print_error
from kornel.cli.text.configuration import render_history, render_impact
from kornel.cli.text.documents import message_values
from kornel.shared.default_configuration import DEFAULT_CONFIGURATION
from kornel.v1 import configuration_pb2 as pb
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub


class _ConfigGroup(GroupOnDemand):
    """The commands of ``kornel config``."""

    sources = MappingProxyType(
        {
            "check": CommandSource(f"{OF_THE_CORE}.configuration", "check"),
            "from-yarn": CommandSource(f"{OF_THE_CORE}.from_yarn", "from_yarn"),
        }
    )


config_app = typer.Typer(cls=_ConfigGroup, help="Work with queue configurations.", no_args_is_help=True)

PREVIEW_TIMEOUT_S: Final = 60.0

HAS_HIDDEN: Final = (
    "secrets are shown as [hidden]; cores refuse such a text, but `kornel config rollback` restores the real one"
)
HAS_HIDDEN_BOTH: Final = "secrets are shown as [hidden], so differences between them cannot be seen"

ROLLBACK_HOLDS: Final = (
    "It stays in force until the shim or the file supplies a new text; registering again does not end it."
    " `kornel config rollback --undo` does, and so does a restart of a core without a journal."
)

Name = Annotated[str, typer.Argument(metavar="VERSION", help="A version as `kornel config history` names it.")]
OtherName = Annotated[str, typer.Argument(metavar="[OTHER]", help="Another version; 0: the one in force.")]


@dataclass(frozen=True)
class _PreviewCore(ManagerCore):
    timeout: Timeout = PREVIEW_TIMEOUT_S


@config_app.command("preview")
@asks_core()
def preview(
    file: File,
    *,
    core: _PreviewCore,
) -> None:
    """Show what a configuration would change on a running core, without changing it.

    Exits 2 for a file with errors, 1 when the core would refuse it at present or does not answer.
    """
    text = read_file(file)
    service = ConfigurationServiceStub(core.channel)
    if text and not core.as_json:
        _print_judgement(file, core.call(service.ValidateConfiguration, pb.ValidateConfigurationRequest(config=text)))
    request = pb.PreviewConfigurationRequest(config=text or DEFAULT_CONFIGURATION, rm_id=core.manager)
    impact = core.call(service.PreviewConfiguration, request)
    core.show(impact, lambda: render_impact(impact))
    if impact.refusals:
        raise typer.Exit(EXIT_FAILED)


def _print_judgement(file: Path, found: pb.ValidateConfigurationResponse) -> None:
    """Print what is wrong with *file*. Exits if it is not valid."""
    print_problems(file, choose_warnings(found.problems) if found.valid else found.problems)
    if not found.valid:
        raise typer.Exit(EXIT_BAD_INPUT)


@config_app.command("history")
@asks_core()
def history(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="The most versions to show, the newest first; 0: all.")
    ] = 50,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show versions of earlier runs that are the same as the one before.")
    ] = False,
    *,
    core: ManagerCore,
) -> None:
    """List the configurations that the core received in this and earlier runs, including refused ones.

    Earlier runs come from the stored history. With --json: kornel.v1.GetConfigurationHistoryResponse, of this run.
    """
    request = pb.GetConfigurationHistoryRequest(rm_id=core.manager)
    found = core.call(ConfigurationServiceStub(core.channel).GetConfigurationHistory, request)
    earlier = [] if core.as_json else list_earlier_versions(core, limit, everything=everything)
    versions = [(str(version.number), version) for version in reversed(found.versions)]
    core.show(found, lambda: render_history([*versions, *earlier][: limit or None]))


@config_app.command("show")
@asks_core()
def show(
    version: Annotated[
        str, typer.Argument(metavar="[VERSION]", help="A version as `kornel config history` names it; 0: in force.")
    ] = "0",
    *,
    core: ManagerCore,
) -> None:
    """Print the text of a configuration; without a version, of the one in force."""
    found = find_version(core, version)
    if core.as_json:
        echo_json(found)
    else:
        echo_document(found.config or DEFAULT_CONFIGURATION)
        if found.has_hidden:
            print_error(HAS_HIDDEN)


@config_app.command("diff")
@asks_core()
def diff(
    version: Name,
    other: OtherName = "0",
    *,
    core: ManagerCore,
) -> None:
    """Show the difference between two configurations; without a second version, to the one in force.

    With --json: both versions without their texts, and the lines of the difference. Exits 0 whether or not there is a
    difference.
    """
    before, after = find_version(core, version), find_version(core, other)
    lines = list(
        difflib.unified_diff(
            (before.config or DEFAULT_CONFIGURATION).splitlines(),
            (after.config or DEFAULT_CONFIGURATION).splitlines(),
            f"version {version if version != '0' else before.version.number}",
            f"version {other if other != '0' else after.version.number}",
            lineterm="",
        )
    )
    if core.as_json:
        sides = {"before": message_values(before.version), "after": message_values(after.version)}
        echo_json(json.dumps({**sides, "lines": lines}, indent=2))
        return
    for line in lines:
        echo_line(line)
    if before.has_hidden or after.has_hidden:
        print_error(HAS_HIDDEN_BOTH)


@config_app.command("rollback")
@asks_core()
def rollback(
    version: Annotated[
        int, typer.Argument(metavar="[VERSION]", min=0, help="Number, as `kornel config history` shows it.")
    ] = 0,
    undo: Annotated[bool, typer.Option("--undo", help="End the present rollback.")] = False,
    *,
    core: ManagerCore,
) -> None:
    """Put an earlier configuration into force again, as a new version; with --undo, end the rollback.

    A rollback holds until the shim, or the file, supplies a text that it has not supplied before, until it is undone,
    or until a core without a journal restarts.

    Exits 1 when the core refuses, 2 for neither or both of VERSION and --undo.
    """
    if undo == bool(version):
        raise refuse_input("give either the number of a version or --undo")
    request = pb.RollbackConfigurationRequest(version=version, undo=undo, rm_id=core.manager)
    done = core.call(ConfigurationServiceStub(core.channel).RollbackConfiguration, request)
    if core.as_json:
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
