"""Command ``kornel health``: shows whether a core serves, and the results of its own checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.cli.asking import Core, asks_core
from kornel.cli.options import EXIT_FAILED
from kornel.cli.terminal import echo_line
from kornel.cli.text.cluster import render_health
from kornel.v1.read_pb2 import GetHealthReportRequest
from kornel.v1.read_pb2_grpc import ReadServiceStub


@dataclass(frozen=True)
class _Core(Core):
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the checks, kornel.v1.GetHealthReportResponse, as JSON.")
    ] = False


@asks_core()
def health(
    checks: Annotated[bool, typer.Option("--checks", help="Show the core's checks of its own state.")] = False,
    *,
    core: _Core,
) -> None:
    """Print the health of a core. Exits 0 if it is SERVING, or with --checks if all checks succeed; otherwise 1."""
    if checks or core.as_json:
        report = core.call(ReadServiceStub(core.channel).GetHealthReport, GetHealthReportRequest())
        core.show(report, lambda: render_health(report))
        well = report.healthy
    else:
        check = HealthStub(core.channel).Check  # type: ignore[attr-defined]  # the type stubs leave it out
        answer: HealthCheckResponse = core.call(check, HealthCheckRequest())
        said = HealthCheckResponse.ServingStatus.Name(answer.status)
        echo_line(said)
        well = said == "SERVING"
    if not well:
        raise typer.Exit(EXIT_FAILED)
