"""Shows what the history holds about work that has ended, or why it was refused, for ``kornel explain``."""

from __future__ import annotations

from time import time_ns
from typing import Final

from kornel.cli.asking import Core
from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.text.history import render_applications, render_events, render_preemptions
from kornel.cli.text.lines import join_lines
from kornel.cli.text.refusals import list_refused
from kornel.shared.visible import write_visibly
from kornel.v1 import history_pb2 as pb
from kornel.v1 import read_pb2 as read_pb
from kornel.v1.history_pb2_grpc import HistoryServiceStub
from kornel.v1.read_pb2_grpc import ReadServiceStub

MOST_RECORDS: Final = 20


def render_past(core: Core, name: str) -> str:
    """Returns what the history has about the application or allocation key *name*, newest first, or else why it was
    refused. The text is empty if nothing is known."""
    try:
        service = HistoryServiceStub(core.channel)
        about = pb.ListPastApplicationsRequest(application_id=name)
        states = core.read_list(service.ListPastApplications, about, "applications", MOST_RECORDS).applications
        lost = pb.ListPreemptionsRequest(application_id=name)
        preemptions = core.read_list(service.ListPreemptions, lost, "preemptions", MOST_RECORDS).preemptions
        concerned = pb.ListEventsRequest(reference_id=name)
        events = core.read_list(service.ListEvents, concerned, "events", MOST_RECORDS).events
    except CoreUnreachable:
        return _render_refused(core, name)
    shown = write_visibly(name)  # A line break in the name would look like the end of a line.
    parts = []
    if states:
        parts.append(f"{shown} has ended. Its states:\n{render_applications(states)}")
    if preemptions:
        parts.append(f"What it lost or gained by preemption:\n{render_preemptions(preemptions)}")
    if events and not states:
        parts.append(f"{shown} no longer exists. Its events:\n{render_events(events)}")
    return "\n\n".join(parts) or _render_refused(core, name)


def _render_refused(core: Core, name: str) -> str:
    """Returns when and why *name* was refused lately; empty: it was not."""
    try:
        found = core.call(ReadServiceStub(core.channel).ListRefusals, read_pb.ListRefusalsRequest())
    except CoreUnreachable:
        return ""
    refused = [each for each in found.refusals if name in (each.name, each.application_id)][:MOST_RECORDS]
    if not refused:
        return ""
    return join_lines([f"{write_visibly(name)} is unknown, and was refused:", *list_refused(refused, time_ns())])
