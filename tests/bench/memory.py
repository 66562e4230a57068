"""P8: memory of the core process per node, pending ask and allocation.

Resident memory (VmRSS) after a small and after a large number of equal entries, each in a core of its own; the slope
between them is what one costs, so what any core takes and what passes by (messages, free lists) does not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

from kornel.cli.asking import CalledCore
from kornel.shim_mock.load.sending import Sender
from kornel.shim_mock.load.workload import Workload
from kornel.v1.status_pb2 import GetStatusRequest
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.bench.core_process import RM, running_core
from tests.bench.placing import P2_FLAT, connection, run, set_up
from tests.bench.processes import resident_bytes
from tests.bench.table import Row

KIB = 1024
SETTLE_S = 0.5
PATIENCE_S = 120


def p8(runs: int, *, quick: bool) -> Iterator[Row]:
    """KiB per entry."""
    few, many = (4_000, 12_000) if quick else (20_000, 100_000)
    nothing = replace(P2_FLAT, nodes=1, asks=0)
    # Nodes of a core each hold none of the asks, which all need two or more.
    waiting = replace(P2_FLAT, nodes=1, node_cores=0)
    roomy = replace(P2_FLAT, nodes=1_000, node_cores=4_096, node_gib=8_192)
    for what, most, small, large in (
        ("node", 4.0, replace(nothing, nodes=few), replace(nothing, nodes=many)),
        ("pending ask", 1.2, replace(waiting, asks=few), replace(waiting, asks=many)),
        ("waiting application with two asks", 4.0, _two_each(few), _two_each(many)),
        ("allocation", 2.0, replace(roomy, asks=few), replace(roomy, asks=many)),
    ):
        placed = what == "allocation"
        slopes = [
            (run(_resident(large, placed=placed)) - run(_resident(small, placed=placed))) / (many - few) / KIB
            for _ in range(runs)
        ]
        yield Row("P8", f"memory per {what}, {few:,} to {many:,} of them", "KiB", slopes, most, at_most=True)


def _two_each(applications: int) -> Workload:
    """Returns a cluster of a node without cores, for which so many applications wait with two asks each."""
    each = applications // len(P2_FLAT.leaves)
    return replace(P2_FLAT, nodes=1, node_cores=0, applications=each, asks=2 * applications)


def _until_pending(address: str, asks: int) -> None:
    """Wait until so many asks wait in the core at *address*."""
    deadline = time.monotonic() + PATIENCE_S
    with CalledCore(address) as core:
        method = StatusServiceStub(core.channel).GetStatus
        while sum(each.pending_ask_count for each in core.call(method, GetStatusRequest()).partitions) < asks:
            if time.monotonic() > deadline:
                raise TimeoutError("the core did not take in all asks")
            time.sleep(SETTLE_S)


async def _resident(workload: Workload, *, placed: bool) -> int:
    """Bytes of a core that holds *workload*."""
    async with running_core() as (address, pid), connection(address) as channel:
        sender = Sender(channel, RM)
        await set_up(sender, workload)
        messages = list(workload.ask_messages(RM))
        if placed:
            await sender.place_asks(messages)
        else:
            async with sender.allocations() as stream:
                for message in messages:
                    await stream.write(message)
                await asyncio.to_thread(_until_pending, address, workload.asks)
        await asyncio.sleep(SETTLE_S)
        return resident_bytes(pid)
