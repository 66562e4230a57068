"""Command ``kornel users``: shows users and how much each holds."""

from __future__ import annotations

from typing import Annotated

import typer

from kornel.cli.client import calls as client
from kornel.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    EXIT_BAD_INPUT,
    Address,
    AsJson,
    Partition,
    Timeout,
    report_failure,
)
from kornel.cli.terminal import echo_json, print_error, show_text
from kornel.cli.text.users import NoSuchOrder, render_users, sort_users

Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="BY",
        help="A resource type such as vcore, apps, or name; by default the largest share of the cluster.",
    ),
]


def users(
    sort: Sort = "",
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="Show no more than this; 0: all.")] = 0,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show users and what they hold, those who hold most first.

    With --json: kornel.v1.PartitionStatus without its queues. Exits 1 if no core answers, 2 if the order is not known.
    """
    try:
        found = client.fetch_status(grpc, partition or "default", timeout).partitions[0]
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    try:
        if not as_json:
            show_text(render_users(found, sort, limit))
            return
        ordered = sort_users(found, sort)[: limit or None]
    except NoSuchOrder as error:
        print_error(error)
        raise typer.Exit(EXIT_BAD_INPUT) from error
    del found.queues[:], found.users[:]
    found.users.extend(ordered)
    echo_json(found)
