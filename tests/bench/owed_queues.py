"""P20: what clusters really have: many sizes, several tasks a node, priorities, and many queues that are owed room.

The engine alone, in processor time, on full nodes of the openb trace, with its work over quota (classes Burstable and
BE), and asks of its sizes of the class LS in queues whose guarantees hold all of them. Without the trace, seeded nodes
and pods of the same sort are made. A second wave of asks comes when the first has been served, and a third one after
that. Only in the third, nearly all questions have been answered: in the first, some asks of a size find room without
victims, so that a tenth of the questions are new in the second. The cost for each victim is compared with that of as
many equal asks in one queue, on average of some of the same sizes, because some are harder to make room for than
others. Victims leave at once, time is simulated, and slices are bounded: an engine that stands still serves a part of
the asks, and the table says so.

Expected: all asks are served. The first question of all costs 10 us for each node, so 10 ms for 1,000 nodes in steps of
2 to 4 ms; others use what it saw. In the third wave each question judges few of the nodes that have changed: 1 to 2
times the cost of equal asks. An answer that is kept takes 40 bytes for each node, and what all share 400.
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.preemption.guarantee.search import prospects
from kornel.shim_mock.trace import BEST_EFFORT, CLASS_OF_QUEUE, LATENCY, MIB, Trace, TraceNode, TracePod, load_trace
from tests.bench.clocked import settle_garbage
from tests.bench.processes import apart
from tests.bench.table import Row
from tests.owed_cluster import SECOND_NS, OwedCluster, Played, slices_for

NODES: Final = 1_500
MOST_NODES: Final = 5_000
ASKS: Final = 300
SIZES: Final = (1, 10, 50, 200)
QUEUES: Final = (1, 10, 200)
WAVES: Final = ("first", "second", "third")
DELAYS_S: Final = (1, 30)
"""The values of ``preemption.delay``: asks that are older than 2 s hold room by their age before they may preempt."""
SEED: Final = 20


class Case(NamedTuple):
    """One cluster, and the asks of one wave."""

    nodes: int
    sizes: int
    queues: int
    delay_s: int
    asks: int = ASKS
    only: int | None = None
    """The number of the only size that is asked for; ``None``: all are."""


class Measured(NamedTuple):
    """The results of all waves; times are seconds of processor time."""

    served: int
    per_victim_s: list[float]
    """By wave."""
    longest_s: float


def p20(folder: Path | None, runs: int, *, quick: bool) -> Iterator[Row]:
    """Asks served, the cost of victims with many sizes and queues, a first answer, and what is kept."""
    asks = 60 if quick else ASKS
    sizes, queues = (SIZES[1:2], QUEUES[1:2]) if quick else (SIZES, QUEUES)
    grid = [(size, queue) for size in sizes for queue in queues if size * queue > 1]
    longest: list[float] = []
    for delay_s in DELAYS_S[1:] if quick else DELAYS_S:
        clusters = [Case(NODES, size, queue, delay_s, asks) for size, queue in grid]
        if not quick:
            clusters.append(Case(MOST_NODES, SIZES[-1], QUEUES[-1], delay_s, asks))
        equal: dict[tuple[int, int], list[float]] = {}
        for case in clusters:
            numbers = _spread(case.sizes) if case.nodes == NODES else [0, case.sizes // 2]
            for at in numbers:
                if (case.nodes, at) not in equal:
                    one = case._replace(queues=1, only=at)
                    equal[case.nodes, at] = _measure(folder, one).per_victim_s
            found = [_measure(folder, case) for _ in range(runs)]
            longest += [each.longest_s * 1e3 for each in found]
            what = f"{case.nodes:,} nodes, {case.sizes} sizes, {case.queues} queues, {delay_s} s"
            yield Row("P20", f"{what}: asks served", "", [each.served for each in found], len(WAVES) * asks)
            for wave in (1, 2):
                alone_s = sum(equal[case.nodes, at][wave] for at in numbers) / len(numbers)
                ratios = [many.per_victim_s[wave] / alone_s for many in found]
                name = f"{what}: cost of a victim in the {WAVES[wave]} wave, to equal asks"
                yield Row("P20", name, "x", ratios, 2 if wave == 2 else None, at_most=True)
        alone_ms = [each[2] * 1e3 for each in equal.values()]
        yield Row("P20", f"equal asks, {delay_s} s: a victim, by size", "ms", alone_ms)
    first = [apart(measure_first, folder) for _ in range(runs)]
    yield Row("P20", "1,000 nodes: the first answer to a question", "ms", [a * 1e3 for a, _ in first], 20, at_most=True)
    longest += [slice_s * 1e3 for _, slice_s in first]
    yield Row("P20", "the longest slice of all", "ms", [max(longest)], 10, at_most=True)
    case = Case(NODES if quick else MOST_NODES, sizes[-1], queues[-1], 1, asks)
    most = prospects.MOST_BYTES / MIB
    kept = [apart(measure_memory, folder, case) / MIB for _ in range(1 if quick else runs)]
    yield Row(
        "P20",
        f"{case.nodes:,} nodes, {case.sizes} sizes, {case.queues} queues: answers kept",
        "MiB",
        kept,
        most,
        at_most=True,
    )


def _spread(sizes: int) -> list[int]:
    """Returns the numbers of some of so many sizes, among them a few of the first."""
    return sorted({0, min(5, sizes - 1), *range(0, sizes, max(1, sizes // 8))})


def _measure(folder: Path | None, case: Case) -> Measured:
    return apart(measure_waves, folder, case)


def measure_waves(folder: Path | None, case: Case) -> Measured:
    """Returns what equal waves of asks came to."""
    cluster, sizes = make_cluster(folder, case)
    settle_garbage()
    waves = [_play_wave(cluster, name, sizes, case) for name in WAVES]
    served = sum(len(wave.placed) for wave in waves)
    per_victim_s = [wave.took_s / wave.victims if wave.victims else float("inf") for wave in waves]
    return Measured(served, per_victim_s, max(wave.longest_s for wave in waves))


def measure_first(folder: Path | None) -> tuple[float, float]:
    """Returns the time from the first attempt for one ask on 1,000 nodes to its plan, and that of the longest slice."""
    case = Case(1_000, 1, 1, 1, 1)
    cluster, sizes = make_cluster(folder, case)
    settle_garbage()
    cluster.ask("a", sizes, 1, 1, [CLASS_OF_QUEUE[LATENCY].value])
    cluster.play(1_000, until_ns=cluster.now_ns + case.delay_s * SECOND_NS)
    found = cluster.play(1_000, until_victim=True)
    if not found.victims:
        raise AssertionError("no victim was found for a single ask")
    return found.first_s, found.longest_s


def measure_memory(folder: Path | None, case: Case) -> float:
    """Returns the bytes that preemption for guarantees has come to hold when all asks of a wave were served."""
    cluster, sizes = make_cluster(folder, case)
    tracemalloc.start()
    try:
        _play_wave(cluster, WAVES[0], sizes, case)
        gc.collect()
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    mine = taken.filter_traces([tracemalloc.Filter(True, "*/preemption/guarantee/*")])
    return float(sum(trace.size for trace in mine.traces))


def make_cluster(folder: Path | None, case: Case) -> tuple[OwedCluster, list[Resources]]:
    """Returns a cluster of full nodes for *case*, and the sizes of its asks. Raises AssertionError if not all asks of
    all waves would find room on empty nodes, because they could not lawfully be served then."""
    trace = load_trace(folder) if folder is not None else make_trace()
    nodes = [Resources(trace.nodes[at % len(trace.nodes)].resources) for at in range(case.nodes)]
    sizes = _common_sizes(trace, case.sizes)
    sizes = sizes if case.only is None else [sizes[case.only]]
    _require_room(nodes, [sizes[at % len(sizes)] for at in range(case.asks)] * len(WAVES))
    whole = Resources({name: sum(node.get(name, 0) for node in nodes) for name in ("vcore", "memory", "gpu_milli")})
    cluster = OwedCluster(nodes, case.queues, whole, case.delay_s)
    cluster.run(_fill_nodes(nodes, [pod for pod in trace.pods if pod.queue != LATENCY]))
    return cluster, sizes


def make_trace() -> Trace:
    """Returns seeded nodes and pods of the same sort as those of the openb trace: five kinds of nodes, a hundred sizes
    of which a few are common, and parts of GPUs."""
    dice = random.Random(SEED)
    kinds = [(96, 384, 8), (104, 512, 2), (32, 256, 0), (16, 120, 2), (128, 768, 8)]
    nodes = tuple(
        TraceNode(f"node-{at}", _amounts(cores * 1000, memory * 1024, gpus * 1000), "", gpus)
        for at in range(1_500)
        for cores, memory, gpus in dice.choices(kinds, [36, 26, 13, 15, 10])
    )
    sizes = [
        _amounts(cores := dice.randrange(1_000, 16_000, 100), cores * dice.randint(1, 4), dice.choice((0, 460, 1_000)))
        for _ in range(100)
    ]
    common = [1 / (1 + rank) for rank in range(len(sizes))]
    queues = dice.choices(list(CLASS_OF_QUEUE), [57, 1, 42], k=8_000)
    drawn = dice.choices(sizes, common, k=len(queues))
    pods = zip(drawn, queues, strict=True)
    return Trace(nodes, tuple(TracePod(f"pod-{at}", size, queue, at) for at, (size, queue) in enumerate(pods)))


def _amounts(vcore: int, memory_mib: int, gpu_milli: int) -> Mapping[str, int]:
    amounts = {"vcore": vcore, "memory": memory_mib * MIB, "gpu_milli": gpu_milli}
    return {name: amount for name, amount in amounts.items() if amount}


def _common_sizes(trace: Trace, count: int) -> list[Resources]:
    """Returns the *count* most common sizes of the class LS that half of the nodes could hold; where the trace has
    fewer, the same again with a little more of each."""
    counted = Counter(tuple(pod.resources.items()) for pod in trace.pods if pod.queue == LATENCY)
    sizes = [dict(size) for size, _ in counted.most_common() if _held_by_half(dict(size), trace.nodes)]
    return [
        Resources({**sizes[at % len(sizes)], "vcore": sizes[at % len(sizes)]["vcore"] + 10 * (at // len(sizes))})
        for at in range(count)
    ]


def _held_by_half(size: Mapping[str, int], nodes: Sequence[TraceNode]) -> bool:
    return 2 * sum(all(node.resources.get(t, 0) >= amount for t, amount in size.items()) for node in nodes) > len(nodes)


def _fill_nodes(nodes: Sequence[Resources], pods: Sequence[TracePod]) -> Iterator[tuple[int, Resources, int]]:
    """Yields tasks of *pods*, drawn by a seed, that fill *nodes*, and on each node one task that takes what none of
    those could."""
    dice = random.Random(SEED)
    for number, capacity in enumerate(nodes):
        free = dict(capacity)
        for pod in dice.choices(pods, k=40):
            if all(free.get(t, 0) >= amount for t, amount in pod.resources.items()):
                yield number, Resources(pod.resources), CLASS_OF_QUEUE[pod.queue].value
                for t, amount in pod.resources.items():
                    free[t] -= amount
        if rest := {t: amount for t, amount in free.items() if amount}:
            yield number, Resources(rest), CLASS_OF_QUEUE[BEST_EFFORT].value


def _require_room(nodes: Sequence[Resources], asks: Sequence[Resources]) -> None:
    left = [dict(node) for node in nodes]
    for ask in sorted(asks, key=lambda size: size["vcore"], reverse=True):
        free = next((free for free in left if all(free.get(t, 0) >= amount for t, amount in ask.items())), None)
        if free is None:
            raise AssertionError("the asks would not even fit on empty nodes")
        for t, amount in ask.items():
            free[t] -= amount


def _play_wave(cluster: OwedCluster, name: str, sizes: Sequence[Resources], case: Case) -> Played:
    cluster.ask(name, sizes, case.queues, case.asks, [CLASS_OF_QUEUE[LATENCY].value])
    most = slices_for(case.nodes, case.sizes * case.queues, case.asks)
    return cluster.play(most, until_placed=case.asks)
