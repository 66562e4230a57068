"""Commands ``kornel queues``, ``apps``, ``nodes`` and ``claims``, which list the objects of a core."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import time_ns
from typing import Annotated, Final

import typer

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.client import explain as explain_client
from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.client.reading import Reader
from kornel.cli.options import EXIT_BAD_INPUT, Types, refuse_input
from kornel.cli.suggestions import suggest_applications, suggest_nodes, suggest_queues, suggesting_names
from kornel.cli.text.cluster import (
    queues_above,
    render_application,
    render_applications,
    render_claims,
    render_domains,
    render_node,
    render_nodes,
    render_queues,
    render_stranded,
    render_waits,
    sort_stranded,
)
from kornel.cli.text.explain import describe_blocker
from kornel.cli.text.screen import terminal_strokes
from kornel.v1 import explain_pb2 as explain_pb
from kornel.v1 import read_pb2 as pb

OBSTACLES_SHOWN: Final = 20
"""The most waiting applications of a list for which the core is asked what they wait for: each answer costs it a search
through all nodes."""

Limit = Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="The most entries to show; 0: all.")]


@asks_core()
def queues(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Only this queue and those below it.")] = "",
    types: Types = None,
    *,
    core: PartitionCore,
) -> None:
    """Show the queues as a tree: running applications, and how much of each max is used.

    The mark in a bar is the guarantee, +N is pending. Exits 1 when no core answers or there is no such queue.
    """
    with suggesting_names(path, lambda: suggest_queues(core)), Reader(core.grpc, core.timeout) as reader:
        found = reader.queues(core.partition, path)
        above = [] if core.as_json or not path else queues_above(reader.queues(core.partition).queues, path)
    core.show(found, lambda: render_queues(found.queues, terminal_strokes(), types or (), above))


@asks_core(bad_input=EXIT_BAD_INPUT)
def apps(
    application: Annotated[
        str, typer.Argument(metavar="[APP]", help="Only this application, with its asks and allocations.")
    ] = "",
    queue: Annotated[str, typer.Option(metavar="PATH", help="Only applications of this queue and those below.")] = "",
    user: Annotated[str, typer.Option(metavar="NAME", help="Only applications of this user.")] = "",
    state: Annotated[str, typer.Option(metavar="STATE", help="Only applications in this state, such as Running.")] = "",
    finished: Annotated[bool, typer.Option("--finished", help="Show applications that ended recently.")] = False,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="Show applications that were rejected recently.")
    ] = False,
    limit: Limit = 0,
    *,
    core: PartitionCore,
) -> None:
    """Show applications, and what the first ask of each waits for.

    Exits 1 when no core answers or there is no such application, 2 for a bad option.
    """
    if finished and rejected:
        raise refuse_input("--finished and --rejected show different lists: give one of them")
    kind = pb.APPLICATION_KIND_FINISHED if finished else pb.APPLICATION_KIND_UNSPECIFIED
    if rejected:
        kind = pb.APPLICATION_KIND_REJECTED
    wanted = pb.ListApplicationsRequest(partition=core.partition, queue=queue, user=user, state=state, kind=kind)
    with suggesting_names(application, lambda: suggest_applications(core)), Reader(core.grpc, core.timeout) as reader:
        found = reader.application(application, core.partition) if application else reader.applications(wanted, limit)
    if isinstance(found, pb.GetApplicationResponse):
        core.show(found, lambda: render_application(found, time_ns()))
    else:
        core.show(found, lambda: render_applications(found, time_ns(), _find_obstacles(core, found)))


@asks_core()
def nodes(
    node: Annotated[str, typer.Argument(metavar="[NODE]", help="Only this node, with all that runs there.")] = "",
    draining: Annotated[bool, typer.Option("--draining", help="Only nodes that take no new work.")] = False,
    by: Annotated[
        str, typer.Option("--by", metavar="LEVEL", help="Show domains of this level of the topology, such as rack.")
    ] = "",
    sort: Annotated[
        str,
        typer.Option("--sort", metavar="WHAT", help="stranded: most of what is free but fits no waiting ask first."),
    ] = "",
    types: Types = None,
    limit: Limit = 0,
    *,
    core: PartitionCore,
) -> None:
    """Show nodes and how full they are, or with --by, domains such as racks and how full they are.

    With --sort stranded: what is free of the types that waiting asks want, on nodes where none of these asks fits, with
    sums by type and by domain. Exits 1 when no core answers or there is no such node or level.
    """
    if sort and (sort != "stranded" or node or by or draining):
        raise refuse_input("--sort knows stranded only, and shows all nodes: give it without NODE, --by and --draining")
    if sort:
        with Reader(core.grpc, core.timeout) as reader:
            nodes = reader.nodes(pb.ListNodesRequest(partition=core.partition, stranded=True))
        core.show(sort_stranded(nodes, limit, types), lambda: render_stranded(nodes, limit, types))
        return
    if by:
        if node or draining:
            raise refuse_input("--by shows whole domains: give it without NODE and --draining")
        with Reader(core.grpc, core.timeout) as reader:
            domains = reader.list_domains(pb.ListDomainsRequest(partition=core.partition, level=by), limit)
        core.show(domains, lambda: render_domains(domains, by, terminal_strokes(), types or ()))
        return
    wanted = pb.ListNodesRequest(partition=core.partition, only_draining=draining)
    with suggesting_names(node, lambda: suggest_nodes(core)), Reader(core.grpc, core.timeout) as reader:
        found = reader.node(node, core.partition) if node else reader.nodes(wanted, limit)
    if isinstance(found, pb.GetNodeResponse):
        core.show(found, lambda: render_node(found, time_ns()))
    else:
        core.show(found, lambda: render_nodes(found, terminal_strokes(), types or ()))


@asks_core(bad_input=EXIT_BAD_INPUT)
def claims(
    application: Annotated[
        str, typer.Option("--app", metavar="APP", help="Only claims for asks of this application.")
    ] = "",
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Only claims on this node.")] = "",
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="Only firm, or only saved claims.")] = "",
    limit: Limit = 0,
    *,
    core: PartitionCore,
) -> None:
    """Show the room that is kept for waiting asks, why, since when, and what is still missing.

    Exits 1 when no core answers, 2 for a bad option.
    """
    wanted = pb.ListClaimsRequest(partition=core.partition, node_id=node, application_id=application, kind=kind.lower())
    with Reader(core.grpc, core.timeout) as reader:
        found = reader.list_claims(wanted, limit)
    core.show(found, lambda: render_claims(found, time_ns()))


@asks_core(bad_input=EXIT_BAD_INPUT)
def waits(
    by: Annotated[str, typer.Option("--by", metavar="WHAT", help="Sum up by queue or by user.")] = "",
    queue: Annotated[str, typer.Option(metavar="PATH", help="Only applications of this queue and those below.")] = "",
    user: Annotated[str, typer.Option(metavar="NAME", help="Only applications of this user.")] = "",
    limit: Limit = OBSTACLES_SHOWN,
    *,
    core: PartitionCore,
) -> None:
    """Show who waits, the longest first, and what keeps the oldest ask of each from being placed.

    With --json: the applications, which --by would sum up. Exits 1 when no core answers, 2 for a bad option.
    """
    if by not in ("", "queue", "user"):
        raise refuse_input(f"--by is {by!r}, neither queue nor user")
    if by and core.as_json:
        raise refuse_input("--by sums up in a table: give it without --json")
    wanted = pb.ListApplicationsRequest(partition=core.partition, queue=queue, user=user)
    with Reader(core.grpc, core.timeout) as reader:
        found = reader.applications(wanted)
    longest = sorted((each for each in found.applications if each.ask_count), key=lambda each: each.oldest_ask_ns)
    waiting = pb.ListApplicationsResponse(applications=longest[: limit or None])
    core.show(waiting, lambda: render_waits(longest, by, limit, time_ns(), partial(_explain_oldest, core)))


def _explain_oldest(core: PartitionCore, application_ids: Sequence[str]) -> dict[str, str]:
    """Returns, by application ID, what keeps the oldest ask of each of the first applications from being placed."""
    obstacles: dict[str, str] = {}
    with Reader(core.grpc, core.timeout) as reader:
        for application_id in application_ids[:OBSTACLES_SHOWN]:
            try:
                asks = reader.application(application_id, core.partition).asks
                oldest = min(asks, key=lambda ask: ask.created_ns, default=None)
                if oldest is not None:
                    report = explain_client.explain(core.grpc, oldest.key, core.partition, core.timeout).ask
                    obstacles[application_id] = _describe_first(report.blockers) or "-"
            except CoreUnreachable:
                continue  # The application or its ask has ended meanwhile.
    return obstacles | dict.fromkeys(application_ids[OBSTACLES_SHOWN:], "not asked")


def _find_obstacles(core: PartitionCore, found: pb.ListApplicationsResponse) -> dict[str, str]:
    """Returns, by application ID, what keeps the first ask of each of the first waiting applications from being
    placed."""
    waiting = [each.application_id for each in found.applications if each.ask_count][:OBSTACLES_SHOWN]
    obstacles: dict[str, str] = {}
    for application_id in waiting:
        try:
            report = explain_client.explain(core.grpc, application_id, core.partition, core.timeout).application
        except CoreUnreachable:
            continue  # The application has ended meanwhile.
        if first := _describe_first(report.groups[0].first.blockers if report.groups else ()):
            obstacles[application_id] = first
    return obstacles


def _describe_first(blockers: Sequence[explain_pb.Blocker]) -> str:
    # A shim that is gone is an obstacle to every ask alike, and `kornel status` shows it.
    own = [blocker for blocker in blockers if blocker.level != "manager"] or list(blockers)
    if own and own[0].level == "node":
        # Among reasons that concern nodes, the one that holds on most nodes says most.
        own.sort(key=lambda blocker: -blocker.node_count)
    return describe_blocker(own[0]) if own else ""
