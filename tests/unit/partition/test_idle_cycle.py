"""A cycle with nothing to do costs next to nothing: no kind of preemption is called that has no work."""

from __future__ import annotations

from kornel.core.domain.effects import Allocated, Released
from tests.bench.visited_files import SECOND_NS, Small, count_calls, visit

MOST_CALLS = 15


def calls_of_a_cycle(small: Small) -> int:
    small.now_ns += SECOND_NS
    return count_calls(visit(lambda: small.engine.cycle(small.now_ns, 100)))


def test_a_cycle_of_a_partition_where_nobody_waits() -> None:
    """The clock alone gives nobody anything to do."""
    small = Small()
    small.send_asks("batch", "k1", "k2")
    small.wait(1.0)
    assert calls_of_a_cycle(small) <= MOST_CALLS
    assert calls_of_a_cycle(small) <= MOST_CALLS


def test_a_cycle_before_an_attempt_is_due() -> None:
    """An ask that is too young to preempt costs nothing until it is old enough, and preempts in that very cycle."""
    small = Small()
    small.send_asks("batch", *(f"b{at}" for at in range(16)))
    small.send_asks("owed", "k", preempts=True)
    small.now_ns += SECOND_NS // 4
    small.engine.cycle(small.now_ns, 100)
    small.now_ns += SECOND_NS // 4
    assert count_calls(visit(lambda: small.engine.cycle(small.now_ns, 100))) <= MOST_CALLS
    assert any(isinstance(effect, Released) for effect in small.wait(0.5))


def test_the_first_cycle_after_a_change_does_its_work() -> None:
    """What arrives between two cycles without work is served by the next one."""
    small = Small()
    small.wait(1.0)
    assert calls_of_a_cycle(small) <= MOST_CALLS
    assert any(isinstance(effect, Allocated) for effect in small.send_asks("batch", "k"))
