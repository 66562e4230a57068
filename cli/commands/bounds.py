"""``kornel queue`` and ``kornel user``: show what bounds a queue or a user."""

from __future__ import annotations

from time import time_ns
from typing import Annotated

import typer

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.client import calls as client
from kornel.cli.suggestions import suggest_queues, suggesting_names
from kornel.cli.text.bounds import render_queue, render_user

queue_app = typer.Typer(help="Show single queues.", no_args_is_help=True)
user_app = typer.Typer(help="Show single users.", no_args_is_help=True)


@queue_app.command("show")
@asks_core()
def show_queue(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Full path, for instance root.prod.reports.")],
    *,
    core: PartitionCore,
) -> None:
    """Show what a queue may still take, level by level up to the root, its tightest bound, and its properties."""
    with suggesting_names(path, lambda: suggest_queues(core)):
        found = client.explain_queue(core.grpc, path, core.partition, core.timeout)
    core.show(found, lambda: render_queue(found, time_ns()))


@user_app.command("show")
@asks_core()
def show_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")],
    *,
    core: PartitionCore,
) -> None:
    """Show what a user holds and the limits that bind it, those of its groups included."""
    found = client.explain_user(core.grpc, name, core.partition, core.timeout)
    core.show(found, lambda: render_user(found))
