"""Command ``kornel health``: shows whether a core serves, and the results of its own checks."""

from __future__ import annotations

from typing import Annotated

import typer

from kornel.cli.client import calls as client
from kornel.cli.client.reading import Reader
from kornel.cli.options import DEFAULT_ADDRESS, DEFAULT_TIMEOUT_S, EXIT_FAILED, Address, Timeout, report_failure
from kornel.cli.terminal import echo_json, echo_line, echo_text
from kornel.cli.text.cluster import render_health


def health(
    grpc: Address = DEFAULT_ADDRESS,
    checks: Annotated[bool, typer.Option("--checks", help="Show the core's checks of its own state.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the checks, kornel.v1.GetHealthReportResponse, as JSON.")
    ] = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Print the health of a core. Exits 0 if it is SERVING, or with --checks if all checks succeed; otherwise 1."""
    try:
        well = _show_checks(grpc, timeout, as_json=as_json) if checks or as_json else _show_serving(grpc, timeout)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if not well:
        raise typer.Exit(EXIT_FAILED)


def _show_serving(address: str, timeout_s: float) -> bool:
    said = client.check_health(address, timeout_s)
    echo_line(said)
    return said == "SERVING"


def _show_checks(address: str, timeout_s: float, *, as_json: bool) -> bool:
    with Reader(address, timeout_s) as reader:
        report = reader.health()
    if as_json:
        echo_json(report)
    else:
        echo_text(render_health(report))
    return report.healthy
