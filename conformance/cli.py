"""``kornel-conformance``: the contract cases against a running core."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import grpc
import grpc.aio
import typer
from rich.console import Console
from rich.table import Table
from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc

from conformance import configs
from conformance.bench import RM
from conformance.case import Case, all_cases
from conformance.clock import DEFAULT_PATIENCE_S, SLOW_PATIENCE_S, RealClock
from conformance.known_gaps import GAPS
from conformance.runner import DEFAULT_DEADLINE_S, DEFAULT_SETTLE_S, Result, Settings, Verdict, judged, run_case, select

EXIT_FAILED: Final = 1
EXIT_UNUSABLE: Final = 2
CONNECT_TIMEOUT_S: Final = 10.0

_STYLES: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.SKIP: "yellow",
    Verdict.GAP: "cyan",
}


class CoreUnusable(Exception):
    """There is nothing at the address that cases can be run against."""


def run(
    core: Annotated[str, typer.Option(help="Address of the core.", metavar="HOST:PORT")] = "127.0.0.1:50051",
    case: Annotated[list[int] | None, typer.Option(help="Only this case; may be repeated.", metavar="N")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Only this group; may be repeated.")] = None,
    slow: Annotated[bool, typer.Option("--slow", help="Also the cases that wait for half a minute.")] = False,
    expect_gaps: Annotated[
        bool,
        typer.Option("--expect-gaps", help="Let the known gaps of Kornel's own core fail, and nothing else."),
    ] = False,
    settle: Annotated[
        float, typer.Option(help="Seconds to listen to silence; more is surer.", min=0.0)
    ] = DEFAULT_SETTLE_S,
    deadline: Annotated[
        float, typer.Option(help="Seconds that an expected answer may take.", min=0.1)
    ] = DEFAULT_DEADLINE_S,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the cases and run none.")] = False,
) -> None:
    """Run the contract cases of si.v1 against a core that serves no other resource manager.

    Exit status: 0 if no case failed, 1 if one did, 2 if there was nothing to run them against.
    """
    try:
        chosen = select(all_cases(), case or (), group or ())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if listing:
        for each in chosen:
            typer.echo(f"{each.number:>3}  {each.group:<13} {each.title}")
        return
    clock = RealClock(SLOW_PATIENCE_S if slow else DEFAULT_PATIENCE_S)
    gaps = GAPS if expect_gaps else {}
    try:
        results = asyncio.run(_run(core, chosen, clock, Settings(deadline, settle), gaps))
    except CoreUnusable as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(EXIT_UNUSABLE) from None
    if as_json:
        typer.echo(json.dumps([_plain(result) for result in results], indent=2))
    else:
        _print(results)
    if any(result.verdict is Verdict.FAIL for result in results):
        raise typer.Exit(EXIT_FAILED)


def main() -> None:
    """Entry point of the command."""
    typer.run(run)


async def _run(
    address: str, cases: Sequence[Case], clock: RealClock, settings: Settings, gaps: Mapping[int, str]
) -> list[Result]:
    await _usable(address)
    return [judged(await run_case(each, address, clock, settings), gaps) for each in cases]


async def _usable(address: str) -> None:
    """Raises CoreUnusable unless a core at *address* lets the kit register."""
    request = si.RegisterResourceManagerRequest(rmID=RM, config=configs.BASIC)
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            await si_pb2_grpc.SchedulerStub(channel).RegisterResourceManager(
                request, timeout=CONNECT_TIMEOUT_S, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            raise CoreUnusable(f"cannot register at {address}: {error.code().name} {error.details()}") from None


def _plain(result: Result) -> dict[str, object]:
    return {
        "case": result.case.number,
        "group": result.case.group,
        "title": result.case.title,
        "verdict": result.verdict.value,
        "reason": result.reason,
    }


def _print(results: Sequence[Result]) -> None:
    table = Table("case", "group", "title", "verdict", "reason", box=None, pad_edge=False)
    for result in results:
        style = _STYLES[result.verdict]
        table.add_row(
            str(result.case.number),
            result.case.group,
            result.case.title,
            f"[{style}]{result.verdict}[/]",
            result.reason.replace("[", r"\["),
        )
    console = Console()
    console.print(table)
    counts = Counter(result.verdict for result in results)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]) or "no case")
