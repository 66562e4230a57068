"""Command ``kornel users``: shows users and how much each holds."""

from __future__ import annotations

from typing import Annotated

import typer

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.options import refuse_input
from kornel.cli.terminal import echo_json, show_text
from kornel.cli.text.users import NoSuchOrder, render_users, sort_users
from kornel.v1.status_pb2 import GetStatusRequest
from kornel.v1.status_pb2_grpc import StatusServiceStub

Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="BY",
        help="A resource type such as vcore, apps, or name; by default the largest share of the cluster.",
    ),
]


@asks_core()
def users(
    sort: Sort = "",
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="Show no more than this; 0: all.")] = 0,
    *,
    core: PartitionCore,
) -> None:
    """Show users and what they hold, those who hold most first.

    With --json: kornel.v1.PartitionStatus without its queues. Exits 1 if no core answers, 2 if the order is not known.
    """
    request = GetStatusRequest(partition=core.partition or "default")
    found = core.call(StatusServiceStub(core.channel).GetStatus, request).partitions[0]
    try:
        if not core.as_json:
            show_text(render_users(found, sort, limit))
            return
        ordered = sort_users(found, sort)[: limit or None]
    except NoSuchOrder as error:
        raise refuse_input(error) from error
    del found.queues[:], found.users[:]
    found.users.extend(ordered)
    echo_json(found)
