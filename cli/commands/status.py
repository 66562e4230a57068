"""Commands ``kornel status``, ``dump`` and ``ask show``: the state of a core, or of one ask."""

from __future__ import annotations

from time import time_ns
from typing import Annotated

import typer

from kornel.cli.client import calls as client
from kornel.cli.client.connection import DUMP_TIMEOUT_S
from kornel.cli.options import DEFAULT_ADDRESS, DEFAULT_TIMEOUT_S, Address, ManagerName, Timeout, report_failure
from kornel.cli.terminal import echo_json, show_text
from kornel.cli.text.status import render_explanation, render_status

ask_app = typer.Typer(help="Show single asks.", no_args_is_help=True)


def status(
    grpc: Address = DEFAULT_ADDRESS,
    partition: Annotated[str, typer.Option(help="Only this partition; empty means all.")] = "",
    manager: Annotated[
        str, typer.Option("--manager", metavar="RM_ID", help="Only this resource manager; empty means all.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print kornel.v1.GetStatusResponse as JSON.")] = False,
    audit: Annotated[
        bool, typer.Option(help="Also check the books; scheduling stops until the check is done.")
    ] = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show a summary of a core: its shim, partitions, queues, users and drained nodes.

    Exits 1 when no core answers.
    """
    try:
        found = client.fetch_status(grpc, partition, timeout, audit=audit, manager=manager)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        show_text(render_status(found, time_ns()))


def dump(
    grpc: Address = DEFAULT_ADDRESS,
    manager: ManagerName = "",
    as_json: Annotated[bool, typer.Option("--json", help="Has no effect: a dump is JSON in any case.")] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")
    ] = DUMP_TIMEOUT_S,
) -> None:
    """Print the full state of a core and its shim as one JSON object, for a bug report.

    Exits 1 when no core answers.
    """
    try:
        echo_json(client.fetch_dump(grpc, timeout, manager))
    except client.CoreUnreachable as error:
        raise report_failure(error) from error


@ask_app.command("show")
def ask_show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the ask or allocation.")],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Annotated[str, typer.Option(help="Partition of the object; empty means default.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print kornel.v1.ExplainAskResponse as JSON.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the state of an ask and what it waits for.

    Exits 1 when the core does not know the ask.
    """
    try:
        found = client.explain_ask(grpc, key, partition, timeout)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        show_text(render_explanation(key, found, time_ns()))
