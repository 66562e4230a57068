"""The kept order against sorting."""

from __future__ import annotations

import gc
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.model.orders.keyed_heap import KeyedHeap

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "discard", "change", "mark_all"]), st.integers(0, 7), st.integers(0, 5)),
    max_size=80,
)


def test_an_entry_that_is_out_of_date_may_have_the_key_of_another_member() -> None:
    """As when the first ask of a group goes to another group, whose key is computed first. Members have no order."""
    older, newer, other = object(), object(), object()
    value = {older: 1, newer: 1, other: 0}
    heap: KeyedHeap[object] = KeyedHeap(lambda member: (value[member],))
    heap.add(older)
    heap.add(other)
    heap.sort_marked()
    value[older] = 2
    heap.add(newer)
    heap.mark_changed(older)
    assert [heap.first_member(), *(member for _, member in heap.walk_members())] == [other, other, newer, older]


@given(OPERATIONS)
def test_first_is_the_minimum_after_any_history(history: list[tuple[str, int, int]]) -> None:
    """Whatever was added, removed and re-keyed: the first member is the one with the smallest key."""
    value = dict.fromkeys(range(8), 0)
    heap: KeyedHeap[int] = KeyedHeap(lambda member: (value[member], member))
    members: set[int] = set()
    for action, member, number in history:
        if action == "add":
            heap.add(member)
            members.add(member)
        elif action == "discard":
            heap.discard(member)
            members.discard(member)
        elif action == "change":
            value[member] = number
            heap.mark_changed(member)
        else:
            heap.mark_all()
        assert heap.first_member() == min(members, key=lambda m: (value[m], m), default=None)
        assert heap.sorted_members() == sorted(members, key=lambda m: (value[m], m))
        assert len(heap) == len(members)


@given(OPERATIONS, OPERATIONS)
def test_a_walk_meets_all_in_order(history: list[tuple[str, int, int]], meanwhile: list[tuple[str, int, int]]) -> None:
    """It yields the members in the order of their keys, as they were when it began, but those that leave meanwhile, or
    leave and come back."""
    value = dict.fromkeys(range(8), 0)
    heap: KeyedHeap[int] = KeyedHeap(lambda member: (value[member], member))

    def play(action: str, member: int, number: int) -> None:
        if action == "add":
            heap.add(member)
        elif action == "discard":
            heap.discard(member)
        elif action == "change":
            value[member] = number
            heap.mark_changed(member)
        else:
            heap.mark_all()

    for step in history:
        play(*step)
    while heap.marked:
        before = len(heap.marked)
        heap.sort_marked(2)
        assert len(heap.marked) == max(0, before - 2)
    expected = sorted((value[member], member) for member in heap)
    found = []
    left: set[int] = set()
    steps = iter(meanwhile)
    for (number, _), member in heap.walk_members():
        found.append((number, member))
        for step in islice(steps, 3):
            play(*step)
            if step[0] == "discard":
                left.add(step[1])
    assert found == sorted(found)
    assert set(found) <= set(expected)
    assert {member for _, member in set(expected) - set(found)} <= left


def test_entries_do_not_pile_up() -> None:
    """Re-keying one member for ever keeps the heap small."""
    value = {0: 0, 1: 10**9}
    heap: KeyedHeap[int] = KeyedHeap(lambda member: (value[member],))
    heap.add(0)
    heap.add(1)
    for number in range(10_000):
        value[0] = -number
        heap.mark_changed(0)
        assert heap.first_member() == 0
    assert len(heap._entries) < 200


def test_a_newcomer_may_take_over_the_key_of_one_that_left() -> None:
    """Members that cannot be compared are told apart even when their keys are equal (an application ID used again)."""
    heap: KeyedHeap[object] = KeyedHeap(lambda member: (7,))
    left, newcomer, third = object(), object(), object()
    heap.add(left)
    assert heap.first_member() is left
    heap.discard(left)
    heap.add(newcomer)
    assert heap.first_member() is newcomer
    heap.discard(newcomer)
    heap.add(third)
    assert heap.first_member() is third


def test_an_order_that_became_empty_keeps_nobody() -> None:
    """Nobody asks an empty order for its first, so it must let go of members by itself."""
    heap: KeyedHeap[str] = KeyedHeap(lambda member: (member,))
    heap.add("gone")
    assert heap.first_member() == "gone"
    heap.discard("gone")
    assert "gone" not in repr(gc.get_referents(*gc.get_referents(heap)))


@given(OPERATIONS, st.integers(0, 5), st.integers(0, 7))
def test_those_before_a_key_are_found_and_those_that_are_marked(
    history: list[tuple[str, int, int]], bound: int, walked: int
) -> None:
    """Also while somebody walks the order, which goes on as it was."""
    value = dict.fromkeys(range(8), 0)
    heap: KeyedHeap[int] = KeyedHeap(lambda member: (value[member], member))
    for action, member, number in history:
        if action == "add":
            heap.add(member)
        elif action == "discard":
            heap.discard(member)
        elif action == "mark_all":
            heap.sort_marked()
        else:
            value[member] = number
            heap.mark_changed(member)
    marked = set(heap.marked)
    whole = list(heap.walk_members())
    walk = heap.walk_members()
    begun = list(islice(walk, walked))
    found = heap.list_before((bound,))
    assert sorted(found) == sorted({m for m in heap if value[m] < bound} | marked)
    assert begun + list(walk) == whole
