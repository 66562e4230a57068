"""``kornel queue`` and ``kornel user``: show what bounds a queue or a user."""

from __future__ import annotations

from time import time_ns
from typing import Annotated

import typer

from kornel.cli.client import calls as client
from kornel.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    Address,
    AsJson,
    Partition,
    Timeout,
    report_failure,
)
from kornel.cli.suggestions import report_unknown, suggest_queues
from kornel.cli.terminal import echo_json, show_text
from kornel.cli.text.bounds import render_queue, render_user

queue_app = typer.Typer(help="Show single queues.", no_args_is_help=True)
user_app = typer.Typer(help="Show single users.", no_args_is_help=True)


@queue_app.command("show")
def show_queue(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Full path, for instance root.prod.reports.")],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show what a queue may still take, level by level up to the root, and its tightest bound."""
    try:
        found = client.explain_queue(grpc, path, partition, timeout)
    except client.CoreUnreachable as error:
        raise report_unknown(error, path, lambda: suggest_queues(grpc, partition, timeout)) from error
    if as_json:
        echo_json(found)
    else:
        show_text(render_queue(found, time_ns()))


@user_app.command("show")
def show_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show what a user holds and the limits that bind it, those of its groups included."""
    try:
        found = client.explain_user(grpc, name, partition, timeout)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        show_text(render_user(found))
