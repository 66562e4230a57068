"""How long answers of resolvers are kept: config.md 11, T84."""

from __future__ import annotations

import pytest

from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.resolvers.cache import Answer, GroupCache, Person

BOB = Person("os", "bob")
FOUND = Answer(("dev",))
NOT_FOUND = Answer((), "no such user")


@pytest.mark.parametrize(
    ("answer", "seconds", "known"),
    [
        pytest.param(FOUND, 299, True, id="T84 found 299 s ago"),
        pytest.param(FOUND, 301, False, id="T84 found 301 s ago"),
        pytest.param(NOT_FOUND, 29, True, id="T84 not found 29 s ago"),
        pytest.param(NOT_FOUND, 31, False, id="T84 not found 31 s ago"),
    ],
)
def test_age(answer: Answer, seconds: int, known: bool) -> None:
    """Groups are good for 300 s, a failure for 30 s."""
    clock = ManualClock()
    cache = GroupCache(clock)
    cache.put(BOB, answer)
    clock.advance(seconds * SECOND_NS)
    assert cache.get(BOB) == (answer if known else None)


def test_cleaner_removes_what_is_over() -> None:
    """T84: each answer is gone with the first cleaning after its time; with the last one the timer is gone too."""
    clock = ManualClock()
    cache = GroupCache(clock)
    cache.put(BOB, FOUND)
    cache.put(Person("os", "sue"), NOT_FOUND)
    clock.advance(59 * SECOND_NS)
    assert len(cache) == 2
    clock.advance(SECOND_NS)
    assert len(cache) == 1
    clock.advance(240 * SECOND_NS)
    assert len(cache) == 0
    assert clock.next_call_ns() is None


def test_resolvers_do_not_share_answers() -> None:
    """One user is two people to two kinds of resolver (B17)."""
    cache = GroupCache(ManualClock())
    cache.put(BOB, FOUND)
    assert cache.get(Person("ldap", "bob")) is None
