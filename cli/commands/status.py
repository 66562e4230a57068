"""Commands ``kornel status``, ``dump`` and ``ask show``: the state of a core, or of one ask."""

from __future__ import annotations

from dataclasses import dataclass
from time import time_ns
from typing import Annotated

import typer

from kornel.cli.asking import Core, ManagerCore, PartitionCore, asks_core
from kornel.cli.client.connection import DUMP_TIMEOUT_S
from kornel.cli.options import Timeout
from kornel.cli.terminal import echo_json
from kornel.cli.text.status import render_explanation, render_status
from kornel.v1.status_pb2 import ExplainAskRequest, GetStateDumpRequest, GetStatusRequest
from kornel.v1.status_pb2_grpc import StatusServiceStub

ask_app = typer.Typer(help="Show single asks.", no_args_is_help=True)


@dataclass(frozen=True)
class _StatusCore(Core):
    partition: Annotated[str, typer.Option(help="Only this partition; empty means all.")] = ""
    manager: Annotated[
        str, typer.Option("--manager", metavar="RM_ID", help="Only this resource manager; empty means all.")
    ] = ""
    as_json: Annotated[bool, typer.Option("--json", help="Print kornel.v1.GetStatusResponse as JSON.")] = False


@asks_core()
def status(
    audit: Annotated[
        bool, typer.Option(help="Also check the books; scheduling stops until the check is done.")
    ] = False,
    *,
    core: _StatusCore,
) -> None:
    """Show a summary of a core: its shim, partitions, queues, users and drained nodes.

    Exits 1 when no core answers.
    """
    request = GetStatusRequest(partition=core.partition, audit=audit, rm_id=core.manager)
    found = core.call(StatusServiceStub(core.channel).GetStatus, request)
    core.show(found, lambda: render_status(found, time_ns()))


@dataclass(frozen=True)
class _DumpCore(ManagerCore):
    as_json: Annotated[bool, typer.Option("--json", help="Has no effect: a dump is JSON in any case.")] = True
    timeout: Timeout = DUMP_TIMEOUT_S


@asks_core()
def dump(core: _DumpCore) -> None:
    """Print the full state of a core and its shim as one JSON object, for a bug report.

    Exits 1 when no core answers.
    """
    request = GetStateDumpRequest(rm_id=core.manager)
    echo_json(core.call(StatusServiceStub(core.channel).GetStateDump, request).json)


@dataclass(frozen=True)
class _AskCore(PartitionCore):
    as_json: Annotated[bool, typer.Option("--json", help="Print kornel.v1.ExplainAskResponse as JSON.")] = False


@ask_app.command("show")
@asks_core()
def ask_show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the ask or allocation.")], *, core: _AskCore
) -> None:
    """Show the state of an ask and what it waits for.

    Exits 1 when the core does not know the ask.
    """
    request = ExplainAskRequest(partition=core.partition, allocation_key=key)
    found = core.call(StatusServiceStub(core.channel).ExplainAsk, request)
    core.show(found, lambda: render_explanation(key, found, time_ns()))
