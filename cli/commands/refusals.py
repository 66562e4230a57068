"""``kornel refusals``: shows what the core refused lately, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from time import time_ns
from typing import Annotated

import typer

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.text.refusals import render_refusals
from kornel.v1 import read_pb2 as pb
from kornel.v1.read_pb2_grpc import ReadServiceStub


class Kind(StrEnum):
    """The kinds of things that are refused."""

    ASK = "ask"
    APPLICATION = "application"
    NODE = "node"
    CONFIGURATION = "configuration"


@dataclass(frozen=True)
class _Core(PartitionCore):
    partition: Annotated[str, typer.Option(help="Show only refusals in this partition.")] = ""


@asks_core()
def refusals(
    kind: Annotated[Kind | None, typer.Option("--kind", help="Show only this kind.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="Show no more than this; 0: all.")] = 50,
    *,
    core: _Core,
) -> None:
    """Show the asks, applications, nodes and configurations that were refused lately, the newest first.

    A core keeps some hundreds of each kind. Exits 1 if no core answers.
    """
    wanted = pb.RefusalKind.Value(f"REFUSAL_KIND_{kind.name}") if kind is not None else pb.REFUSAL_KIND_UNSPECIFIED
    request = pb.ListRefusalsRequest(partition=core.partition, kind=wanted, limit=limit)
    found = core.call(ReadServiceStub(core.channel).ListRefusals, request)
    core.show(found, lambda: render_refusals(found, time_ns()))
