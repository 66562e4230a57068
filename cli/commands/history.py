"""``kornel history``: shows stored records, also from before the last restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time_ns
from typing import Annotated, Final, TypeVar

import typer
from google.protobuf.message import Message

from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.client.history import HistoryClient
from kornel.cli.moments import SECOND_NS, On, Since, Until, read_range
from kornel.cli.options import DEFAULT_ADDRESS as ADDRESS
from kornel.cli.options import EXIT_BAD_INPUT, EXIT_FAILED, Address, AsJson, Timeout, report_failure
from kornel.cli.suggestions import suggest_names
from kornel.cli.terminal import echo_json, print_error, show_text
from kornel.cli.text.history import (
    render_applications,
    render_configurations,
    render_events,
    render_history_status,
    render_preemptions,
    render_sums,
)
from kornel.cli.text.screen import terminal_strokes
from kornel.cli.text.usage import render_usage
from kornel.v1 import history_pb2 as pb

history_app = typer.Typer(help="Show stored records, also from before the last restart.", no_args_is_help=True)

TIMEOUT_S: Final = 30.0
DAY_NS: Final = 86_400 * SECOND_NS
ROOT: Final = "root"
_PARTIES: Final = {
    "queue": pb.PREEMPTION_PARTY_UNSPECIFIED,
    "user": pb.PREEMPTION_PARTY_USER,
    "app": pb.PREEMPTION_PARTY_APPLICATION,
}

RecordT = TypeVar("RecordT", bound=Message)

Limit = Annotated[int, typer.Option("--limit", "-n", min=0, help="Show at most this many records, the newest; 0: all.")]
Partition = Annotated[str, typer.Option(help="Only this partition; empty means all.")]
Application = Annotated[str, typer.Option("--app", help="Only this application.")]
Types = Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Resource type to show; repeatable.")]
Queue = Annotated[str, typer.Option(help="Only this queue and those below.")]


@history_app.command("apps")
def apps(
    grpc: Address = ADDRESS,
    since: Since = "",
    until: Until = "",
    on: On = "",
    limit: Limit = 100,
    partition: Partition = "",
    app: Application = "",
    queue: Queue = "",
    user: Annotated[str, typer.Option(help="Only applications of this user.")] = "",
    state: Annotated[str, typer.Option(help="Only changes to this state.")] = "",
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """List the states that applications entered, the newest first."""
    request = pb.ListPastApplicationsRequest(
        page=_make_page(since, until, on), partition=partition, application_id=app, queue=queue, user=user, state=state
    )
    _show_records(grpc, timeout, lambda core: core.applications(request, limit), render_applications, as_json=as_json)


@history_app.command("preemptions")
def preemptions(
    grpc: Address = ADDRESS,
    since: Since = "",
    until: Until = "",
    on: On = "",
    limit: Limit = 100,
    partition: Partition = "",
    app: Application = "",
    queue: Queue = "",
    kind: Annotated[str, typer.Option(help="Only this kind of preemption, as the list names it.")] = "",
    outcome: Annotated[str, typer.Option(help="Only this outcome, such as TRIGGERED.")] = "",
    node: Annotated[str, typer.Option(help="Only on this node.")] = "",
    by: Annotated[
        str,
        typer.Option("--sum", metavar="BY", help="Sum up who took how much from whom: by queue, user or app."),
    ] = "",
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """List preempted allocations: for whom, by which kind of preemption, and whether they left; the newest first.

    With --sum: sentences such as "root.b took 14 allocations from root.a", for the whole range.

    Exits 2 for an unknown kind, outcome or sum.
    """
    _require_choice("--sum", by, tuple(_PARTIES))
    request = pb.ListPreemptionsRequest(
        page=_make_page(since, until, on),
        partition=partition,
        application_id=app,
        queue=queue,
        kind=kind,
        outcome=outcome.upper(),
        node_id=node,
    )
    if by:
        _show_sums(grpc, timeout, pb.SumPreemptionsRequest(preemptions=request, by=_PARTIES[by]), as_json=as_json)
        return
    _show_records(grpc, timeout, lambda core: core.preemptions(request, limit), render_preemptions, as_json=as_json)


@history_app.command("events")
def events(
    grpc: Address = ADDRESS,
    since: Since = "",
    until: Until = "",
    on: On = "",
    limit: Limit = 100,
    kind: Annotated[str, typer.Option("--type", help="request, app, node, queue or usergroup.")] = "",
    about: Annotated[str, typer.Option("--object", metavar="ID", help="Only events about this object.")] = "",
    reference: Annotated[str, typer.Option(metavar="ID", help="Only events that concern this too.")] = "",
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """List events, the newest first."""
    request = pb.ListEventsRequest(
        page=_make_page(since, until, on), type=_event_type(kind), object_id=about, reference_id=reference
    )
    _show_records(grpc, timeout, lambda core: core.events(request, limit), render_events, as_json=as_json)


@history_app.command("configs")
def configs(
    grpc: Address = ADDRESS,
    since: Since = "",
    until: Until = "",
    on: On = "",
    limit: Limit = 100,
    applied: Annotated[bool, typer.Option("--applied", help="Only configurations that came into force.")] = False,
    text: Annotated[bool, typer.Option("--text", help="With --json: print the texts too.")] = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """List the configurations that came into force or were refused, the newest first."""
    request = pb.ListConfigurationsRequest(page=_make_page(since, until, on), applied_only=applied, with_config=text)
    _show_records(
        grpc, timeout, lambda core: core.configurations(request, limit), render_configurations, as_json=as_json
    )


@history_app.command("usage")
def usage(
    queue: Annotated[str, typer.Argument(metavar="[QUEUE]", help="The queue; by default the root.")] = ROOT,
    grpc: Address = ADDRESS,
    since: Since = "",
    until: Until = "",
    on: On = "",
    points: Annotated[
        int, typer.Option(min=1, max=2_000, help="Rows to show; the minutes between two of them are averaged.")
    ] = 24,
    types: Types = None,
    partition: Annotated[str, typer.Option(help="The partition.")] = "default",
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show how full a queue was: its usage, guarantee and max, the oldest first.

    A bar is as long as the queue's max; of a queue without one, as long as the cluster. Exits 2 for a bad option.
    """
    since_ns, until_ns = read_range(since, until, on)
    if not since_ns:
        since_ns = (until_ns or time_ns()) - DAY_NS
    request = pb.ListUsageRequest(
        queue=queue, since_ns=since_ns, until_ns=until_ns, partition=partition, point_count=points
    )
    try:
        with HistoryClient(grpc, timeout) as core:
            found = core.list_usage(request)
            request.queue = ROOT
            cluster = found if queue == ROOT or as_json else core.list_usage(request)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        for point in found:
            echo_json(point, indent=None)
    else:
        show_text(render_usage(queue, found, cluster, terminal_strokes(), types or ()))


@history_app.command("status")
def status(grpc: Address = ADDRESS, as_json: AsJson = False, timeout: Timeout = TIMEOUT_S) -> None:
    """Show the state of the history. Exits 1 if it is off or does not work."""
    try:
        with HistoryClient(grpc, timeout) as core:
            found = core.status()
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        show_text(render_history_status(found, time_ns()))
    if not found.enabled or found.problem:
        raise typer.Exit(EXIT_FAILED)


def _show_records(
    address: str,
    timeout_s: float,
    ask: Callable[[HistoryClient], Sequence[RecordT]],
    render: Callable[[Sequence[RecordT]], str],
    *,
    as_json: bool,
) -> None:
    """Prints what *ask* returns: a table, or a JSON object on each line."""
    try:
        with HistoryClient(address, timeout_s) as core:
            found = ask(core)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if not as_json:
        show_text(render(found))
        return
    for record in found:
        echo_json(record, indent=None)


def _show_sums(address: str, timeout_s: float, request: pb.SumPreemptionsRequest, *, as_json: bool) -> None:
    try:
        with HistoryClient(address, timeout_s) as core:
            found = core.sum_preemptions(request)
    except CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        show_text(render_sums(found))


def _require_choice(option: str, given: str, choices: Sequence[str]) -> None:
    """Exits unless *given* is empty or one of *choices*."""
    if given and given not in choices:
        print_error(f"{option}: {given!r} is none of {', '.join(choices)}{suggest_names(given, choices)}")
        raise typer.Exit(EXIT_BAD_INPUT)


def _make_page(since: str, until: str, on: str) -> pb.HistoryPage:
    since_ns, until_ns = read_range(since, until, on)
    return pb.HistoryPage(since_ns=since_ns, until_ns=until_ns)


def _event_type(name: str) -> int:
    names = {"": 0, "request": 1, "app": 2, "node": 3, "queue": 4, "usergroup": 5}
    if name.lower() not in names:
        print_error(f"--type: {name!r} is none of request, app, node, queue and usergroup")
        raise typer.Exit(EXIT_BAD_INPUT)
    return names[name.lower()]
