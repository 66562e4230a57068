"""How many allocations may share keys: an ask of a few bytes can mean ten thousand of them (protocol.md 3.4)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kornel.core.domain.allocation_ids import MOST_INSTANCES, MOST_SHARING
from kornel.core.domain.commands import ReleaseSpec, UpdateAllocations
from kornel.core.domain.effects import AllocationRejected
from tests.driven_core import DrivenCore
from tests.reading import status_of


class Cluster(DrivenCore):
    """An engine with one application and no node, so that asks stay asks."""

    def __init__(self) -> None:
        super().__init__()
        self.application("app", tags=(("namespace", "here"),))

    def ask(self, key: str, number: int) -> list[str]:
        """Ask for *number* allocations under *key*; the reasons of what is refused."""
        effects = self.submit("app", [key], {"vcore": 1}, legacy=True, max_allocations=number)
        return [effect.reason for effect in effects if isinstance(effect, AllocationRejected)]

    def withdraw(self, key: str) -> None:
        self.apply(UpdateAllocations(self.rm_id, ask_releases=(ReleaseSpec(self.partition, "app", key, 0),)))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    (partition,) = status_of(cluster.engine, audited=True).partitions
    assert partition.invariant_violations == 0


def test_asks_of_ten_thousand_allocations_are_bounded_together(cluster: Cluster) -> None:
    """Each ask may mean that many, two hundred of them may not; asks for one allocation go on being taken."""
    whole = MOST_SHARING // (MOST_INSTANCES - 1)
    assert not [reason for number in range(whole) for reason in cluster.ask(f"k{number}", MOST_INSTANCES)]
    (reason,) = cluster.ask("more", MOST_INSTANCES)
    assert reason.startswith("max-allocations: ")
    assert cluster.ask("single", 1) == []
    assert cluster.ask("k0", MOST_INSTANCES) == [], "what is there already makes no more"
    cluster.withdraw("k0")
    assert cluster.ask("more", MOST_INSTANCES) == []


def count_calls(act: Callable[[], object]) -> int:
    """How many functions of Python *act* calls."""
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls


def test_another_number_costs_what_it_changes(cluster: Cluster) -> None:
    """Whoever stays is looked at and left alone: two calls each, where ten were made to find that nothing changes."""
    many = 2_000
    cluster.ask("k", many)
    for number in (many, many - 1, many):
        assert count_calls(partial(cluster.ask, "k", number)) < many * 3
    assert len(cluster.state.requests) == many


def test_another_number_and_something_else_at_once(cluster: Cluster) -> None:
    """A priority that comes with another number counts for all of them."""
    cluster.ask("k", 5)
    cluster.submit("app", ["k"], {"vcore": 1}, legacy=True, max_allocations=3, priority=7)
    assert [request.spec.priority for request in cluster.state.requests.values()] == [7, 7, 7]
