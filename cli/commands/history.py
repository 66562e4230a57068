"""``kornel history``: shows stored records, also from before the last restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time_ns
from typing import Annotated, Final, TypeVar

import typer
from google.protobuf.message import Message

from kornel.cli.asking import Core, asks_core
from kornel.cli.moments import SECOND_NS, On, Since, Until, read_range
from kornel.cli.options import EXIT_FAILED, Timeout, Types, refuse_input
from kornel.cli.suggestions import suggest_names
from kornel.cli.terminal import echo_json, show_text
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
from kornel.v1.history_pb2_grpc import HistoryServiceStub

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

Partition = Annotated[str, typer.Option(help="Only this partition; empty means all.")]
Application = Annotated[str, typer.Option("--app", help="Only this application.")]
Queue = Annotated[str, typer.Option(help="Only this queue and those below.")]


@dataclass(frozen=True)
class HistoryCore(Core):
    """A core with a history."""

    timeout: Timeout = TIMEOUT_S


@dataclass(frozen=True)
class PastCore(HistoryCore):
    """A core with a history, and the time that is meant."""

    since: Since = ""
    until: Until = ""
    on: On = ""

    def read_range(self) -> tuple[int, int]:
        """Returns the first and last moment in nanoseconds; 0 where there is no bound. Exits for a bad option."""
        return read_range(self.since, self.until, self.on)


@dataclass(frozen=True)
class PastRecords(PastCore):
    """A core with a history, and how many records are shown."""

    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Show at most this many records, the newest; 0: all.")
    ] = 100

    def make_page(self) -> pb.HistoryPage:
        """Returns the range as a part of a request. Exits for a bad option."""
        since_ns, until_ns = self.read_range()
        return pb.HistoryPage(since_ns=since_ns, until_ns=until_ns)


@history_app.command("apps")
@asks_core()
def apps(
    partition: Partition = "",
    app: Application = "",
    queue: Queue = "",
    user: Annotated[str, typer.Option(help="Only applications of this user.")] = "",
    state: Annotated[str, typer.Option(help="Only changes to this state.")] = "",
    *,
    core: PastRecords,
) -> None:
    """List the states that applications entered, the newest first."""
    request = pb.ListPastApplicationsRequest(
        page=core.make_page(), partition=partition, application_id=app, queue=queue, user=user, state=state
    )
    found = core.read_list(HistoryServiceStub(core.channel).ListPastApplications, request, "applications", core.limit)
    _show_list(core, found.applications, render_applications)


@history_app.command("preemptions")
@asks_core()
def preemptions(
    partition: Partition = "",
    app: Application = "",
    queue: Queue = "",
    kind: Annotated[str, typer.Option(help="Only this kind of preemption, as the list names it.")] = "",
    outcome: Annotated[str, typer.Option(help="Only this outcome, such as TRIGGERED.")] = "",
    node: Annotated[str, typer.Option(help="Only on this node.")] = "",
    user: Annotated[str, typer.Option(help="Only what this user lost or gained.")] = "",
    resource: Annotated[str, typer.Option("--type", help="Only victims that held some of this resource type.")] = "",
    by: Annotated[
        str,
        typer.Option("--sum", metavar="BY", help="Sum up who took how much from whom: by queue, user or app."),
    ] = "",
    *,
    core: PastRecords,
) -> None:
    """List preempted allocations: for whom, by which kind of preemption, and whether they left; the newest first.

    With --sum: sentences such as "root.b took 14 allocations from root.a", for the whole range.

    Exits 2 for an unknown kind, outcome or sum.
    """
    _require_choice("--sum", by, tuple(_PARTIES))
    request = pb.ListPreemptionsRequest(
        page=core.make_page(),
        partition=partition,
        application_id=app,
        queue=queue,
        kind=kind,
        outcome=outcome.upper(),
        node_id=node,
    )
    if by:
        if user or resource:
            raise refuse_input("--sum adds up all users and types: give it without --user and --type")
        summed = pb.SumPreemptionsRequest(preemptions=request, by=_PARTIES[by])
        sums = core.call(HistoryServiceStub(core.channel).SumPreemptions, summed)
        core.show(sums, lambda: render_sums(sums))
        return

    def is_wanted(one: pb.PreemptionRecord) -> bool:
        return user in ("", one.for_user, one.victim.user) and (
            not resource or one.victim.resources.get(resource, 0) > 0
        )

    most = 0 if user or resource else core.limit
    found = core.read_list(HistoryServiceStub(core.channel).ListPreemptions, request, "preemptions", most)
    _show_list(core, list(filter(is_wanted, found.preemptions))[: core.limit or None], render_preemptions)


@history_app.command("events")
@asks_core()
def events(
    kind: Annotated[str, typer.Option("--type", help="request, app, node, queue or usergroup.")] = "",
    about: Annotated[str, typer.Option("--object", metavar="ID", help="Only events about this object.")] = "",
    reference: Annotated[str, typer.Option(metavar="ID", help="Only events that concern this too.")] = "",
    *,
    core: PastRecords,
) -> None:
    """List events, the newest first."""
    request = pb.ListEventsRequest(
        page=core.make_page(), type=_event_type(kind), object_id=about, reference_id=reference
    )
    found = core.read_list(HistoryServiceStub(core.channel).ListEvents, request, "events", core.limit)
    _show_list(core, found.events, render_events)


@history_app.command("configs")
@asks_core()
def configs(
    applied: Annotated[bool, typer.Option("--applied", help="Only configurations that came into force.")] = False,
    text: Annotated[bool, typer.Option("--text", help="With --json: print the texts too.")] = False,
    *,
    core: PastRecords,
) -> None:
    """List the configurations that came into force or were refused, the newest first."""
    request = pb.ListConfigurationsRequest(page=core.make_page(), applied_only=applied, with_config=text)
    found = core.read_list(HistoryServiceStub(core.channel).ListConfigurations, request, "configurations", core.limit)
    _show_list(core, found.configurations, render_configurations)


@history_app.command("usage")
@asks_core()
def usage(
    queue: Annotated[str, typer.Argument(metavar="[QUEUE]", help="The queue; by default the root.")] = ROOT,
    points: Annotated[
        int, typer.Option(min=1, max=2_000, help="Rows to show; the minutes between two of them are averaged.")
    ] = 24,
    types: Types = None,
    partition: Annotated[str, typer.Option(help="The partition.")] = "default",
    *,
    core: PastCore,
) -> None:
    """Show how full a queue was: its usage, guarantee and max, the oldest first.

    A bar is as long as the queue's max; of a queue without one, as long as the cluster. Exits 2 for a bad option.
    """
    since_ns, until_ns = core.read_range()
    if not since_ns:
        since_ns = (until_ns or time_ns()) - DAY_NS
    request = pb.ListUsageRequest(
        queue=queue, since_ns=since_ns, until_ns=until_ns, partition=partition, point_count=points
    )
    method = HistoryServiceStub(core.channel).ListUsage
    found = core.call(method, request).points
    request.queue = ROOT
    cluster = found if queue == ROOT or core.as_json else core.call(method, request).points
    _show_list(core, found, lambda points: render_usage(queue, points, cluster, terminal_strokes(), types or ()))


@history_app.command("status")
@asks_core()
def status(core: HistoryCore) -> None:
    """Show the state of the history. Exits 1 if it is off or does not work."""
    found = core.call(HistoryServiceStub(core.channel).GetHistoryStatus, pb.GetHistoryStatusRequest())
    core.show(found, lambda: render_history_status(found, time_ns()))
    if not found.enabled or found.problem:
        raise typer.Exit(EXIT_FAILED)


def _show_list(core: Core, found: Sequence[RecordT], render: Callable[[Sequence[RecordT]], str]) -> None:
    """Prints *found*: a table, or a JSON object on each line."""
    if not core.as_json:
        show_text(render(found))
        return
    for each in found:
        echo_json(each, indent=None)


def _require_choice(option: str, given: str, choices: Sequence[str]) -> None:
    """Exits unless *given* is empty or one of *choices*."""
    if given and given not in choices:
        raise refuse_input(f"{option}: {given!r} is none of {', '.join(choices)}{suggest_names(given, choices)}")


def _event_type(name: str) -> int:
    names = {"": 0, "request": 1, "app": 2, "node": 3, "queue": 4, "usergroup": 5}
    if name.lower() not in names:
        raise refuse_input(f"--type: {name!r} is none of request, app, node, queue and usergroup")
    return names[name.lower()]
