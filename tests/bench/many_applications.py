"""P15: what an ask costs when applications and queues grow a hundredfold, and how fast applications are registered.

Each ask is the first of its application where there are enough of them. Wide and narrow take turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kornel.shim_mock.load.workload import Workload
from tests.bench.placing import Burst, measure_burst, run
from tests.bench.table import Row

FEW = Workload(queues=(100,), applications=10)
MANY = replace(FEW, applications=1_000)
WIDE = replace(FEW, queues=(100, 100), applications=10)
MOST_TIMES = 1.3
LEAST_REGISTERED = 20_000


def p15(runs: int, *, quick: bool) -> Iterator[Row]:
    """Processor time of the core for an ask, and rates, of many to few."""
    asks = 10_000 if quick else 50_000
    few, many, wide = [], [], []
    for _ in range(runs):
        few.append(run(measure_burst(replace(FEW, asks=asks))))
        many.append(run(measure_burst(replace(MANY, asks=asks))))
        wide.append(run(measure_burst(replace(WIDE, asks=asks))))
    cost = _times(_costs(many), _costs(few))
    yield Row("P15", "100,000 applications to 1,000: cost of an ask", "x", cost, MOST_TIMES, at_most=True)
    took = _times([1 / burst.placed.rate for burst in many], [1 / burst.placed.rate for burst in few])
    yield Row("P15", "the same, by the time it takes", "x", took)
    cost = _times(_costs(wide), _costs(many))
    yield Row("P15", "10,000 queues to 100: cost of an ask", "x", cost, MOST_TIMES, at_most=True)
    for name, bursts in (("1,000", few), ("100,000", many)):
        yield Row("P15", f"asks of {name} applications, processor time of the core", "us", _costs(bursts))
    yield Row("P15", "100,000 applications registered", "/s", [burst.registered for burst in many], LEAST_REGISTERED)


def _costs(bursts: Sequence[Burst]) -> list[float]:
    return [burst.core_us for burst in bursts]


def _times(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [value / other for value, other in zip(values, others, strict=True)]
