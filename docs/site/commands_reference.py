"""Every command with its options as a page, made from the programs themselves."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

import typer.main
from typer.core import TyperArgument, TyperGroup, TyperOption

from docs.site.markdown import cell, escaped, table
from kornel.cli import app as core_app
from kornel.conformance import cli as conformance_cli
from kornel.shim_local import cli as local_cli
from kornel.shim_mock import cli as mock_cli

PROGRAMS: Final = {
    "kornel": core_app.app,
    "kornel-local": local_cli.app,
    "kornel-shim-mock": mock_cli.app,
    "kornel-conformance": conformance_cli.app,
}


def page() -> str:
    """Markdown of the whole reference."""
    lines = ["# Commands", "", "Generated from the programs. How they are used: [the command line](../cli.md).", ""]
    for name, program in PROGRAMS.items():
        lines += [f"## {name}", ""]
        lines += _command(name, typer.main.get_command(program))
    return "\n".join(lines)


def _command(name: str, command: object) -> Iterator[str]:
    yield from (escaped(" ".join(str(getattr(command, "help", "") or "").split())), "")
    parameters = [one for one in getattr(command, "params", ()) if not getattr(one, "hidden", False)]
    rows = [_row(one) for one in parameters if "--help" not in one.opts]
    if rows:
        yield from (*table("Option", "Default", ""), *rows, "")
    if isinstance(command, TyperGroup):
        for child, below in command.commands.items():
            if not below.hidden:
                yield from (f"### {name} {child}", "")
                yield from _command(f"{name} {child}", below)


def _row(parameter: TyperArgument | TyperOption) -> str:
    metavar = parameter.metavar or _kind(parameter)
    names = [] if isinstance(parameter, TyperArgument) else [*parameter.opts, *parameter.secondary_opts]
    shown = " ".join(filter(None, [", ".join(names), metavar]))
    said = getattr(parameter, "help", "") or ""
    if variable := getattr(parameter, "envvar", None):
        said += f" Environment: `{variable}`."
    default = parameter.default
    told = "" if default in (None, "", False, ()) or callable(default) else f"`{getattr(default, 'value', default)}`"
    return f"| `{shown.replace('|', chr(92) + '|')}` | {told} | {cell(said)} |"


def _kind(parameter: TyperArgument | TyperOption) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(one.value) for one in kind)
    return parameter.name.upper()
