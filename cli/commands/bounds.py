"""``kornel queue`` and ``kornel user``: show what bounds a queue or a user."""

from __future__ import annotations

from time import time_ns
from typing import Annotated

import typer

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.suggestions import suggest_queues, suggesting_names
from kornel.cli.text.bounds import render_queue, render_user
from kornel.v1.status_pb2 import ExplainQueueRequest, ExplainUserRequest
from kornel.v1.status_pb2_grpc import StatusServiceStub

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
        request = ExplainQueueRequest(partition=core.partition, path=path)
        found = core.call(StatusServiceStub(core.channel).ExplainQueue, request)
    core.show(found, lambda: render_queue(found, time_ns()))


@user_app.command("show")
@asks_core()
def show_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")],
    *,
    core: PartitionCore,
) -> None:
    """Show what a user holds and the limits that bind it, those of its groups included."""
    request = ExplainUserRequest(partition=core.partition, user=name)
    found = core.call(StatusServiceStub(core.channel).ExplainUser, request)
    core.show(found, lambda: render_user(found))
