"""``kornel-conformance``: the contract cases against a running core, and checks of a running shim."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import grpc
import grpc.aio
import typer
from rich.console import Console

from kornel.cli.terminal import VisibleGroup
from kornel.conformance import configs, report, rules
from kornel.conformance.case import Case, all_cases, select_cases
from kornel.conformance.clock import DEFAULT_PATIENCE_S, clock_of
from kornel.conformance.connection import RM, Settings
from kornel.conformance.gaps import OWN, judge_result, load_gaps
from kornel.conformance.outcome import Result
from kornel.conformance.runner import run_case
from kornel.conformance.shim.checks import select_checks
from kornel.conformance.shim.listener import Listener
from kornel.conformance.shim.process import CommandFailed
from kornel.conformance.shim.runner import DEFAULT_PATIENCE as SHIM_PATIENCE
from kornel.conformance.shim.runner import judge_shim
from kornel.conformance.shim.stage import Patience
from kornel.shared.visible import write_visibly
from kornel.shim_client.command_line import (
    Ca,
    Cert,
    Key,
    ServerName,
    TokenFile,
    Version,
    credentials_of,
    refuse_credentials,
)
from kornel.shim_client.credentials import CredentialsUnusable
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc

EXIT_FAILED: Final = 1
EXIT_UNREACHABLE: Final = 3
RETRY_S: Final = 0.1
SETTINGS: Final = Settings()

app = typer.Typer(
    cls=VisibleGroup,
    name="kornel-conformance",
    help="The contract of si.v1 as runnable cases: tests a core at an address, or a shim by its command."
    "\n\nExit status: 0 conforms, 1 does not, 2 wrong usage, 3 no core is reached or the shim does not start.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Gaps = Annotated[
    str | None,
    typer.Option(
        help=f"File (.toml, .yaml or lines of text) of what may fail, with reasons. {OWN!r}: Kornel's own list.",
        metavar="FILE",
    ),
]
Junit = Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.", metavar="FILE")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Listing = Annotated[bool, typer.Option("--list", help="List what is checked and run nothing.")]


class Unreachable(Exception):
    """The address has no core against which cases can be run."""


@app.callback()
def connect(
    context: typer.Context,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = "",
    _version: Version = False,
) -> None:
    """Read the credentials. ``core`` presents them to the core, and ``shim`` passes them to the shim."""
    context.obj = credentials_of(ca, cert, key, token_file, server_name)


@app.command()
def core(
    context: typer.Context,
    address: Annotated[str, typer.Option(help="Address of the core.", metavar="HOST:PORT")] = "127.0.0.1:50051",
    case: Annotated[
        list[str] | None, typer.Option(help="Only this case or range (73, 73-100); may be repeated.", metavar="N")
    ] = None,
    group: Annotated[list[str] | None, typer.Option(help="Only this group; may be repeated.")] = None,
    gaps: Gaps = None,
    junit: Junit = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds that an expected answer may take.", min=0.1)
    ] = SETTINGS.deadline_s,
    settle: Annotated[
        float, typer.Option(help="Seconds of silence that count as no answer; more is safer.", min=0.0)
    ] = SETTINGS.settle_s,
    patience: Annotated[
        float, typer.Option(help="Longest real wait per case, in seconds, for a core without a test clock.", min=0.0)
    ] = DEFAULT_PATIENCE_S,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Really wait for everything, even for three days.")
    ] = False,
    restart: Annotated[
        str,
        typer.Option(
            help="Command that kills the core (SIGKILL) and starts it again at the address, with the journal that it"
            " has. It has to end. Without it, the cases that need it are gaps.",
            metavar="COMMAND",
        ),
    ] = "",
    any_reason: Annotated[
        bool,
        typer.Option("--any-reason", help="Accept refusals whose reasons lack the contract's tokens."),
    ] = False,
    as_json: AsJson = False,
    listing: Listing = False,
) -> None:
    """Run the contract cases against a core that serves no other resource manager."""
    try:
        chosen = select_cases(all_cases(), case or (), group or ())
        excused = load_gaps(gaps) if gaps is not None else {}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if listing:
        report.print_list(Console(), chosen)
        return
    try:
        waiting = math.inf if real_time else patience
        settings = Settings(deadline, settle, context.obj, restart, any_reason)
        results, lost = asyncio.run(_run_cases(address, chosen, waiting, settings, excused))
    except CredentialsUnusable as error:
        raise refuse_credentials(error) from error
    if results:
        _report_results(results, "cases", "core", junit, as_json=as_json)
    if lost:
        raise _give_up(lost)
    _exit_by_results(results)


@app.command(context_settings={"ignore_unknown_options": True})
def shim(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Command that starts the shim; {address} in it and KORNEL_ADDRESS say where the core is."),
    ] = None,
    check: Annotated[list[str] | None, typer.Option(help="Only this check; may be repeated.", metavar="S1")] = None,
    gaps: Gaps = None,
    junit: Junit = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds that an expected reaction may take.", min=0.1)
    ] = SHIM_PATIENCE.deadline_s,
    settle: Annotated[
        float, typer.Option(help="Seconds of silence that count as no reaction.", min=0.0)
    ] = SHIM_PATIENCE.settle_s,
    start: Annotated[
        float, typer.Option(help="Seconds that the shim may take from its start to its registration.", min=0.1)
    ] = SHIM_PATIENCE.start_s,
    watch: Annotated[
        float,
        typer.Option(help="Seconds to watch a shim after a refusal, or if it has nothing to do.", min=0.0),
    ] = SHIM_PATIENCE.watch_s,
    log: Annotated[Path | None, typer.Option(help="Folder for what the shim prints.", metavar="DIR")] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM certificate chain; serve the shim with TLS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM private key of --tls-cert.")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-client-ca", metavar="FILE", help="Require a shim's certificate signed by one of these PEM CAs."
        ),
    ] = None,
    as_json: AsJson = False,
    listing: Listing = False,
) -> None:
    """Start a shim against a scripted core, once per session, and test what it does: shim -- COMMAND..."""
    try:
        chosen = select_checks(check or ())
        excused = load_gaps(gaps) if gaps is not None else {}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if listing:
        report.print_list(Console(), chosen)
        return
    if not command:
        raise typer.BadParameter("give the command that starts the shim: shim -- COMMAND...")
    if log is not None:
        log.mkdir(parents=True, exist_ok=True)
    try:
        door = Listener(tls_cert, tls_key, tls_client_ca, context.obj)
        found = asyncio.run(judge_shim(command, chosen, Patience(start, deadline, settle, watch), log, door))
    except CredentialsUnusable as error:
        raise refuse_credentials(error) from error
    except CommandFailed as error:
        raise _give_up(str(error)) from None
    results = [judge_result(result, excused) for result in found]
    _report_results(results, "checks", "shim", junit, as_json=as_json)
    _exit_by_results(results)


@app.command()
def rule(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="RULE", help="The rule as reports cite it: 8.2, protocol.md 8.2, protocol.md 16 DB-7."),
    ] = None,
    case: Annotated[
        str, typer.Option(help="Show the subject of this case, or check of a shim (S7), and its rule.", metavar="N")
    ] = "",
) -> None:
    """Print a rule that cases and checks cite."""
    try:
        if case:
            shown = _describe_case(case)
        elif words:
            shown = rules.show_rule(" ".join(words))
        else:
            raise rules.UnknownRule("name a rule, such as 8.2 or protocol.md 8.2, or give --case")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    report.print_rule(Console(), shown)


def main() -> None:
    """Run the command."""
    app()


def _describe_case(name: str) -> str:
    """Returns the title of case or check *name*, and the rule that it cites. Raises ValueError."""
    if name[:1].upper() == "S":
        (check,) = select_checks((name.upper(),))
        return f"{check.id}: {check.title} ({check.rule})\n\n{rules.show_rule(check.rule)}"
    if not name.isdecimal():
        raise ValueError(f"{name!r} is neither the number of a case nor that of a check")
    (one,) = select_cases(all_cases(), (name,))
    return f"{rules.show_case(one.number)}\n\n{rules.show_rule(one.rule)}"


def _report_results(results: Sequence[Result], noun: str, kind: str, junit: Path | None, *, as_json: bool) -> None:
    if junit is not None:
        report.write_junit(junit, results, f"conformance.{kind}")
    if as_json:
        typer.echo(report.as_json(results))
    else:
        report.print_report(Console(), results, noun)


def _exit_by_results(results: Sequence[Result]) -> None:
    """Raises Exit if a case or check failed."""
    if not report.nothing_failed(results):
        raise typer.Exit(EXIT_FAILED)


def _give_up(why: str) -> typer.Exit:
    typer.echo(write_visibly(f"error: {why}"), err=True)
    return typer.Exit(EXIT_UNREACHABLE)


async def _run_cases(
    address: str, cases: Sequence[Case], patience_s: float, settings: Settings, gaps: Mapping[str, str]
) -> tuple[list[Result], str]:
    """Returns the results of the cases that were run, and why the others were not; an empty text if all were."""
    results: list[Result] = []
    try:
        await _check_registration(address, settings)
        async with clock_of(address, patience_s, settings.credentials) as clock:
            for each in cases:
                results.append(judge_result(await run_case(each, address, clock, settings), gaps))
                await _check_registration(address, settings)
    except Unreachable as error:
        last = f"stopped after case {results[-1].case.id} ({results[-1].case.title}): " if results else ""
        return results, f"{last}{error}"
    return results, ""


async def _check_registration(address: str, settings: Settings) -> None:
    """Raises Unreachable if the kit cannot register with a core at *address* in time. Until then, a core that is
    ending may be started again."""
    request = si.RegisterResourceManagerRequest(rmID=RM, config=configs.BASIC)
    loop = asyncio.get_running_loop()
    give_up = loop.time() + settings.deadline_s
    async with settings.credentials.channel(address, ()) as channel:
        while True:
            try:
                await si_pb2_grpc.SchedulerStub(channel).RegisterResourceManager(
                    request, timeout=give_up - loop.time(), wait_for_ready=True
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE and loop.time() < give_up:
                    await asyncio.sleep(RETRY_S)
                    continue
                why = f"{error.code().name} {error.details()}"
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    connected = channel.get_state() is grpc.ChannelConnectivity.READY
                    why = "connected, but no answer" if connected else "no connection"
                    why += f" within {settings.deadline_s:g} s"
                raise Unreachable(f"cannot register at {address}: {why}") from None
            return
