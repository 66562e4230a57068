"""Groups of equal asks."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.commands import AllocationSpec, ApplicationSpec
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import QueueProperties
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape


class Asks:
    """Equal asks of one application, and a group for them."""

    def __init__(self) -> None:
        leaf = Queue("a", None, leaf=True, properties=QueueProperties(), width=1, order_key=id)
        self.shape = Shape(Resources({"vcore": 1}), ((0, 1),))
        self._application = Application(ApplicationSpec("app", "a", "p"), leaf, "user", 0, [0])
        self._arrivals = 0
        self.group = AskGroup(self._application, self.shape, 1)

    def made(self, created_ns: int, priority: int = 0) -> Allocation:
        self._arrivals += 1
        spec = AllocationSpec(f"k{self._arrivals}", "app", "p", None, priority=priority)
        return Allocation(spec, self._application, self.shape, created_ns, self._arrivals)


def test_asks_that_left_do_not_pile_up_behind_one_that_waits() -> None:
    """While the first ask waits for ever, thousands come and go behind it."""
    asks = Asks()
    group = asks.group
    first, last = asks.made(0), asks.made(10_000)
    group.add(first)
    group.add(last)
    for number in range(1, 3_000):
        passing = asks.made(number)
        group.add(passing)
        group.remove(passing)
    gc.collect()
    assert sum(isinstance(thing, Allocation) for thing in gc.get_referrers(asks.shape)) < 200
    assert group.first_ask() is first
    assert group.asks() == [first, last]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 5), st.integers(0, 2)),
            st.tuples(st.just("remove"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("ask"), st.just(0), st.just(0)),
        )
    )
)
def test_the_oldest_is_known_whatever_comes_and_goes(steps: list[tuple[str, int, int]]) -> None:
    """Of any priority, and with asks that come back."""
    asks = Asks()
    inside: list[Allocation] = []
    outside: list[Allocation] = []
    for what, number, priority in steps:
        if what == "add":
            ask = outside.pop() if outside and priority else asks.made(number, priority)
            asks.group.add(ask)
            inside.append(ask)
        elif what == "remove" and inside:
            outside.append(inside.pop(number % len(inside)))
            asks.group.remove(outside[-1])
        elif inside:
            assert asks.group.oldest_ns() == min(ask.created_ns for ask in inside)


def test_an_ask_behind_others_may_be_the_oldest() -> None:
    asks = Asks()
    urgent, old = asks.made(9, priority=1), asks.made(3)
    asks.group.add(urgent)
    asks.group.add(old)
    assert (asks.group.first_ask(), asks.group.oldest_ns()) == (urgent, 3)
    asks.group.remove(old)
    assert asks.group.oldest_ns() == 9
