"""Options and exit statuses that the commands of ``kornel`` share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kornel.cli.client import connection
from kornel.cli.terminal import print_error

DEFAULT_ADDRESS: Final = "127.0.0.1:50051"
EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2
DEFAULT_TIMEOUT_S: Final = connection.DEFAULT_TIMEOUT_S

Address = Annotated[
    str,
    typer.Option(
        "--grpc",
        "--core",
        metavar="ADDR",
        envvar="KORNEL_ADDRESS",
        help="Where the core listens: host:port or unix:path; of several that share a journal, all, with commas between"
        " them: the leader is asked.",
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the core's answer as JSON.")]
Partition = Annotated[str, typer.Option(help="Partition of the object; empty means default.")]
ManagerName = Annotated[
    str,
    typer.Option("--manager", metavar="RM_ID", help="Resource manager; needed if several are registered."),
]


def report_failure(error: Exception) -> typer.Exit:
    """Print *error*, and return the exit to be raised."""
    print_error(error)
    return typer.Exit(EXIT_FAILED)
