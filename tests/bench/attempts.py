"""Single decisions in a large cluster: one attempt to preempt, and one run that enforces a lowered max."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterable, Iterator, Sequence

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import Effect, Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.service.machine.garbage import OLDER_THRESHOLDS, YOUNG_THRESHOLD
from kornel.core.state.options import EngineOptions
from tests.reading import status_of

PARTITION = "[bench]default"
SECOND_NS = 10**9
NODES, PER_NODE = 5_000, 20
LEAVES, ASKS = 200, 300
QUOTA_LEAVES, QUOTA_VICTIMS = 1_000, 10_000


def _size(units: int) -> Resources:
    return Resources({"vcore": units * 1_000, "memory": units})


def _amounts(units: int) -> str:
    return f"{{vcore: {units}, memory: {units}}}"


def _config(queues: str) -> str:
    root = f"{{name: root, submitacl: '*', queues: [{queues}]}}"
    # One run in one piece: by default it would be told to leave in parts, one each second.
    preemption = "{quotapreemptionenabled: true, governor: {victims: {quota: {interval: 0}}}}"
    return f"partitions: [{{name: default, preemption: {preemption}, queues: [{root}]}}]"


def _cluster(config: str, paths: list[str], seed: int | None) -> Engine:
    """All nodes full, the allocations spread over *paths*; with a *seed* of mixed priority and age."""
    source = random.Random(seed)
    engine = Engine(EngineOptions(reservation_delay_ns=None))
    engine.apply(RegisterManager("bench", config), 0)
    capacity, one = _size(PER_NODE), _size(1)
    nodes = (NodeSpec(f"n{at:05}", NodeAction.CREATE, PARTITION, capacity=capacity) for at in range(NODES))
    engine.apply(UpdateNodes("bench", tuple(nodes)), 0)
    engine.apply(
        UpdateApplications(
            "bench", tuple(ApplicationSpec(path, path, PARTITION, "u") for path in [*paths, "root.high"])
        ),
        0,
    )
    running = (
        AllocationSpec(
            f"k{at}",
            paths[at % len(paths)] if seed is None else source.choice(paths),
            PARTITION,
            one,
            node_id=f"n{at % NODES:05}",
            priority=0 if seed is None else source.randrange(4),
            created_s=1 + (at if seed is None else source.randrange(10_000)),
        )
        for at in range(NODES * PER_NODE)
    )
    engine.apply(UpdateAllocations("bench", tuple(running)), 0)
    while engine.cycle(SECOND_NS, 250).more:
        pass
    gc.collect()
    gc.freeze()  # As the service does with what has settled, and the thresholds are its own.
    gc.set_threshold(YOUNG_THRESHOLD, *OLDER_THRESHOLDS)
    return engine


SIZES = (1, 1, 2, 3, PER_NODE // 2, PER_NODE)


def attempts(
    seed: int,
    leaves: int = LEAVES,
    asks: int = ASKS,
    sizes: Sequence[int] = SIZES,
    priorities: Sequence[int] = (0, 2, 9),
) -> tuple[list[float], list[float]]:
    """Seconds of each attempt that searched, and of every call in between, confirmations of victims included.

    A third of the leaves hold about what they are guaranteed, a third are over, a third have no guarantee. The asks
    are as large as one allocation, a few, half a node, a whole node.
    """
    fair = NODES * PER_NODE // leaves
    guaranteed = [f", resources: {{guaranteed: {_amounts(amount)}}}" for amount in (fair, fair // 2)] + [""]
    low = [f"{{name: q{at}{guaranteed[at % 3]}}}" for at in range(leaves)]
    share = NODES * PER_NODE // 5
    high = f"{{name: high, resources: {{guaranteed: {_amounts(share)}}}, properties: {{preemption.delay: 3s}}}}"
    engine = _cluster(_config(", ".join([*low, high])), [f"root.q{at}" for at in range(leaves)], seed)
    source = random.Random(seed)
    specs = tuple(
        AllocationSpec(
            f"ask{at}", "root.high", PARTITION, _size(source.choice(sizes)),
            priority=source.choice(priorities), allow_preempt_other=True,
        )
        for at in range(asks)
    )  # fmt: skip
    engine.apply(UpdateAllocations("bench", specs), SECOND_NS)
    now_ns = 5 * SECOND_NS
    tried, others = [], []
    known = status_of(engine).partitions[0].preemption_attempts
    while (wakeup_ns := engine.next_wakeup_ns()) is not None and wakeup_ns < 15 * SECOND_NS:
        now_ns += 2_000_000
        began = time.process_time()
        result = engine.cycle(now_ns, 1)
        took = time.process_time() - began
        before, known = known, status_of(engine).partitions[0].preemption_attempts
        (tried if known > before else others).append(took)
        confirmed = tuple(_confirmed(result.effects))
        if confirmed:
            began = time.process_time()
            engine.apply(UpdateAllocations("bench", releases=confirmed), now_ns)
            others.append(time.process_time() - began)
        if now_ns > 15 * SECOND_NS:
            break
    gc.unfreeze()
    return tried, others


def _confirmed(effects: Iterable[Effect]) -> Iterator[ReleaseSpec]:
    for effect in effects:
        if isinstance(effect, Released):
            yield ReleaseSpec(PARTITION, effect.application_id, effect.key, TerminationType.PREEMPTED_BY_SCHEDULER)


def quota_run() -> list[float]:
    """Seconds of each slice of a run over a parent with many leaves whose max falls below what they use."""

    def config(most: int) -> str:
        leaves = ", ".join(f"{{name: q{at}}}" for at in range(QUOTA_LEAVES))
        delay = "properties: {quota.preemption.delay: 1s}"
        parent = f"{{name: p, resources: {{max: {_amounts(most)}}}, {delay}, queues: [{leaves}]}}"
        return _config(f"{parent}, {{name: high}}")

    total = NODES * PER_NODE
    engine = _cluster(config(total), [f"root.p.q{at}" for at in range(QUOTA_LEAVES)], 1)
    engine.apply(UpdateConfiguration("bench", config(total - QUOTA_VICTIMS)), 2 * SECOND_NS)
    while engine.cycle(2 * SECOND_NS, 250).more:
        pass
    taken: list[float] = []
    victims = 0
    more = True
    while more:
        began = time.process_time()
        result = engine.cycle(4 * SECOND_NS, 250)
        taken.append(time.process_time() - began)
        victims += sum(isinstance(effect, Released) for effect in result.effects)
        more = result.more
    gc.unfreeze()
    if victims != QUOTA_VICTIMS:
        raise AssertionError(f"{victims} victims for a max lowered by {QUOTA_VICTIMS}")
    return taken


def percentile(values: list[float], percent: int) -> float:
    return sorted(values)[(len(values) * percent - 1) // 100] * 1000
