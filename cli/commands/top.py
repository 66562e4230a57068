"""Command ``kornel top``: shows the busiest queues, live."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from google.protobuf.message import Message

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.terminal import clear_screen, echo_json, echo_text
from kornel.cli.text.documents import message_values
from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import (
    Strokes,
    draw_bar,
    format_percent,
    format_quantities,
    format_quantity,
    types_in_order,
)
from kornel.cli.text.screen import terminal_strokes
from kornel.cli.text.tables import Rows, fit_table, format_table, wrap_text
from kornel.cli.text.users import sort_users, user_rows
from kornel.shared.readable_amounts import format_count
from kornel.v1 import read_pb2 as pb
from kornel.v1.read_pb2_grpc import ReadServiceStub
from kornel.v1.status_pb2 import GetStatusRequest, PartitionStatus
from kornel.v1.status_pb2_grpc import StatusServiceStub

BARS: Final = (20, 12, 6, 0)


@asks_core()
def top(
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds between two updates.")] = 2.0,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Number of updates; 0: until Ctrl-C.")] = 0,
    rows: Annotated[int, typer.Option(min=1, help="The most queues or users to show.")] = 20,
    users: Annotated[bool, typer.Option("--users", help="Show users instead of queues.")] = False,
    *,
    core: PartitionCore,
) -> None:
    """Show the leaf queues with the most usage and pending asks, or the users that hold most, again and again.

    With --json, print one object per line: the partition, and the queues or users. Exits 1 when no core answers.
    """
    looked = 0
    try:
        while True:
            queues: list[pb.QueueInfo] = []
            with core:  # Each update finds the core that leads by then.
                request = GetStatusRequest(partition=core.partition or "default")
                status = core.call(StatusServiceStub(core.channel).GetStatus, request).partitions[0]
                if not users:
                    wanted = pb.ListQueuesRequest(partition=core.partition)
                    found = core.read_list(ReadServiceStub(core.channel).ListQueues, wanted, "queues")
                    queues = busiest_queues(found.queues)[:rows]
            looked += 1
            if core.as_json:
                busiest: Sequence[Message] = sort_users(status, "")[:rows] if users else queues
                echo_json(_json_line(status, busiest))
            else:
                clear_screen()
                echo_text(render_top_users(status, rows) if users else render_top(status, queues, terminal_strokes()))
            if count and looked >= count:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        return


def busiest_queues(queues: Sequence[pb.QueueInfo]) -> list[pb.QueueInfo]:
    """Returns the root, then the leaf queues by the share of the cluster that they use and, among equals, that they ask
    for."""
    if not queues:
        return []
    root = queues[0]

    def find_share(amounts: dict[str, int]) -> float:
        return max((amounts[name] / root.max[name] for name in amounts if root.max.get(name, 0) > 0), default=0.0)

    leaves = [queue for queue in queues if queue.leaf]
    leaves.sort(key=lambda queue: (-find_share(dict(queue.used)), -find_share(dict(queue.pending)), queue.path))
    return [root, *leaves]


def render_top(status: PartitionStatus, queues: Sequence[pb.QueueInfo], strokes: Strokes) -> str:
    """Returns the partition in two lines, then a row for each queue."""
    types = types_in_order([status.total])[:2]

    def make_rows(bar: int) -> Rows:
        rows = [("queue", "running", *types, "pending", "preempted")]
        for queue in queues:
            cells = []
            for name in types:
                used, whole = queue.used.get(name, 0), status.total.get(name, 0)
                share = f"{format_percent(used, whole):>4} {format_quantity(name, used)}"
                cells.append(f"{draw_bar(used, whole, bar, strokes)} {share}".lstrip())
            rows.append(
                (
                    queue.path,
                    str(queue.running_application_count),
                    *cells,
                    format_quantities(queue.pending),
                    str(queue.preempted_allocations),
                )
            )
        return rows

    return join_lines([*_head_lines(status), *fit_table(make_rows, BARS, ("preempted", "running"))])


def render_top_users(status: PartitionStatus, most: int) -> str:
    """Returns the partition in two lines, then a row for each of the first *most* users."""
    return join_lines([*_head_lines(status), *format_table(user_rows(status, "", most))])


def _head_lines(status: PartitionStatus) -> list[str]:
    counts = ", ".join(
        (
            format_count(status.node_count, "node"),
            format_count(status.allocation_count, "allocation"),
            f"{format_count(status.pending_ask_count, 'ask')} pending",
            format_count(status.preemption_triggered, "preemption"),
        )
    )
    return [*wrap_text(f"{status.name}: {counts}"), *wrap_text(f"total {format_quantities(status.total)}"), ""]


def _json_line(status: PartitionStatus, busiest: Sequence[Message]) -> str:
    """Returns one object in one line. The queues and users of *status* are written only once."""
    whole = PartitionStatus()
    whole.CopyFrom(status)
    del whole.queues[:], whole.users[:]
    return json.dumps({"partition": message_values(whole), "busiest": [message_values(each) for each in busiest]})
