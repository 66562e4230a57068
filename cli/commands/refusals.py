"""``kornel refusals``: shows what the core refused lately, and why."""

from __future__ import annotations

from enum import StrEnum
from time import time_ns
from typing import Annotated

import typer

from kornel.cli.client import calls as client
from kornel.cli.client.reading import Reader
from kornel.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    Address,
    AsJson,
    Timeout,
    report_failure,
)
from kornel.cli.terminal import echo_json, show_text
from kornel.cli.text.refusals import render_refusals
from kornel.v1 import read_pb2 as pb


class Kind(StrEnum):
    """The kinds of things that are refused."""

    ASK = "ask"
    APPLICATION = "application"
    NODE = "node"
    CONFIGURATION = "configuration"


def refusals(
    kind: Annotated[Kind | None, typer.Option("--kind", help="Show only this kind.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="Show no more than this; 0: all.")] = 50,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Annotated[str, typer.Option(help="Show only refusals in this partition.")] = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the asks, applications, nodes and configurations that were refused lately, the newest first.

    A core keeps some hundreds of each kind. Exits 1 if no core answers.
    """
    wanted = pb.RefusalKind.Value(f"REFUSAL_KIND_{kind.name}") if kind is not None else pb.REFUSAL_KIND_UNSPECIFIED
    try:
        with Reader(grpc, timeout) as reader:
            found = reader.list_refusals(pb.ListRefusalsRequest(partition=partition, kind=wanted, limit=limit))
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        show_text(render_refusals(found, time_ns()))
