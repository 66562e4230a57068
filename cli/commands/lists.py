"""Commands ``kornel queues``, ``apps``, ``nodes`` and ``claims``, which list the objects of a core."""

from __future__ import annotations

from time import time_ns
from typing import Annotated

import typer

from kornel.cli.asking import PartitionCore, asks_core
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
from kornel.v1 import read_pb2 as pb
from kornel.v1.read_pb2_grpc import ReadServiceStub

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
    method = ReadServiceStub(core.channel).ListQueues
    with suggesting_names(path, lambda: suggest_queues(core)):
        found = core.read_list(method, pb.ListQueuesRequest(partition=core.partition, path=path), "queues")
    above: list[pb.QueueInfo] = []
    if path and not core.as_json:
        every = core.read_list(method, pb.ListQueuesRequest(partition=core.partition), "queues")
        above = queues_above(every.queues, path)
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
    """Show applications, and of the 20 that have waited longest what the oldest ask waits for.

    Exits 1 when no core answers or there is no such application, 2 for a bad option.
    """
    if finished and rejected:
        raise refuse_input("--finished and --rejected show different lists: give one of them")
    kind = pb.APPLICATION_KIND_FINISHED if finished else pb.APPLICATION_KIND_UNSPECIFIED
    if rejected:
        kind = pb.APPLICATION_KIND_REJECTED
    service = ReadServiceStub(core.channel)
    if application:
        named = pb.GetApplicationRequest(partition=core.partition, application_id=application)
        with suggesting_names(application, lambda: suggest_applications(core)):
            one = core.call(service.GetApplication, named)
        core.show(one, lambda: render_application(one, time_ns()))
        return
    wanted = pb.ListApplicationsRequest(partition=core.partition, queue=queue, user=user, state=state, kind=kind)
    found = core.read_list(service.ListApplications, wanted, "applications", limit)
    obstacles = {} if core.as_json or finished or rejected else _find_obstacles(core, queue, user)
    core.show(found, lambda: render_applications(found, time_ns(), obstacles))


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
    service = ReadServiceStub(core.channel)
    if sort:
        stranded = pb.ListNodesRequest(partition=core.partition, stranded=True)
        nodes = core.read_list(service.ListNodes, stranded, "nodes")
        core.show(sort_stranded(nodes, limit, types), lambda: render_stranded(nodes, limit, types))
        return
    if by:
        if node or draining:
            raise refuse_input("--by shows whole domains: give it without NODE and --draining")
        of_level = pb.ListDomainsRequest(partition=core.partition, level=by)
        domains = core.read_list(service.ListDomains, of_level, "domains", limit)
        core.show(domains, lambda: render_domains(domains, by, terminal_strokes(), types or ()))
        return
    if node:
        with suggesting_names(node, lambda: suggest_nodes(core)):
            one = core.call(service.GetNode, pb.GetNodeRequest(partition=core.partition, node_id=node))
        core.show(one, lambda: render_node(one, time_ns()))
        return
    wanted = pb.ListNodesRequest(partition=core.partition, only_draining=draining)
    found = core.read_list(service.ListNodes, wanted, "nodes", limit)
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
    found = core.read_list(ReadServiceStub(core.channel).ListClaims, wanted, "claims", limit)
    core.show(found, lambda: render_claims(found, time_ns()))


@asks_core(bad_input=EXIT_BAD_INPUT)
def waits(
    by: Annotated[str, typer.Option("--by", metavar="WHAT", help="Sum up by queue or by user.")] = "",
    queue: Annotated[str, typer.Option(metavar="PATH", help="Only applications of this queue and those below.")] = "",
    user: Annotated[str, typer.Option(metavar="NAME", help="Only applications of this user.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100, metavar="COUNT", help="The most entries to show.")] = 20,
    *,
    core: PartitionCore,
) -> None:
    """Show who waits, the longest first, and what keeps the oldest ask of each from being placed.

    Exits 1 when no core answers, 2 for a bad option.
    """
    if by not in ("", "queue", "user"):
        raise refuse_input(f"--by is {by!r}, neither queue nor user")
    wanted = pb.ListWaitsRequest(partition=core.partition, by=by, queue=queue, user=user, limit=limit)
    found = core.call(ReadServiceStub(core.channel).ListWaits, wanted)
    core.show(found, lambda: render_waits(found, by, time_ns()))


def _find_obstacles(core: PartitionCore, queue: str, user: str) -> dict[str, str]:
    """Returns, by ID, what keeps the oldest ask of each of the applications that have waited longest from being
    placed."""
    request = pb.ListWaitsRequest(partition=core.partition, queue=queue, user=user)
    found = core.call(ReadServiceStub(core.channel).ListWaits, request)
    return {each.name: describe_blocker(each.obstacle) for each in found.waits if each.HasField("obstacle")}
