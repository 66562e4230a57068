"""Command ``kornel bench``: measures how fast a running core without a shim places asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from dataclasses import dataclass, replace
from typing import Annotated

import grpc
import grpc.aio
import typer

from kornel.cli.asking import Core, asks_core
from kornel.cli.client.channels import make_aio_channel, make_metadata
from kornel.cli.client.connection import CONNECTION, DUMP_TIMEOUT_S, Connection
from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.commands.unregister import ask_before_unregistering, unregister_manager
from kornel.cli.options import report_failure
from kornel.cli.terminal import echo_json, echo_text
from kornel.cli.text.lines import join_lines
from kornel.shared.event_loop import loop_factory
from kornel.shim_mock.load.sending import LoadError, Placed, Sender
from kornel.shim_mock.load.workload import Workload
from kornel.v1.status_pb2 import GetStatusRequest, GetStatusResponse
from kornel.v1.status_pb2_grpc import StatusServiceStub

LARGEST_CORES, LARGEST_GIB = 8, 16
"""The largest amounts that an ask of a workload requests."""

PACE_S = 0.001
NOTHING_KEPT = {"history.enabled": "false"}
"""The extra settings of the registration. The history is off, because made-up applications do not belong into it."""


@dataclass(frozen=True)
class _Core(Core):
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False


@asks_core()
def bench(
    nodes: Annotated[
        int, typer.Option(min=1, help="Nodes to make up; all of their room together fits all asks.")
    ] = 1_000,
    asks: Annotated[int, typer.Option(min=1, help="Asks of the burst.")] = 10_000,
    leaves: Annotated[int, typer.Option("--queues", min=1, help="Leaf queues below the root.")] = 10,
    applications: Annotated[int, typer.Option(min=1, help="Applications in each leaf queue.")] = 10,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Asks per message of the burst.")] = 1_000,
    singly: Annotated[int, typer.Option(min=0, help="Asks sent one by one afterwards, a thousand a second.")] = 1_000,
    node_order: Annotated[str, typer.Option(metavar="POLICY", help="fair or binpacking.")] = "fair",
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Unregister the resource manager that is registered: everything it reported is gone until it registers"
            " again. The command asks first.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --force unregisters.")] = False,
    *,
    core: _Core,
) -> None:
    """Register a throw-away resource manager, have a core place asks on made-up nodes, and clean up.

    A core that has a shim is left alone without --force, since both would share its time. Exits 1 then,
    when no core answers, and when it does not place the asks; and 2 where nobody can be asked about --force.
    """
    workload = _enlarge_nodes(
        Workload(
            nodes=nodes, asks=asks, queues=(leaves,), applications=applications, node_order=node_order, batch=batch
        ),
        singly,
    )
    try:
        _check_core_is_free(core, force=force, yes=yes)
        rm_id = f"kornel-bench-{secrets.token_hex(4)}"
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                nodes_per_s, burst, paced = runner.run(_measure_core(core.grpc, rm_id, workload, singly))
        finally:
            # The error that ended the measurement is what the user must see, not that the cleaning up failed, too.
            with contextlib.suppress(CoreUnreachable):
                unregister_manager(core, rm_id, max(core.timeout, DUMP_TIMEOUT_S))
    except LoadError as error:
        raise report_failure(error) from error
    except TimeoutError as error:
        raise report_failure(f"{core.grpc}: the core did not place all asks in time") from error
    except grpc.aio.AioRpcError as error:
        raise report_failure(f"{core.grpc}: {error.code().name}: {error.details()}") from error
    if core.as_json:
        echo_json(_format_json(nodes_per_s, burst, paced))
    else:
        echo_text(_format_text(workload, nodes_per_s, burst, paced))


def _enlarge_nodes(workload: Workload, singly: int) -> Workload:
    """Returns *workload* with nodes so large that every ask finds room."""
    each = -(-(workload.asks + singly) // workload.nodes) + 1
    cores = max(workload.node_cores, each * LARGEST_CORES)
    return replace(workload, node_cores=cores, node_gib=max(workload.node_gib, each * LARGEST_GIB))


def _check_core_is_free(core: Core, *, force: bool, yes: bool) -> None:
    """Raises :class:`CoreUnreachable` for a core that is not free."""
    status = core.call(StatusServiceStub(core.channel).GetStatus, GetStatusRequest())
    if not status.rm_id:
        return
    if not force:
        holds = (
            f"{sum(partition.node_count for partition in status.partitions):,} nodes, "
            f"{sum(partition.allocation_count for partition in status.partitions):,} allocations and "
            f"{sum(partition.pending_ask_count for partition in status.partitions):,} pending asks"
        )
        raise CoreUnreachable(
            f"{core.grpc} serves {_name_managers(status)} with {holds}, which would share its time with the measuring."
            " Measure a core without a shim, or give --force to unregister what is there, which loses what it reported"
        )
    for rm_id in _managers_of(status):
        if not yes:
            ask_before_unregistering(rm_id)
        unregister_manager(core, rm_id)


def _managers_of(status: GetStatusResponse) -> list[str]:
    return [manager.rm_id for manager in status.managers] or [status.rm_id]


def _name_managers(status: GetStatusResponse) -> str:
    names = _managers_of(status)
    return f"resource manager{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


async def _measure_core(
    address: str, rm_id: str, workload: Workload, singly: int
) -> tuple[float, Placed, Placed | None]:
    """Returns the nodes registered per second, the result of the burst, and that of the asks sent one by one, which is
    ``None`` if *singly* is 0."""
    connection = CONNECTION.get(Connection())
    async with make_aio_channel(connection, address) as channel:
        sender = Sender(channel, rm_id, make_metadata(connection))
        await sender.register(workload.config, NOTHING_KEPT)
        nodes_per_s = await sender.report_nodes(workload.node_infos())
        await sender.add_applications(workload.application_requests())
        burst = await sender.place_asks(list(workload.ask_messages(rm_id)))
        if not singly:
            return nodes_per_s, burst, None
        few = replace(workload, asks=singly)
        single = [ask for message in few.ask_messages(rm_id, "single") for ask in message.allocations]
        return nodes_per_s, burst, await sender.place_singly(single, PACE_S)


def _format_text(workload: Workload, nodes_per_s: float, burst: Placed, paced: Placed | None) -> str:
    applications, queues = workload.applications * len(workload.leaves), len(workload.leaves)
    lines = [
        f"{workload.asks:,} asks of {applications:,} applications in {queues:,} queues on {workload.nodes:,} nodes,",
        f"{workload.batch:,} asks per message",
        f"  nodes accepted       {nodes_per_s:>12,.0f} /s",
        f"  asks allocated       {burst.rate:>12,.0f} /s   first ask sent to last allocation received",
        f"  ask to allocation    {burst.percentile_ms(50):>12.1f} ms   half of the burst",
        f"                       {burst.percentile_ms(99):>12.1f} ms   99 of 100",
    ]
    if paced is not None:
        lines += [
            f"  single asks, 1,000/s {paced.percentile_ms(50):>12.2f} ms   half of {len(paced.latencies_ms):,}",
            f"                       {paced.percentile_ms(99):>12.2f} ms   99 of 100",
        ]
    return join_lines(lines)


def _format_json(nodes_per_s: float, burst: Placed, paced: Placed | None) -> str:
    found = {
        "nodes_per_s": nodes_per_s,
        "allocations_per_s": burst.rate,
        "burst_p50_ms": burst.percentile_ms(50),
        "burst_p99_ms": burst.percentile_ms(99),
    }
    if paced is not None:
        found |= {"single_p50_ms": paced.percentile_ms(50), "single_p99_ms": paced.percentile_ms(99)}
    return json.dumps(found)
