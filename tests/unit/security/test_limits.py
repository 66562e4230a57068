"""Token buckets for each peer, and that peers without number cost no memory without bound."""

from __future__ import annotations

from kornel.core.security.limits import Buckets
from kornel.core.service.machine.clock import SECOND_NS


def test_a_burst_and_then_the_rate() -> None:
    buckets = Buckets(2.0, 3)
    assert [buckets.take_one("a", 0) for _ in range(4)] == [True, True, True, False]
    assert not buckets.take_one("a", SECOND_NS // 2 - 1)
    assert buckets.take_one("a", SECOND_NS // 2)
    assert not buckets.take_one("a", SECOND_NS // 2)
    assert [buckets.take_one("a", 100 * SECOND_NS) for _ in range(4)] == [True, True, True, False]


def test_peers_do_not_share() -> None:
    buckets = Buckets(1.0, 1)
    assert buckets.take_one("a", 0)
    assert buckets.take_one("b", 0)
    assert not buckets.take_one("a", 0)


def test_looking_counts_nothing() -> None:
    buckets = Buckets(1.0, 1)
    assert not buckets.is_empty("a", 0)
    assert len(buckets) == 0
    assert buckets.take_one("a", 0)
    assert buckets.is_empty("a", 0)
    assert not buckets.is_empty("a", SECOND_NS)


def test_memory_is_bounded_and_the_one_who_calls_stays() -> None:
    buckets = Buckets(1.0, 1, most_peers=100)
    for number in range(10_000):
        buckets.take_one("busy", 0)
        buckets.take_one(f"peer-{number}", 0)
    assert len(buckets) == 100
    assert buckets.is_empty("busy", 0), "a flood of others does not fill its bucket again"
