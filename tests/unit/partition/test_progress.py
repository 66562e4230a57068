"""The law of progress: slices in a row that decide nothing come to an end (scheduling.md 4.1)."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappush

import pytest

from kornel.core.domain.resources import Resources
from kornel.core.preemption import slices
from kornel.core.preemption.kind import Driver
from kornel.core.state.partition_state import PartitionState
from tests.owed_cluster import BUDGET, OwedCluster

SIZE = Resources({"vcore": 1_000})
WAITING = "1 asks wait, 1 attempts are scheduled, 0 steps of searches are left"
MOST = 100
"""More slices than a cluster of two nodes and one ask has turns."""


@pytest.fixture
def cluster() -> OwedCluster:
    cluster = OwedCluster([SIZE, SIZE], 1, Resources({}), 3_000)
    cluster.run([(0, SIZE, 0), (1, SIZE, 0)])
    cluster.ask("a", [SIZE], 1, 1)
    return cluster


def _run_slices(cluster: OwedCluster, count: int) -> list[str]:
    """Runs *count* slices. Returns what the engine says of those that break the law."""
    found: list[str] = []
    for _ in range(count):
        found += cluster.engine.cycle(cluster.now_ns, BUDGET).standing.values()
    return found


def _plant(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    for drivers in ("_IN_SLICES", "_BUSY", "_WORKING"):
        monkeypatch.setattr(slices, drivers, (driver,))


def test_an_idle_engine_makes_progress(cluster: OwedCluster) -> None:
    assert _run_slices(cluster, 10 * MOST) == []
    assert cluster.state.law_violations == 0


def test_a_kind_that_is_busy_for_ever_is_found_once(cluster: OwedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said names the partition and what waits there."""
    _plant(monkeypatch, Driver(is_busy=lambda _: True))
    found = _run_slices(cluster, 10 * MOST)
    assert [line.partition(": ")[2] for line in found] == [WAITING]
    assert (cluster.state.law_checks, cluster.state.law_violations) == (1, 1)


def test_an_attempt_that_is_always_due_is_found(cluster: OwedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a slice does not end with more to do, but with a time that has come already."""
    ask = next(ask for ask in cluster.state.requests.values() if ask.spec.key == "a0")

    def offer_again(state: PartitionState, now_ns: int) -> None:
        state.attempts_due.clear()
        heappush(state.attempts_due, (now_ns, state.next_number(), ask))

    offer_again(cluster.state, cluster.now_ns)
    monkeypatch.setattr(slices, "offer_due", offer_again)
    assert len(_run_slices(cluster, MOST)) == 1


def test_work_that_falls_is_progress(cluster: OwedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    left = 10 * MOST

    def take_step(state: PartitionState, now_ns: int, budget: int) -> None:
        nonlocal left
        left -= 1

    busy = Driver(is_busy=lambda _: left > 0, advance=take_step, work_left=lambda _: left)
    _plant(monkeypatch, busy)
    assert _run_slices(cluster, 9 * MOST) == []
    left = 10 * MOST
    _plant(monkeypatch, replace(busy, advance=lambda *_: None))
    assert len(_run_slices(cluster, 2 * MOST)) == 1


def test_searches_that_throw_each_other_out_are_found(cluster: OwedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work left falls within each search, but each search begins anew when the other one has had its turn."""
    left = 0

    def take_step(state: PartitionState, now_ns: int, budget: int) -> None:
        nonlocal left
        left = left - 1 if left else 3

    _plant(monkeypatch, Driver(is_busy=lambda _: True, advance=take_step, work_left=lambda _: left))
    assert len(_run_slices(cluster, 10 * MOST)) == 1


def test_a_change_of_the_books_begins_anew(cluster: OwedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices that stand still between changes are not counted together, and each time is counted."""
    _plant(monkeypatch, Driver(is_busy=lambda _: True))
    for _ in range(3 * MOST):
        cluster.state.changes += 1
        assert _run_slices(cluster, 50) == []
    assert len(_run_slices(cluster, MOST)) == 1
    cluster.state.changes += 1
    assert len(_run_slices(cluster, MOST)) == 1
    assert cluster.state.law_violations == 2
