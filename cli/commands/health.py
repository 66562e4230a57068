"""Command ``kornel health``: shows whether a core serves, and the results of its own checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from kornel.cli.asking import Core, asks_core
from kornel.cli.client import calls as client
from kornel.cli.client.reading import Reader
from kornel.cli.options import EXIT_FAILED
from kornel.cli.terminal import echo_json, echo_line, echo_text
from kornel.cli.text.cluster import render_health


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
        with Reader(core.grpc, core.timeout) as reader:
            report = reader.health()
        if core.as_json:
            echo_json(report)
        else:
            echo_text(render_health(report))
        well = report.healthy
    else:
        said = client.check_health(core.grpc, core.timeout)
        echo_line(said)
        well = said == "SERVING"
    if not well:
        raise typer.Exit(EXIT_FAILED)
