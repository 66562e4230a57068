"""``kornel events``: shows past events of a core, and follows new ones."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from kornel.cli.asking import Core, asks_core
from kornel.cli.client.events import StreamBroken, watch
from kornel.cli.options import refuse_input
from kornel.cli.terminal import echo_json, echo_text, print_error
from kornel.cli.text.documents import message_values
from kornel.cli.text.events import render_event
from kornel.si.v1.si_pb2 import EventRecord
from kornel.v1 import events_pb2 as pb

DEFAULT_NEWEST: Final = 50
EVERY_EVENT: Final = 2**31 - 1
PAUSE_S: Final = 1.0
"""The pause before a broken stream is opened again."""

_SINCE: Final = re.compile(r"(?:([0-9a-fA-F-]{1,64}):)?([0-9]{1,19})", re.ASCII)
_TYPES: Final = tuple(name for name, number in EventRecord.Type.items() if number)


@dataclass(frozen=True)
class _Core(Core):
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per line: kornel.v1.Event, and the instance.")
    ] = False


@asks_core()
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with every new event until Ctrl-C.")] = False,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="[INSTANCE:]ID",
            help="Begin with this event instead of the newest ones. With INSTANCE, as printed by --json, a restart of"
            " the core in between is noticed.",
        ),
    ] = "",
    newest: Annotated[
        int,
        typer.Option(
            "--newest", "-n", min=0, metavar="COUNT", help="Begin with this many of the newest matching events."
        ),
    ] = DEFAULT_NEWEST,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help=f"Only events of this type; repeatable. {', '.join(_TYPES)}."),
    ] = None,
    thing: Annotated[
        str, typer.Option("--object", metavar="PREFIX", help="Only events about objects with such an ID.")
    ] = "",
    application: Annotated[
        str, typer.Option("--app", metavar="PREFIX", help="Only events about applications with such an ID.")
    ] = "",
    queue: Annotated[str, typer.Option(metavar="PATH", help="Only events in this queue or below.")] = "",
    node: Annotated[str, typer.Option(metavar="PREFIX", help="Only events about nodes with such an ID.")] = "",
    *,
    core: _Core,
) -> None:
    """Show the events that the core keeps, and with --follow also new ones.

    A stream that breaks is resumed where it ended. Events that were lost are reported on standard error.

    Exits 1 when no core answers, 2 for a bad option.
    """
    request = pb.WatchEventsRequest(stored_only=not follow)
    if since:
        request.resume.CopyFrom(_parse_cursor(since))
    else:
        request.newest = newest
    wanted = pb.EventFilter(
        types=[_parse_type(name) for name in kind or []],
        object_prefix=thing,
        application_prefix=application,
        queue=queue,
        node_prefix=node,
    )
    if wanted != pb.EventFilter():
        request.filter.CopyFrom(wanted)
    try:
        if newest and not since and request.HasField("filter"):
            _show_newest(core, request, newest)
            if not follow:
                return
        _follow_events(core, request)
    except KeyboardInterrupt:
        return


def _show_newest(core: Core, request: pb.WatchEventsRequest, newest: int) -> None:
    """Prints the last *newest* of the kept events that pass the filter, and sets *request* to continue after them.

    The core counts events before it filters them, so all kept events are read.
    """
    stored = pb.WatchEventsRequest()
    stored.CopyFrom(request)
    stored.stored_only, stored.newest = True, EVERY_EVENT
    found: deque[pb.Event] = deque(maxlen=newest)
    for response in watch(core.grpc, stored, core.timeout):
        if response.HasField("opened"):
            request.resume.instance = response.opened.instance
        found.extend(response.events)
        request.resume.next_id = response.next_id
    for event in found:
        _print_event(event, request.resume.instance, as_json=core.as_json)


def _follow_events(core: Core, request: pb.WatchEventsRequest) -> None:
    """Print the events that arrive, and resume the stream whenever it breaks after it began."""
    began, timeout_s = False, core.timeout
    while True:
        try:
            for response in watch(core.grpc, request, timeout_s, patient=began):
                _print_response(response, request, as_json=core.as_json)
            return
        except StreamBroken as broken:
            print_error(f"{broken}; trying again")
        time.sleep(PAUSE_S)
        began = True
        timeout_s = max(timeout_s, 60.0)


def _print_response(response: pb.WatchEventsResponse, request: pb.WatchEventsRequest, *, as_json: bool) -> None:
    """Print *response*, and set *request* to continue after it."""
    if response.HasField("opened"):
        opened = response.opened
        if opened.restarted:
            print_error("the core was restarted: the last events before that are lost, and IDs begin at 0 again")
        request.resume.instance = opened.instance
    if response.HasField("gap"):
        gap = response.gap
        print_error(f"events {gap.first_id} to {gap.end_id - 1} are lost: the core no longer keeps them")
    for event in response.events:
        _print_event(event, request.resume.instance, as_json=as_json)
    request.resume.next_id = response.next_id


def _print_event(event: pb.Event, instance: str, *, as_json: bool) -> None:
    if as_json:
        echo_json(json.dumps({"instance": instance, **message_values(event)}))
    else:
        echo_text(render_event(event))


def _parse_cursor(since: str) -> pb.EventCursor:
    found = _SINCE.fullmatch(since)
    if found is None or int(found[2]) >= 2**63:
        raise refuse_input(f"--since: {since!r} is not ID or INSTANCE:ID, for instance 4711")
    return pb.EventCursor(instance=found[1] or "", next_id=int(found[2]))


def _parse_type(name: str) -> EventRecord.Type.ValueType:
    if name.upper() not in _TYPES:
        raise refuse_input(f"--type: {name!r} is not one of {', '.join(_TYPES)}")
    return EventRecord.Type.Value(name.upper())
