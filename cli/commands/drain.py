"""``kornel drain`` and ``undrain``: take nodes out of scheduling, and return them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from time import time_ns
from typing import Annotated, Final, TypeVar

import typer

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.options import EXIT_FAILED, refuse_input, report_failure
from kornel.cli.suggestions import report_unknown, suggest_names, suggest_nodes
from kornel.cli.terminal import echo_json, echo_line, echo_text, print_error, show_text
from kornel.cli.text.lines import join_lines
from kornel.cli.text.tables import format_table, wrap_text
from kornel.cli.text.times import format_moment
from kornel.shared.readable_amounts import format_count
from kornel.v1 import admin_pb2 as admin
from kornel.v1 import read_pb2 as pb
from kornel.v1.admin_pb2_grpc import AdminServiceStub
from kornel.v1.read_pb2_grpc import ReadServiceStub
from kornel.v1.status_pb2 import GetStatusRequest, PartitionStatus
from kornel.v1.status_pb2_grpc import StatusServiceStub

drain_app = typer.Typer(help="Take nodes out of scheduling.", no_args_is_help=True)
undrain_app = typer.Typer(help="Return nodes to scheduling.", no_args_is_help=True)

POLL_S: Final = 1.0
"""The pause between two checks of what still runs on drained nodes."""

AT_ONCE: Final = 7_000
"""The characters of node IDs in one request, give or take one ID; a core accepts 8,192."""

ResponseT = TypeVar("ResponseT", admin.DrainNodeResponse, admin.UndrainNodeResponse)

SomeNodeIds = Annotated[list[str] | None, typer.Argument(metavar="[NODE...]", help="IDs of the nodes.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="NAME=VALUE", help="Nodes with this attribute, or in this domain: rack=a/r7."),
]


@drain_app.command("node")
@asks_core()
def drain_node(
    nodes: SomeNodeIds = None,
    where: Where = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing runs there any more.")] = False,
    wait_timeout: Annotated[
        float, typer.Option("--wait-timeout", min=0, metavar="SECONDS", help="Longest wait; 0: as long as it takes.")
    ] = 0,
    *,
    core: PartitionCore,
) -> None:
    """Keep new allocations off nodes; what runs there goes on.

    Holds until `kornel undrain node`, whatever the shim reports about the node, or until a core without a journal
    restarts.

    Exits 0 also if a node was draining already, 1 if no core answers, there is no such node, or the wait took too long.
    With --json: one object for each node, one per line if there are several.
    """
    wanted = _find_nodes(core, nodes or [], where or [])
    method = AdminServiceStub(core.channel).DrainNode
    drained = _change_nodes(wanted, core, method, admin.DrainNodeRequest, _describe_drain)
    if drained and not core.as_json:
        meant = [part for each in where or [] for part in ("--where", each)] or drained
        echo_text(join_lines(wrap_text(_say_how_long(meant))))
    emptied = not (wait and drained) or _wait_until_empty(core, drained, wait_timeout)
    if len(drained) < len(wanted) or not emptied:
        raise typer.Exit(EXIT_FAILED)


@drain_app.command("list")
@asks_core()
def list_drained(
    *,
    core: PartitionCore,
) -> None:
    """Show the nodes that operators have drained: by whom, since when, and how much still runs there.

    With --json: the drained nodes of kornel.v1.PartitionStatus, one a line. `kornel nodes --draining` shows those that
    the shim drains, too.
    """
    request = GetStatusRequest(partition=core.partition or "default")
    status = core.call(StatusServiceStub(core.channel).GetStatus, request).partitions[0]
    if core.as_json:
        for each in status.drained_nodes:
            echo_json(each, indent=None)
        return
    show_text(_render_drained(status, core))


@undrain_app.command("node")
@asks_core()
def undrain_node(
    nodes: SomeNodeIds = None,
    where: Where = None,
    *,
    core: PartitionCore,
) -> None:
    """End what `kornel drain node` began, also for nodes that are not registered now.

    Exits 1 when no core answers or there is no such node.
    """
    wanted = _find_nodes(core, nodes or [], where or [])
    method = AdminServiceStub(core.channel).UndrainNode
    undrained = _change_nodes(wanted, core, method, admin.UndrainNodeRequest, _describe_undrain)
    if len(undrained) < len(wanted):
        raise typer.Exit(EXIT_FAILED)


def _find_nodes(core: PartitionCore, named: Sequence[str], where: Sequence[str]) -> list[str]:
    """Returns the nodes that are named, or have all attributes in *where*. Exits if no node is meant."""
    if bool(named) == bool(where) or not all("=" in each for each in where):
        raise refuse_input("give IDs of nodes, or --where NAME=VALUE")
    if named:
        return list(named)
    service = ReadServiceStub(core.channel)
    domains = core.read_list(service.ListDomains, pb.ListDomainsRequest(partition=core.partition), "domains")
    wanted = {pair for each in where for pair in _find_attributes(domains, *each.split("=", 1))}
    selected = pb.ListNodesRequest(partition=core.partition, attributes=dict(wanted))
    answer = pb.ListNodesResponse()
    if len(selected.attributes) == len(wanted):  # No node has two values of one attribute.
        answer = core.read_list(service.ListNodes, selected, "nodes")
    if answer.nodes and dict(answer.attributes) != dict(wanted):
        raise report_failure("the core is too old to select nodes; give their IDs")
    if not answer.nodes:
        raise report_failure(f"no node has {' and '.join(where)}")
    return [each.node_id for each in answer.nodes]


def _find_attributes(known: pb.ListDomainsResponse, name: str, value: str) -> list[tuple[str, str]]:
    """Returns what nodes have with attribute *name*, or in domain *value* of level *name*. Exits if that may be several
    domains or is none."""
    if all(level.name != name for level in known.levels):
        return [(name, value)]
    paths = {"/".join(each.path): each.path for each in known.domains if each.level == name}
    meant = [value] if value in paths else [path for path in paths if path.endswith(f"/{value}")]
    if not meant:
        raise report_failure(f"there is no {name} {value}{suggest_names(value, paths)}")
    if len(meant) > 1:
        raise refuse_input(f"{name} {value} may be any of {', '.join(meant)}")
    return [(level.attribute, part) for level, part in zip(known.levels, paths[meant[0]], strict=False)]


def _change_nodes(
    nodes: Sequence[str],
    core: PartitionCore,
    method: Callable[..., ResponseT],
    request: type[admin.DrainNodeRequest | admin.UndrainNodeRequest],
    describe: Callable[[ResponseT], str],
) -> list[str]:
    """Calls *method* with a *request* for each node, and prints the answers. Returns the nodes that the core knows."""
    changed: list[str] = []
    for node in nodes:
        try:
            done = core.call(method, request(partition=core.partition, node_id=node))
        except CoreUnreachable as error:
            if not error.unknown:
                raise
            report_unknown(error, node, suggest_nodes(core))
            continue
        changed.append(node)
        if core.as_json:
            echo_json(done, indent=2 if len(nodes) == 1 else None)
        else:
            echo_line(f"{node}: {describe(done)}")
    return changed


def _describe_drain(done: admin.DrainNodeResponse) -> str:
    was = "drained"
    if not done.changed:
        was = f"drained already, by {done.principal} since {format_moment(done.since_ns, time_ns())}"
    still = "runs" if done.allocation_count == 1 else "run"
    return f"{was}, {format_count(done.allocation_count, 'allocation')} still {still} there"


def _say_how_long(meant: Sequence[str]) -> str:
    return (
        f"It holds until `kornel undrain node {shlex.join(meant)}`, also when the shim registers again or says that the"
        " node is ready; a restart of the core ends it if there is no journal."
    )


def _describe_undrain(done: admin.UndrainNodeResponse) -> str:
    if not done.registered:
        return "undrained; it is not registered now"
    if not done.schedulable:
        return f"{'undrained' if done.changed else 'no operator drained it'}, but its shim drains it: still draining"
    return "ready" if done.changed else "ready already"


def _wait_until_empty(core: PartitionCore, nodes: Sequence[str], longest_s: float) -> bool:
    """Waits until nothing runs on *nodes*, at most *longest_s* seconds if that is not 0; tells whether they are
    empty."""
    began, say = time.monotonic(), not core.as_json
    before = -1
    while True:
        left = sum(_count_running(core, nodes).values())
        if say and left != before and left:
            echo_line(f"waiting: {format_count(left, 'allocation')} still {'runs' if left == 1 else 'run'} there")
        before = left
        if not left:
            if say:
                echo_line("nothing runs there any more")
            return True
        if longest_s and time.monotonic() - began >= longest_s:
            print_error(f"{format_count(left, 'allocation')} still {'runs' if left == 1 else 'run'} there")
            return False
        time.sleep(min(POLL_S, longest_s or POLL_S))


def _count_running(core: PartitionCore, nodes: Sequence[str]) -> dict[str, int]:
    """Returns how much runs on those of *nodes* that are registered."""
    running: dict[str, int] = {}
    for _, batch in groupby(zip(accumulate(map(len, nodes)), nodes, strict=True), lambda each: each[0] // AT_ONCE):
        wanted = pb.ListNodesRequest(partition=core.partition, node_ids=[node for _, node in batch])
        found = core.read_list(ReadServiceStub(core.channel).ListNodes, wanted, "nodes")
        running.update((each.node_id, each.allocation_count) for each in found.nodes)
    return running


def _render_drained(status: PartitionStatus, core: PartitionCore) -> str:
    if not status.drained_nodes:
        return "no operator has drained a node"
    now_ns = time_ns()
    running = _count_running(core, [node.node_id for node in status.drained_nodes])
    rows = [("node", "by", "since", "still running")]
    for node in status.drained_nodes:
        still = str(running.get(node.node_id, "not registered"))
        rows.append((node.node_id, node.principal, format_moment(node.since_ns, now_ns), still))
    return join_lines(format_table(rows))
