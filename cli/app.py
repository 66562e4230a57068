"""The ``kornel`` command: it runs a core, and queries a running one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import kornel
from kornel.cli.client.connection import CONNECTION, Connection, ConnectionNotPossible
from kornel.cli.connection_options import move_connection_options
from kornel.cli.loading import OF_THE_CORE, SIMULATOR, CommandSource, GroupOnDemand
from kornel.cli.options import COMPLETE_VARIABLE, EXIT_BAD_INPUT
from kornel.cli.terminal import echo_line, print_error
from kornel.shared.addresses import DEFAULT_ADDRESS

_LOOK: Final = "Look at what a core holds"
_WHY: Final = "Ask why, and what if"
_PAST: Final = "Look back"
_CHANGE: Final = "Change a running core"
_RUN: Final = "Run a core"

COMMANDS: Final = {
    "status": CommandSource(".status", "status", _LOOK),
    "queues": CommandSource(".lists", "queues", _LOOK),
    "apps": CommandSource(".lists", "apps", _LOOK),
    "nodes": CommandSource(".lists", "nodes", _LOOK),
    "claims": CommandSource(".lists", "claims", _LOOK),
    "waits": CommandSource(".lists", "waits", _LOOK),
    "users": CommandSource(".users", "users", _LOOK),
    "top": CommandSource(".top", "top", _LOOK),
    "queue": CommandSource(".bounds", "queue_app", _LOOK),
    "user": CommandSource(".bounds", "user_app", _LOOK),
    "ask": CommandSource(".status", "ask_app", _LOOK),
    "explain": CommandSource(".explain", "explain", _WHY),
    "what-if": CommandSource(".explain", "what_if_app", _WHY),
    "simulate": CommandSource(f"{SIMULATOR}.command", "simulate", _WHY),
    "events": CommandSource(".events", "events", _PAST),
    "refusals": CommandSource(".refusals", "refusals", _PAST),
    "history": CommandSource(".history", "history_app", _PAST),
    "journal": CommandSource(f"{OF_THE_CORE}.journal", "journal_app", _PAST),
    "replay": CommandSource(f"{OF_THE_CORE}.journal", "replay", _PAST),
    "config": CommandSource(".config", "config_app", _CHANGE),
    "drain": CommandSource(".drain", "drain_app", _CHANGE),
    "undrain": CommandSource(".drain", "undrain_app", _CHANGE),
    "preempt": CommandSource(".preempt", "preempt", _CHANGE),
    "unregister": CommandSource(".unregister", "unregister", _CHANGE),
    "serve": CommandSource(f"{OF_THE_CORE}.serve", "serve", _RUN),
    "health": CommandSource(".health", "health", _RUN),
    "security": CommandSource(f"{OF_THE_CORE}.security", "security_app", _RUN),
    "bench": CommandSource(".bench", "bench", _RUN),
    "dump": CommandSource(".status", "dump", _RUN),
    "completion": CommandSource(".completion", "completion", _RUN),
}
"""The commands besides ``version``, in the order of the help. Each has its module, which is imported when the command
is used, and the heading under which the help lists it."""


class KornelGroup(GroupOnDemand):
    """The commands of ``kornel``."""

    sources = COMMANDS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the options of ``kornel`` itself, before or after the command."""
        found: list[str] = super().parse_args(ctx, move_connection_options(args))
        return found


app = typer.Typer(
    name="kornel",
    cls=KornelGroup,
    help="Kornel, a cluster-scheduler core served over gRPC.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The options about the connection may stand before the command or after it.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def connect(
    _core: Annotated[
        str,
        typer.Option(
            "--core",
            "--grpc",
            metavar="ADDR",
            envvar="KORNEL_ADDRESS",
            help="Where the core listens: host:port or unix:path.",
        ),
    ] = DEFAULT_ADDRESS,
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
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Kornel, a cluster-scheduler core served over gRPC."""
    CONNECTION.set(Connection(ca, cert, key, token_file, server_name))


@app.command(rich_help_panel=_RUN)
def version() -> None:
    """Print the version."""
    echo_line(f"kornel {kornel.__version__}")


def run_app() -> None:
    """Run the command that the arguments of this process name, or list the next words for a shell that asks."""
    if COMPLETE_VARIABLE in os.environ:
        # A module of its own that typer names for nobody else, so only those who complete depend on it.
        from typer._completion_classes import completion_init  # noqa: PLC0415

        completion_init()
    try:
        app(complete_var=COMPLETE_VARIABLE)
    except ConnectionNotPossible as error:
        print_error(error)
        sys.exit(EXIT_BAD_INPUT)
