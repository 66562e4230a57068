"""At each quiet point every number that REST, the commands and the metrics show is a recount of the shim's messages.

The recount knows what the shim said and was answered, and of the core only in which queue each application is. The CSV
of the page is made of the documents of REST (``tests/e2e/web/test_saved_lists.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pytest

from kornel.core.domain.effects import Effect
from kornel.core.metrics.decisions import Decisions, QueueCounts
from kornel.core.metrics.queue_series import QueueSeries
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling import reader
from kornel.core.telling.encoding.kornel_v1 import encode_node_summary, encode_queue
from kornel.core.telling.encoding.yunikorn.cluster import PARTITION
from kornel.core.telling.encoding.yunikorn.nodes import write_node_summary
from kornel.core.telling.encoding.yunikorn.queues import write_queue
from kornel.core.telling.partitions.partition_gauges import PartitionGauges
from kornel.core.telling.queues import queue_views
from kornel.core.telling.reader import PartitionReader, Reader
from tests.examples import mark_rest_long
from tests.exposition import by_key
from tests.properties.machine import driver
from tests.properties.machine.view import Amounts, PartitionView, RequestView, add, without_zeros
from tests.properties.machine.world import World


class NumbersDiffer(AssertionError):
    """A number that is shown is not the recount."""


def compare(what: str, shown: object, counted: object) -> None:
    if shown != counted:
        raise NumbersDiffer(f"{what}: shown {shown}, counted {counted}")


class Recounting(World):
    """A world that is scraped while effects are held back, and that counts again at quiet points."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = 0
        self.restarted = False
        self._held: list[Sequence[Effect]] = []
        self._placed: dict[int, tuple[RequestView, str]] = {}
        self._start_core()

    def _start_core(self) -> None:
        """What a core does that begins to decide with the state of another: what runs is counted as allocated."""
        self.decisions = Decisions(self._queue_of, lambda: self.now_ns)
        self.series = QueueSeries()
        self.decisions.take_baseline(self._gauges())
        self.starts = Counter(path for _, path in self._placed.values())
        self.ends: Counter[str] = Counter()

    def _queue_of(self, application_id: str) -> str:
        return Reader(self.engine, lambda: self.now_ns).queue_of(application_id)

    def _count(self, effects: Sequence[Effect]) -> None:
        super()._count(list(effects))
        self._held.append(effects)

    def _check(self, *, settled: bool) -> None:
        super()._check(settled=settled)
        self._follow_placements()
        if len(self.calls) % 3 == 0:
            self._scrape()
        while len(self._held) > (0 if settled else 4):
            self.decisions.observe(self._held.pop(0))
        if settled:
            self._recount()
            if self.compared % 20 == 19:
                self.restarted = True
                self._start_core()

    def _follow_placements(self) -> None:
        """Counts starts and ends by what the shim heard of each request."""
        now: dict[int, tuple[RequestView, str]] = {}
        for state, view in zip(self.states(), self.contract.partitions.values(), strict=True):
            for request in view.requests.values():
                if request.node:
                    path = state.applications[request.owner].queue.path
                    now[id(request)] = self._placed.get(id(request), (request, path))
        self.starts.update(path for each, (_, path) in now.items() if each not in self._placed)
        self.ends.update(path for each, (_, path) in self._placed.items() if each not in now)
        self._placed = now

    def _gauges(self) -> list[PartitionGauges]:
        partitions = Reader(self.engine, lambda: self.now_ns).partitions()
        return [found for views in partitions for found in views.gauges(1_000) if found is not None]

    def _scrape(self) -> dict[tuple[str, ...], float]:
        self.decisions.begin_scrape()
        gauges = self._gauges()
        self.decisions.everywhere.match_running(sum(each.allocations for each in gauges))
        return by_key("".join(self.series.write_lines(gauges, self.decisions.queues)))

    def _recount(self) -> None:
        states = self.states()
        if any(p.replacing() for p in self.contract.partitions.values()):
            return
        if any(node.held for state in states for node in state.nodes.values()):
            return
        self.compared += 1
        views_of = Reader(self.engine, lambda: self.now_ns)
        for state, view in zip(states, self.contract.partitions.values(), strict=True):
            views = views_of[state.name]
            placed = [request for request in view.requests.values() if request.node]
            waiting = [request for request in view.requests.values() if not request.node]
            check_nodes(views, view, placed)
            check_queues(state, views, placed, waiting)
            check_partition(views, placed)
            *_, gauges = views.gauges(1_000)
            assert gauges is not None
            compare("kornel_allocations", gauges.allocations, len(placed))
            compare("kornel_asks_pending", gauges.asks, len(waiting))
        self._check_containers()

    def _check_containers(self) -> None:
        found = self._scrape()
        name = "kornel_queue_containers_total"
        for path in {key[1] for key in found if key[0] == name}:
            started, ended = found[name, path, "allocated"], found[name, path, "released"]
            compare(f"{name} of {path}, running", started - ended, self.starts[path] - self.ends[path])
            if not self.restarted:
                # The queue of an application that ended before its placement was observed is known only of those that
                # this core has seen accepted.
                compare(f"{name} of {path}, allocated", started, self.starts[path])
                compare(f"{name} of {path}, released", ended, self.ends[path])
        everywhere = self.decisions.everywhere
        compare("allocated", everywhere.allocated, self.starts.total())
        compare("released", everywhere.released, self.ends.total())


def check_nodes(views: PartitionReader, view: PartitionView, placed: Iterable[RequestView]) -> None:
    held: dict[str, Amounts] = {node_id: {} for node_id in view.nodes}
    foreign: dict[str, Amounts] = {node_id: {} for node_id in view.nodes}
    numbers: Counter[str] = Counter()
    for request in placed:
        add(held[request.node], request.size)
        numbers[request.node] += 1
    for load in view.foreign.values():
        add(foreign[load.node], load.size)
    compare("nodes", {node.node_id for node in views.nodes()}, set(view.nodes))
    for node in views.nodes():
        what, free = f"node {node.node_id}", dict(view.nodes[node.node_id].capacity)
        add(free, held[node.node_id], -1)
        add(free, foreign[node.node_id], -1)
        expected = {
            "capacity": view.nodes[node.node_id].capacity,
            "allocated": held[node.node_id],
            "occupied": foreign[node.node_id],
            "available": free,
        }
        document = write_node_summary(node)
        for field, amounts in expected.items():
            compare(f"REST {what} {field}", nonzero(document.get(field)), without_zeros(amounts))
    for summary in views.node_summaries():
        message = encode_node_summary(summary)
        compare(f"kornel nodes {message.node_id}", message.allocation_count, numbers[message.node_id])
        compare(f"kornel nodes {message.node_id}", nonzero(message.allocated), without_zeros(held[message.node_id]))


def check_queues(
    state: PartitionState, views: PartitionReader, placed: Iterable[RequestView], waiting: Iterable[RequestView]
) -> None:
    used, pending = (sum_by_queue(state, requests) for requests in (placed, waiting))
    for queue in views.queues():
        document, message = write_queue(queue, ""), encode_queue(queue)
        for what, rest, command, amounts in (
            ("used", document.get("allocatedResource"), message.used, used.get(queue.path)),
            ("pending", document.get("pendingResource"), message.pending, pending.get(queue.path)),
        ):
            compare(f"REST queue {queue.path} {what}", nonzero(rest), without_zeros(amounts or {}))
            compare(f"kornel queues {queue.path} {what}", nonzero(command), without_zeros(amounts or {}))


def check_partition(views: PartitionReader, placed: Sequence[RequestView]) -> None:
    document = PARTITION.write(views.partition())
    used: Amounts = {}
    for request in placed:
        add(used, request.size)
    compare("REST totalContainers", document.get("totalContainers", 0), len(placed))
    compare("REST usedCapacity", nonzero(document["capacity"].get("usedCapacity")), without_zeros(used))


def sum_by_queue(state: PartitionState, requests: Iterable[RequestView]) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    for request in requests:
        for queue in state.applications[request.owner].queue.lineage():
            add(found.setdefault(queue.path, {}), request.size)
    return found


def nonzero(amounts: Mapping[str, int] | None) -> Amounts:
    return without_zeros(dict(amounts or {}))


@pytest.mark.parametrize("seed", mark_rest_long(range(12)))
def test_numbers_are_a_recount(seed: int) -> None:
    """Six hundred random steps for each seed, and a clean-up, after which nothing runs."""
    world = Recounting()
    driver.episode(f"numbers/{seed}", 600, world)
    assert world.compared > 5


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_numbers_are_a_recount_in_a_hundred_thousand_steps(seed: int) -> None:
    driver.episode(f"more numbers/{seed}", 1_000, Recounting())


def _forget_waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda state, now_ns, most: (
        found and found._replace(asks=found.asks + 1) for found in original(state, now_ns, most)
    )


def _release_too_many(original: Callable[..., Any]) -> Callable[..., Any]:
    def match_running(counts: QueueCounts, running: int) -> None:
        counts.released += 7
        original(counts, running)

    return match_running


def _count_what_runs(_: object) -> Callable[..., Any]:
    def match_running(counts: QueueCounts, running: int) -> None:
        counts.take_baseline(running)
        counts.allocated = counts.placed

    return match_running


FAULTS: Final[dict[str, tuple[Any, str, Callable[[Any], Any]]]] = {
    "releases are counted": (QueueCounts, "match_running", lambda _: lambda counts, _running: None),
    "seven releases a scrape": (QueueCounts, "match_running", _release_too_many),
    "placements in flight count twice": (QueueCounts, "match_running", _count_what_runs),
    "one ask too many": (reader, "look_at_gauges", _forget_waiting),
    "used shows what is pending": (
        queue_views, "queue_view", lambda original: lambda *given: (v := original(*given))._replace(used=v.pending)
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, mutate = FAULTS[fault]
    monkeypatch.setattr(owner, name, mutate(getattr(owner, name)))
    with pytest.raises(driver.StepFailed, match="NumbersDiffer"):
        driver.episode("fault", 1_000, Recounting())
