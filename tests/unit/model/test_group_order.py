"""The order of an application's groups, and the fields that few asks have, against the plain way to do it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.commands import AllocationSpec, ApplicationSpec
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import QueueProperties
from kornel.core.model.allocations import NO_VICTIMS, Allocation, AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.orders.group_order import GroupOrder
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.policies.application_order import application_key

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "place", "withdraw", "set aside", "offer"]),
        st.integers(0, 4),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=80,
)


def application() -> Application:
    queue = Queue("a", None, leaf=True, properties=QueueProperties(), width=0, order_key=application_key)
    return Application(ApplicationSpec("app", "root.a", "default"), queue, "user", 0, [])


def ask(owner: Application, arrival: int, *, priority: int = 0, created_ns: int = 0) -> Allocation:
    spec = AllocationSpec(f"ask-{arrival}", "app", "default", Resources({"vcore": 1}), priority=priority)
    return Allocation(spec, owner, Shape(Resources({"vcore": 1}), ()), created_ns, arrival)


@given(OPERATIONS)
def test_the_first_group_is_that_of_the_first_ask(history: list[tuple[str, int, int, int]]) -> None:
    """Whatever was asked, placed, withdrawn, set aside and offered again: no other active group has an earlier ask."""
    owner, order = application(), GroupOrder()
    groups = [AskGroup(owner, Shape(Resources({"vcore": n}), ()), n) for n in range(5)]
    waiting: dict[AskGroup, list[Allocation]] = {group: [] for group in groups}
    active: set[AskGroup] = set()
    for arrival, (action, which, priority, age) in enumerate(history):
        group = groups[which]
        if action == "ask":
            asked = ask(owner, arrival, priority=priority, created_ns=age)
            group.add(asked)
            waiting[group].append(asked)
            active.add(group)
            order.offer_group(group)
        elif action in ("place", "withdraw") and waiting[group]:
            gone = group.first_ask() if action == "place" else waiting[group][age % len(waiting[group])]
            waiting[group].remove(gone)
            group.remove(gone)
        elif action == "offer" and waiting[group]:
            active.add(group)
            order.offer_group(group)
        elif action == "set aside":
            active.discard(group)
            order.discard(group)
        if not waiting[group]:
            active.discard(group)
            order.discard(group)
        expected = min(active, key=lambda g: min(a.order for a in waiting[g]), default=None)
        assert order.first_group() is expected
        assert set(order) == active
        assert len(order) == len(active)


def test_new_heads_do_not_pile_up() -> None:
    """Asks that come each before the other leave few entries behind."""
    owner, order = application(), GroupOrder()
    group = AskGroup(owner, Shape(Resources({"vcore": 1}), ()), 1)
    for arrival in range(1_000):
        group.add(ask(owner, arrival, priority=arrival))
        order.offer_group(group)
    assert order.first_group() is group
    assert len(order._entries) <= 65


def test_a_field_that_few_have_costs_the_others_nothing() -> None:
    """It has its default until it is set, and leaves no trace once it is back at that."""
    owner = application()
    plain, marked = ask(owner, 0), ask(owner, 1)
    marked.rearms, marked.victims = 2, {"ask-0": plain}
    assert (marked.rearms, list(marked.victims)) == (2, ["ask-0"])
    assert (plain.extras, plain.rearms, plain.victims) == (None, 0, NO_VICTIMS)
    marked.rearms, marked.victims = 0, NO_VICTIMS
    assert marked.extras is None
    plain.rearms = 0
    assert plain.extras is None
