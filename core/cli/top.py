"""``kornel top``: shows the busiest queues, live."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from kornel.core.cli.lists import terminal_strokes
from kornel.core.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    Address,
    AsJson,
    Partition,
    Timeout,
    report_failure,
)
from kornel.core.cli.terminal import clear_screen, echo_json, echo_text
from kornel.core.cli.text.lines import join_lines
from kornel.core.cli.text.quantities import (
    Strokes,
    draw_bar,
    format_percent,
    format_quantities,
    format_quantity,
    types_in_order,
)
from kornel.core.cli.text.tables import format_table
from kornel.core.client import calls as client
from kornel.core.client.reading import Reader
from kornel.v1 import read_pb2 as pb
from kornel.v1.status_pb2 import PartitionStatus

_BAR: Final = 20


def top(
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds between two updates.")] = 2.0,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Number of updates; 0: until Ctrl-C.")] = 0,
    rows: Annotated[int, typer.Option(min=1, help="Most queues to show.")] = 20,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the leaf queues with the most usage and pending asks, again and again. Exits 1 when no core answers.

    With --json one object a line: the partition, and the queues.
    """
    looked = 0
    try:
        while True:
            status = client.fetch_status(grpc, partition or "default", timeout).partitions[0]
            with Reader(grpc, timeout) as reader:
                queues = busiest_queues(reader.queues(partition).queues)
            looked += 1
            if as_json:
                echo_json(_json_line(status, queues[:rows]))
            else:
                clear_screen()
                echo_text(render_top(status, queues[:rows], terminal_strokes()))
            if count and looked >= count:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        return
    except client.CoreUnreachable as error:
        raise report_failure(error) from error


def busiest_queues(queues: Sequence[pb.QueueInfo]) -> list[pb.QueueInfo]:
    """Returns the root, then the leaves by the share of the cluster that they use and wait for."""
    if not queues:
        return []
    root = queues[0]

    def share(amounts: dict[str, int]) -> float:
        return max((amounts[name] / root.max[name] for name in amounts if root.max.get(name, 0) > 0), default=0.0)

    leaves = [queue for queue in queues if queue.leaf]
    leaves.sort(key=lambda queue: (-share(dict(queue.used)), -share(dict(queue.pending)), queue.path))
    return [root, *leaves]


def render_top(status: PartitionStatus, queues: Sequence[pb.QueueInfo], strokes: Strokes) -> str:
    """Returns the partition in two lines, then a row for each queue."""
    counts = (
        f"{status.node_count} nodes, {status.allocation_count} allocations, {status.pending_ask_count} asks pending,"
        f" {status.preemption_triggered} preemptions"
    )
    lines = [f"{status.name}: {counts}", f"total {format_quantities(status.total)}", ""]
    types = types_in_order([status.total])[:2]
    rows = [("queue", "running", *types, "pending", "preempted")]
    for queue in queues:
        cells = []
        for name in types:
            used, whole = queue.used.get(name, 0), status.total.get(name, 0)
            cells.append(
                f"{draw_bar(used, whole, _BAR, strokes)} {format_percent(used, whole):>4} {format_quantity(name, used)}"
            )
        rows.append(
            (
                queue.path,
                str(queue.running_application_count),
                *cells,
                format_quantities(queue.pending),
                str(queue.preempted_allocations),
            )
        )
    return join_lines([*lines, *format_table(rows)])


def _json_line(status: PartitionStatus, queues: Sequence[pb.QueueInfo]) -> str:
    """Returns one object in one line. The queues of *status* are written only once."""
    whole = PartitionStatus()
    whole.CopyFrom(status)
    del whole.queues[:], whole.users[:]
    return json.dumps({"partition": _plain_values(whole), "busiest": [_plain_values(queue) for queue in queues]})


def _plain_values(message: Message) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
