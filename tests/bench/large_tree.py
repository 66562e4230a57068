"""A tree of 10,000 queues, six levels deep, with a max and limits on each: reading it, one change, and work in it.

Reading is done as the service does it: in a thread, while the loop that schedules goes on. A pause is how long that
loop did not get its turn, in wall time; the rest is processor time.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.model import Configuration
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.service.machine.garbage import OLDER_THRESHOLDS, YOUNG_THRESHOLD, GarbageKeeper
from kornel.core.service.runner.runner import SLICE_BUDGET
from tests.bench.core_process import RM
from tests.bench.report import Figure, show

PARTITION = f"[{RM}]default"
QUEUES = 10_000
PARENTS = (4, 5, 5, 6)
"""Children of each queue on the levels from the root; the leaves below are what is left of QUEUES."""

FEW, MANY = 1_000, 100_000
ASKS = 20_000
USERS = 20
_OWN = "limits: [{limit: own, users: ['*'], maxapplications: 1000000, maxresources: {vcore: 100000}}]"


@dataclass(frozen=True, slots=True)
class Reload:
    """Seconds."""

    read_s: float
    apply_s: float
    total_s: float
    longest_pause_s: float


def _paths() -> list[str]:
    """All queues but the root, parents first, level by level."""
    level, paths = ["root"], list[str]()
    for children in PARENTS:
        level = [f"{path}.p{n}" for path in level for n in range(children)]
        paths += level
    each, more = divmod(QUEUES - 1 - len(paths), len(level))
    return paths + [f"{path}.q{n}" for number, path in enumerate(level) for n in range(each + (number < more))]


def _text(paths: list[str], changed: str = "") -> str:
    below: dict[str, list[str]] = {}
    for path in paths:
        below.setdefault(path.rpartition(".")[0], []).append(path)

    def lines(path: str, indent: str) -> Iterator[str]:
        yield f"{indent}- name: {path.rpartition('.')[2]}"
        if path != "root":
            yield f"{indent}  resources: {{max: {{vcore: {999_999 if path == changed else 1_000_000}}}}}"
        yield f"{indent}  {_OWN}"
        if path in below:
            yield f"{indent}  queues:"
            for child in below[path]:
                yield from lines(child, indent + "  ")

    head = "partitions:\n  - name: default\n    queues:\n"
    return (
        head + "\n".join(lines("root", "      ")).replace("- name: root", "- name: root\n        submitacl: '*'") + "\n"
    )


def _load(reader: ConfigurationReader, text: str) -> float:
    with GarbageKeeper().pause_while_building():
        began = time.process_time()
        reader.load(text)
        took = time.process_time() - began
    gc.unfreeze()
    return took


async def _reload(engine: Engine, reader: ConfigurationReader, text: str) -> Reload:
    """Bring *text* into force beside a loop that is always ready for its next turn."""
    garbage = GarbageKeeper()
    pauses: list[float] = []

    async def turns() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            pauses.append(now - last)
            last = now

    def read() -> Configuration:
        return share_equal_parts(reader.load(text), engine.configuration)

    others = asyncio.create_task(turns())
    await asyncio.sleep(0.01)
    began, worked = time.perf_counter(), time.process_time()
    with garbage.pause_while_building():
        configuration = await asyncio.to_thread(read)
    read_s = time.process_time() - worked
    worked = time.process_time()
    engine.prepare_configuration(text, configuration)
    engine.apply(UpdateConfiguration(RM, text), 1)
    apply_s = time.process_time() - worked
    del configuration
    total_s = time.perf_counter() - began
    await asyncio.sleep(0.01)
    others.cancel()
    gc.unfreeze()
    return Reload(read_s, apply_s, total_s, max(pauses))


def _place(text: str, leaves: list[str], applications: int) -> tuple[float, float]:
    """Seconds per allocation with so many applications alive, each of which holds something already.

    Asks come in batches of FEW, one for each of as many applications: first of all applications in turn, then of the
    same FEW again and again.
    """
    engine = Engine()
    engine.apply(RegisterManager(RM, text), 0)
    capacity = Resources({"vcore": 64_000})
    nodes = (NodeSpec(f"node-{n:05}", NodeAction.CREATE, PARTITION, capacity=capacity) for n in range(1_000))
    engine.apply(UpdateNodes(RM, tuple(nodes)), 0)
    # A stride that shares no factor with the number of leaves, so that few applications lie all over the tree too.
    specs = tuple(
        ApplicationSpec(f"app-{n}", leaves[n * 7919 % len(leaves)], PARTITION, user=f"user-{n % USERS}")
        for n in range(applications)
    )
    engine.apply(UpdateApplications(RM, specs), 0)
    _asks(engine, "first", range(applications))
    # As the service does: what has settled is out of the collector's sight, and the thresholds are its own.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, *OLDER_THRESHOLDS)
    step = applications // FEW
    batches = [range(batch % step, applications, step) for batch in range(ASKS // FEW)]
    spread = sum(_asks(engine, f"next-{batch}", chosen) for batch, chosen in enumerate(batches))
    same = sum(_asks(engine, f"same-{batch}", batches[0]) for batch in range(len(batches)))
    gc.unfreeze()
    return spread / ASKS, same / ASKS


def _asks(engine: Engine, name: str, applications: range) -> float:
    """Seconds until an ask of each of *applications* is placed."""
    size = Resources({"vcore": 100})
    asks = tuple(AllocationSpec(f"{name}-{n}", f"app-{n}", PARTITION, size) for n in applications)
    began = time.process_time()
    engine.apply(UpdateAllocations(RM, asks), 1)
    placed, more = 0, True
    while more:
        result = engine.cycle(1, SLICE_BUDGET)
        placed += sum(isinstance(effect, Allocated) for effect in result.effects)
        more = result.more
    took = time.process_time() - began
    if placed != len(asks):
        raise AssertionError(f"{placed} of {len(asks)} asks were placed")
    return took


def report(runs: int) -> bool:
    paths = _paths()
    leaves = [path for path in paths if path.rpartition(".")[2].startswith("q")]
    text = _text(paths)
    changed = _text(paths, leaves[len(leaves) // 2])
    passed_on = changed.replace("submitacl: '*'", "submitacl: '*'\n        properties: {application.sort.policy: fair}")
    loads, reloads, everywhere, few, many = [], [], [], [], []
    for _ in range(runs):
        reader = ConfigurationReader()
        loads.append(_load(reader, text))
        engine = Engine()
        engine.prepare_configuration(text, reader.load(text))
        engine.apply(RegisterManager(RM, text), 0)
        reloads.append(asyncio.run(_reload(engine, reader, changed)))
        everywhere.append(asyncio.run(_reload(engine, reader, passed_on)))
        del engine, reader
        few.append(_place(text, leaves, FEW))
        many.append(_place(text, leaves, MANY))
    pauses = [reload.longest_pause_s * 1e3 for reload in reloads]
    ratios, same = ([b[at] / a[at] for a, b in zip(few, many, strict=True)] for at in (0, 1))
    figures = [
        Figure("reading it", "s", loads, 2, at_most=True, each_s=0),
        Figure("one change: all of it, wall time", "s", [r.total_s for r in reloads], 0.5, at_most=True, each_s=0),
        Figure("one change: reading, in a thread", "s", [r.read_s for r in reloads], each_s=0),
        Figure("one change: applying", "ms", [r.apply_s * 1e3 for r in reloads], each_s=0),
        Figure("one change: longest pause", "ms", pauses, 50, at_most=True, each_s=0),
        Figure("one that all inherit: all of it", "s", [r.total_s for r in everywhere], each_s=0),
        Figure("one that all inherit: applying", "ms", [r.apply_s * 1e3 for r in everywhere], each_s=0),
        Figure(f"placing with {FEW:,} applications", "/s", [1 / each for each, _ in few]),
        Figure(f"placing with {MANY:,} applications", "/s", [1 / each for each, _ in many]),
        Figure("cost per allocation, many to few", "x", ratios, 1.5, at_most=True, each_s=0),
        Figure(f"the same, {FEW:,} of them ask", "x", same, 1.5, at_most=True, each_s=0),
    ]  # fmt: skip
    title = f"large tree: {len(paths) + 1:,} queues, {len(PARENTS) + 2} levels, a max and limits on each"
    return show(title, figures, "what did not change is neither read nor applied again")
