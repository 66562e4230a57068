"""P6: asks that come one at a time, a thousand a second, next to a bare echo of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kornel.shim_mock.load.sending import Placed, Sender
from kornel.shim_mock.load.workload import Workload
from tests.bench.core_process import RM, running_core
from tests.bench.echo import running_echo
from tests.bench.placing import P2_FLAT, connection, run, set_up, undisturbed
from tests.bench.table import Row

EACH_S = 0.001


def p6(runs: int, *, quick: bool) -> Iterator[Row]:
    """Latency from an ask sent to its allocation received."""
    workload = replace(P2_FLAT, asks=2_000 if quick else 10_000)
    echoed, placed = [], []
    for _ in range(runs):
        echoed.append(run(_over_echo(workload)))
        placed.append(run(_over_core(workload)))
    for percent, most in ((50, 1.5), (99, 6.0)):
        yield Row(
            "P6",
            f"1,000 single asks/s, 5,000 nodes: ask to allocation p{percent}",
            "ms",
            [each.percentile_ms(percent) for each in placed],
            most,
            at_most=True,
            ceilings=[each.percentile_ms(percent) for each in echoed],
        )
    yield Row("P6", "asks placed meanwhile", "/s", [each.rate for each in placed])


async def _over_core(workload: Workload) -> Placed:
    async with running_core() as (address, _), connection(address) as channel:
        sender = Sender(channel, RM)
        await set_up(sender, workload)
        return await _paced(sender, workload)


async def _over_echo(workload: Workload) -> Placed:
    async with running_echo() as address, connection(address) as channel:
        return await _paced(Sender(channel, RM), workload)


async def _paced(sender: Sender, workload: Workload) -> Placed:
    asks = [ask for message in workload.ask_messages(RM) for ask in message.allocations]
    with undisturbed():
        return await sender.place_singly(asks, EACH_S)
