"""``kornel queues``, ``apps`` and ``nodes`` list what a core holds; ``drain`` and ``undrain`` change nodes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kornel.core.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    EXIT_BAD_INPUT,
    Address,
    AsJson,
    Partition,
    Timeout,
    report_failure,
)
from kornel.core.cli.terminal import echo_json, echo_line, echo_text, print_error
from kornel.core.cli.text.quantities import Strokes, format_time, strokes_for
from kornel.core.cli.text.reading import (
    queues_above,
    render_application,
    render_applications,
    render_node,
    render_nodes,
    render_queues,
)
from kornel.core.client import calls as client
from kornel.core.client.reading import Reader
from kornel.core.service.clock import wall_ns
from kornel.v1 import admin_pb2 as admin
from kornel.v1 import read_pb2 as pb

drain_app = typer.Typer(help="Take something out of scheduling.", no_args_is_help=True)
undrain_app = typer.Typer(help="Return something to scheduling.", no_args_is_help=True)

Limit = Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="Show no more than this; 0: all.")]
Types = Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Resource type to show; repeatable.")]
NodeId = Annotated[str, typer.Argument(metavar="NODE", help="ID of the node.")]


def queues(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Only this queue and those below it.")] = "",
    types: Types = None,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the queues as a tree: running applications, and how much of each max is used.

    The mark in a bar is the guarantee, +N is pending. Exits 1 when no core answers or there is no such queue.
    """
    try:
        with Reader(grpc, timeout) as reader:
            found = reader.queues(partition, path)
            above = [] if as_json or not path else queues_above(reader.queues(partition).queues, path)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        echo_text(render_queues(found.queues, terminal_strokes(), types or (), above))


def apps(
    application: Annotated[str, typer.Argument(metavar="[APP]", help="Only this application, with all it holds.")] = "",
    queue: Annotated[str, typer.Option(metavar="PATH", help="Only those of this queue and below.")] = "",
    user: Annotated[str, typer.Option(metavar="NAME", help="Only those of this user.")] = "",
    state: Annotated[str, typer.Option(metavar="STATE", help="Only those in this state, such as Running.")] = "",
    finished: Annotated[bool, typer.Option("--finished", help="Show applications that ended lately.")] = False,
    rejected: Annotated[bool, typer.Option("--rejected", help="Show applications that were refused lately.")] = False,
    limit: Limit = 0,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show applications. Exits 1 when no core answers or there is no such application, 2 for a bad option."""
    if finished and rejected:
        print_error("--finished and --rejected are two lists: one of them")
        raise typer.Exit(EXIT_BAD_INPUT)
    kind = pb.APPLICATION_KIND_FINISHED if finished else pb.APPLICATION_KIND_UNSPECIFIED
    if rejected:
        kind = pb.APPLICATION_KIND_REJECTED
    wanted = pb.ListApplicationsRequest(partition=partition, queue=queue, user=user, state=state, kind=kind)
    try:
        with Reader(grpc, timeout) as reader:
            found = reader.application(application, partition) if application else reader.applications(wanted, limit)
    except client.CoreUnreachable as error:
        if error.bad_input:
            print_error(error)
            raise typer.Exit(EXIT_BAD_INPUT) from error
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    elif isinstance(found, pb.GetApplicationResponse):
        echo_text(render_application(found, wall_ns()))
    else:
        echo_text(render_applications(found, wall_ns()))


def nodes(
    node: Annotated[str, typer.Argument(metavar="[NODE]", help="Only this node, with all that runs there.")] = "",
    draining: Annotated[bool, typer.Option("--draining", help="Only nodes that take no new work.")] = False,
    types: Types = None,
    limit: Limit = 0,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show nodes and how full they are. Exits 1 when no core answers or there is no such node."""
    wanted = pb.ListNodesRequest(partition=partition, only_draining=draining)
    try:
        with Reader(grpc, timeout) as reader:
            found = reader.node(node, partition) if node else reader.nodes(wanted, limit)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    elif isinstance(found, pb.GetNodeResponse):
        echo_text(render_node(found, wall_ns()))
    else:
        echo_text(render_nodes(found, terminal_strokes(), types or ()))


@drain_app.command("node")
def drain_node(
    node: NodeId,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Keep new allocations off a node; what runs there goes on.

    Holds until `kornel undrain node`, whatever the shim reports about the node, or until the core restarts.

    Exits 0 also when it was draining already, 1 when no core answers or there is no such node.
    """
    try:
        with Reader(grpc, timeout) as reader:
            done = reader.drain(node, partition)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(done)
    else:
        was = "drained" if done.changed else f"drained already, by {done.principal} since {format_time(done.since_ns)}"
        echo_line(f"{node}: {was}, {done.allocation_count} allocations still run there")
        echo_line(
            f"It holds until `kornel undrain node {node}`, also when the shim registers again or says that the node is"
            " ready; a restart of the core ends it."
        )


@undrain_app.command("node")
def undrain_node(
    node: NodeId,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """End what `kornel drain node` began, also for a node that is not registered now.

    Exits 1 when no core answers or there is no such node.
    """
    try:
        with Reader(grpc, timeout) as reader:
            done = reader.undrain(node, partition)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(done)
    else:
        echo_line(f"{node}: {_describe_undrain(done)}")


def _describe_undrain(done: admin.UndrainNodeResponse) -> str:
    if not done.registered:
        return "undrained; it is not registered now"
    if not done.schedulable:
        return f"{'undrained' if done.changed else 'no operator drained it'}, but its shim drains it: still draining"
    return "ready" if done.changed else "ready already"


def terminal_strokes() -> Strokes:
    """Returns the strokes that the terminal, or the file that standard output goes to, can show."""
    return strokes_for(sys.stdout.encoding)
