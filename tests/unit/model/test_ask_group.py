"""Groups of equal asks."""

from __future__ import annotations

import gc

from core.domain.commands import AllocationSpec, ApplicationSpec
from core.domain.resources import Resources
from core.domain.settings import QueueProperties
from core.model.allocations import Allocation, AskGroup
from core.model.applications import Application
from core.model.queues import Queue
from core.model.shapes import Shape


def test_asks_that_left_do_not_pile_up_behind_one_that_waits() -> None:
    """While the first ask waits for ever, thousands come and go behind it."""
    leaf = Queue("a", None, leaf=True, properties=QueueProperties(), width=1, order_key=id)
    application = Application(ApplicationSpec("app", "a", "p"), leaf, "user", 0, 1)
    shape = Shape(Resources({"vcore": 1}), ((0, 1),))

    def ask(number: int) -> Allocation:
        return Allocation(AllocationSpec(f"k{number}", "app", "p", None), application, shape, number, number)

    group = AskGroup(application, shape, "", 1)
    first, last = ask(0), ask(10_000)
    group.add(first)
    group.add(last)
    for number in range(1, 3_000):
        passing = ask(number)
        group.add(passing)
        group.remove(passing)
    gc.collect()
    assert sum(isinstance(thing, Allocation) for thing in gc.get_referrers(shape)) < 200
    assert group.head() is first
    assert group.asks() == [first, last]
