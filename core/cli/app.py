"""The ``kornel`` command: it runs a core, and queries a running one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from kornel.core.cli.loading import CommandSource, GroupOnDemand
from kornel.core.cli.options import EXIT_BAD_INPUT
from kornel.core.cli.terminal import echo_line, print_error
from kornel.core.client.connection import CONNECTION, Connection, ConnectionNotPossible
from kornel.core.process.version import core_version

COMMANDS: Final = {
    "serve": CommandSource("serve", "serve"),
    "explain": CommandSource("explain", "explain"),
    "events": CommandSource("events", "events"),
    "queues": CommandSource("lists", "queues"),
    "apps": CommandSource("lists", "apps"),
    "nodes": CommandSource("lists", "nodes"),
    "top": CommandSource("top", "top"),
    "bench": CommandSource("bench", "bench"),
    "health": CommandSource("health", "health"),
    "completion": CommandSource("completion", "completion"),
    "status": CommandSource("status", "status"),
    "dump": CommandSource("status", "dump"),
    "unregister": CommandSource("unregister", "unregister"),
    "config": CommandSource("config", "config_app"),
    "history": CommandSource("history", "history_app"),
    "queue": CommandSource("quota", "queue_app"),
    "user": CommandSource("quota", "user_app"),
    "what-if": CommandSource("explain", "what_if_app"),
    "security": CommandSource("security", "security_app"),
    "drain": CommandSource("lists", "drain_app"),
    "undrain": CommandSource("lists", "undrain_app"),
    "ask": CommandSource("status", "ask_app"),
}
"""The commands besides ``version``, in the order of the help, each with the module that is imported when it is used."""


class KornelGroup(GroupOnDemand):
    """The commands of ``kornel``."""

    package = __package__
    sources = COMMANDS


app = typer.Typer(
    name="kornel",
    cls=KornelGroup,
    help="Kornel, a cluster-scheduler core served over gRPC.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def connect(
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", envvar="KORNEL_CA", metavar="FILE", help="PEM file of the CA that signed the core's certificate."
        ),
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", envvar="KORNEL_CERT", metavar="FILE", help="Certificate to show the core.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", envvar="KORNEL_KEY", metavar="FILE", help="Private key of --cert.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", envvar="KORNEL_TOKEN_FILE", metavar="FILE", help="Bearer token to show the core."),
    ] = None,
    server_name: Annotated[
        str,
        typer.Option(
            "--server-name",
            envvar="KORNEL_SERVER_NAME",
            metavar="NAME",
            help="Name in the core's certificate, if not the host of its address.",
        ),
    ] = "",
) -> None:
    """Kornel, a cluster-scheduler core served over gRPC."""
    CONNECTION.set(Connection(ca, cert, key, token_file, server_name))


@app.command()
def version() -> None:
    """Print the version."""
    echo_line(f"kornel {core_version()}")


def run_app() -> None:
    """Run the command that the arguments of this process name."""
    try:
        app()
    except ConnectionNotPossible as error:
        print_error(error)
        sys.exit(EXIT_BAD_INPUT)
