"""The ``kornel`` command: it runs a core, and queries a running one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kornel.core.cli.bench import bench
from kornel.core.cli.completion import completion
from kornel.core.cli.config import config_app
from kornel.core.cli.consent import ask_before_unregistering
from kornel.core.cli.events import events
from kornel.core.cli.explain import explain, what_if_app
from kornel.core.cli.health import health
from kornel.core.cli.history import history_app
from kornel.core.cli.lists import apps, drain_app, nodes, queues, undrain_app
from kornel.core.cli.options import DEFAULT_ADDRESS, EXIT_BAD_INPUT, EXIT_FAILED, Address, Timeout
from kornel.core.cli.quota import queue_app, user_app
from kornel.core.cli.security import security_app
from kornel.core.cli.serve import serve
from kornel.core.cli.terminal import VisibleGroup, echo_json, echo_line, echo_text, print_error
from kornel.core.cli.text.status import render_explanation, render_status
from kornel.core.cli.top import top
from kornel.core.client import calls as client
from kornel.core.client.channels import CONNECTION, Connection, ConnectionNotPossible
from kornel.core.process.version import core_version

app = typer.Typer(
    name="kornel",
    cls=VisibleGroup,
    help="Kornel, a cluster-scheduler core served over gRPC.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(config_app, name="config")
app.add_typer(history_app, name="history")
app.add_typer(queue_app, name="queue")
app.add_typer(user_app, name="user")
app.add_typer(what_if_app, name="what-if")
app.add_typer(security_app, name="security")
app.add_typer(drain_app, name="drain")
app.add_typer(undrain_app, name="undrain")
app.command()(serve)
app.command()(explain)
app.command()(events)
app.command()(queues)
app.command()(apps)
app.command()(nodes)
app.command()(top)
app.command()(bench)
app.command()(health)
app.command()(completion)
ask_app = typer.Typer(help="Show single asks.", no_args_is_help=True)
app.add_typer(ask_app, name="ask")


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
def status(
    grpc: Address = DEFAULT_ADDRESS,
    partition: Annotated[str, typer.Option(help="Only this partition; empty means all.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print kornel.v1.GetStatusResponse as JSON.")] = False,
    audit: Annotated[bool, typer.Option(help="Check the books too; stops scheduling for as long as it takes.")] = False,
    timeout: Timeout = client.DEFAULT_TIMEOUT_S,
) -> None:
    """Show the partitions and queues of a core. Exits 1 when no core answers."""
    try:
        found = client.fetch_status(grpc, partition, timeout, audit=audit)
    except client.CoreUnreachable as error:
        print_error(error)
        raise typer.Exit(EXIT_FAILED) from error
    if as_json:
        echo_json(found)
    else:
        echo_text(render_status(found))


@app.command()
def dump(
    grpc: Address = DEFAULT_ADDRESS,
    as_json: Annotated[bool, typer.Option("--json", help="Has no effect: a dump is JSON in any case.")] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")
    ] = client.DUMP_TIMEOUT_S,
) -> None:
    """Print the full state of a core and its shim as one JSON object. Exits 1 when no core answers."""
    try:
        echo_json(client.fetch_dump(grpc, timeout))
    except client.CoreUnreachable as error:
        print_error(error)
        raise typer.Exit(EXIT_FAILED) from error


@ask_app.command("show")
def ask_show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the ask or allocation.")],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Annotated[str, typer.Option(help="Partition of the object; empty means default.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print kornel.v1.ExplainAskResponse as JSON.")] = False,
    timeout: Timeout = client.DEFAULT_TIMEOUT_S,
) -> None:
    """Show the state of an ask and what it waits for. Exits 1 for one that the core does not know."""
    try:
        found = client.explain_ask(grpc, key, partition, timeout)
    except client.CoreUnreachable as error:
        print_error(error)
        raise typer.Exit(EXIT_FAILED) from error
    if as_json:
        echo_json(found)
    else:
        echo_text(render_explanation(key, found))


@app.command()
def unregister(
    rm_id: Annotated[str, typer.Argument(metavar="RM_ID", help="Resource manager to remove.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for consent.")] = False,
    grpc: Address = DEFAULT_ADDRESS,
    timeout: Timeout = client.DEFAULT_TIMEOUT_S,
) -> None:
    """Remove a resource manager and everything it reported from a core. Asks for consent unless --yes is given.

    Exits 1 when the core refuses or the answer is no, 2 where nobody can be asked.
    """
    if not yes:
        ask_before_unregistering(rm_id)
    try:
        client.unregister(grpc, rm_id, timeout)
    except client.CoreUnreachable as error:
        print_error(error)
        raise typer.Exit(EXIT_FAILED) from error


@app.command()
def version() -> None:
    """Print the version."""
    echo_line(f"kornel {core_version()}")


def main() -> None:
    """Run the ``kornel`` command."""
    try:
        app()
    except ConnectionNotPossible as error:
        print_error(error)
        sys.exit(EXIT_BAD_INPUT)
