"""P16: gangs, and gangs in a rack each, from the benchmarks of their parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kornel.core.domain.topology import Wish
from tests.bench import domains, gangs
from tests.bench.placing import run
from tests.bench.processes import apart
from tests.bench.table import Row


def p16(runs: int, *, quick: bool) -> Iterator[Row]:
    """Members per second."""
    gang = gangs.Workload(gangs=200 if quick else 1_000)
    what = f"{gang.gangs:,} gangs of {gang.members}, confirmed members"
    yield Row("P16", f"{what}, over gRPC", "/s", [run(gangs.over_grpc(gang)) for _ in range(runs)], 4_000)
    alone = [apart(gangs.engine_alone, gang) for _ in range(runs)]
    yield Row("P16", f"{what}, engine alone", "/s", alone, 7_000)
    racked = domains.Workload(gangs=200 if quick else 1_000)
    what = f"{racked.gangs:,} gangs of {racked.members}, {racked.nodes:,} nodes in {racked.racks} racks"
    for wish, name, least in ((Wish.REQUIRED, "a rack each", 2_000), (Wish.SPREAD, "spread over racks", None)):
        rates = [apart(domains.Workload.members_per_second, replace(racked, wish=wish)) for _ in range(runs)]
        yield Row("P16", f"{what}, {name}", "/s", rates, least)
