"""Options and exit statuses that the commands of ``kornel`` share."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from core.client import calls as client

DEFAULT_ADDRESS: Final = "127.0.0.1:50051"
DEFAULT_REST_ADDRESS: Final = "127.0.0.1:9080"
EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2

Address = Annotated[
    str,
    typer.Option(
        "--grpc",
        "--core",
        metavar="ADDR",
        envvar="KORNEL_ADDRESS",
        help="Where the core listens: host:port or unix:path.",
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the core's answer as JSON.")]
Partition = Annotated[str, typer.Option(help="Its partition; empty means default.")]

DEFAULT_TIMEOUT_S: Final = client.DEFAULT_TIMEOUT_S


def failed(error: Exception) -> typer.Exit:
    """Say what went wrong; to be raised."""
    typer.echo(str(error), err=True)
    return typer.Exit(EXIT_FAILED)


def echo_json(message: Message) -> None:
    """Print *message* with all its fields."""
    typer.echo(MessageToJson(message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True))
