"""The choice of domains against one that tries everything: written from the words of docs/topology.md, not the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.topology import TopologyRequest, Wish
from kornel.core.policies.topology_choice import Room, Shares, Shortfall, choose_domains

PATHS = [(zone, f"{zone}{rack}") for zone in "ab" for rack in range(4)]


@st.composite
def some_rooms(draw: st.DrawFn, *, taken: bool = False) -> list[Room]:
    paths = draw(st.lists(st.sampled_from(PATHS), unique=True, max_size=6))
    return [Room(path, draw(st.integers(0, 7)), draw(st.integers(0, 5)) if taken else 0) for path in paths]


def slices_of(members: int, size: int) -> list[int]:
    """All slices of a group: the last may be smaller."""
    return [min(size, members - at) for at in range(0, members, size)]


def fits(slices: Sequence[int], rooms: Sequence[int]) -> bool:
    """Whether each slice can stand in one domain: every way is tried."""
    if not slices:
        return True
    return any(
        room >= slices[0] and fits(slices[1:], [*rooms[:at], room - slices[0], *rooms[at + 1 :]])
        for at, room in enumerate(rooms)
    )


def enclosures(rooms: Sequence[Room], depth: int) -> Iterator[list[Room]]:
    for outer in sorted({room.path[:depth] for room in rooms}):
        yield [room for room in rooms if room.path[:depth] == outer]


def fewest(rooms: Sequence[Room], slices: Sequence[int]) -> int | None:
    return next(
        (
            count
            for count in range(1, len(rooms) + 1)
            if any(fits(slices, [room.room for room in some]) for some in combinations(rooms, count))
        ),
        None,
    )


def assert_sound(shares: Shares, rooms: Sequence[Room], members: int) -> None:
    known = {room.path: room for room in rooms}
    assert sum(shares.values()) == members
    assert all(0 < count <= known[path].room for path, count in shares.items())


@given(some_rooms(), st.integers(1, 12))
def test_one_domain_is_the_tightest_that_has_room_for_all(rooms: list[Room], members: int) -> None:
    found = choose_domains(rooms, members, TopologyRequest(Wish.REQUIRED, "rack"))
    enough = [room for room in rooms if room.room >= members]
    if enough:
        least = min(room.room for room in enough)
        assert found == {min(room.path for room in enough if room.room == least): members}
    else:
        assert isinstance(found, Shortfall)
        assert found.room == max((room.room for room in rooms), default=0)
        assert found.short == members - found.room


@given(some_rooms(), st.integers(1, 12), st.integers(1, 5))
def test_slices_use_the_fewest_domains_and_the_tightest_last(rooms: list[Room], members: int, size: int) -> None:
    slices = slices_of(members, size)
    found = choose_domains(rooms, members, TopologyRequest(Wish.REQUIRED, "rack", size))
    for depth in (1, 0):
        counts = [count for inner in enclosures(rooms, depth) if (count := fewest(inner, slices)) is not None]
        if counts:
            break
    else:
        assert isinstance(found, Shortfall)
        return
    assert not isinstance(found, Shortfall)
    assert_sound(found, rooms, members)
    assert len(found) == min(counts)
    assert len({path[:depth] for path in found}) == 1
    assert fits(slices, list(found.values()))
    chosen = [room for room in rooms if room.path in found]
    last = next(room for room in chosen if room.path == list(found)[-1])
    others = [room for room in chosen if room is not last]
    for room in rooms:
        tighter = room.path[:depth] == last.path[:depth] and room.room < last.room and room not in others
        if tighter and len(found) == 1:
            assert not fits(slices, [room.room])


@given(some_rooms(), st.integers(1, 12), st.integers(0, 4))
def test_a_preference_places_all_members_wherever_the_domains_have_room(
    rooms: list[Room], members: int, size: int
) -> None:
    found = choose_domains(rooms, members, TopologyRequest(Wish.PREFERRED, "rack", size))
    if sum(room.room for room in rooms) < members:
        assert isinstance(found, Shortfall)
        return
    assert not isinstance(found, Shortfall)
    assert_sound(found, rooms, members)
    if any(room.room >= members for room in rooms):
        assert len(found) == 1


@given(some_rooms(taken=True), st.integers(1, 8))
def test_members_follow_those_that_stand_in_a_domain(rooms: list[Room], members: int) -> None:
    found = choose_domains(rooms, members, TopologyRequest(Wish.REQUIRED, "rack"))
    homes = {room.path for room in rooms if room.taken}
    if homes and not isinstance(found, Shortfall):
        assert set(found) <= homes
        assert len(found) == 1


@given(some_rooms(taken=True), st.integers(1, 8), st.integers(1, 4))
def test_no_slice_is_torn_apart(rooms: list[Room], members: int, size: int) -> None:
    """However many stand where already: at most one domain has a part of a slice, the last one of the group, unless
    slices had begun that these members were too few to complete."""
    found = choose_domains(rooms, members, TopologyRequest(Wish.REQUIRED, "rack", size))
    if isinstance(found, Shortfall):
        return
    assert_sound(found, rooms, members)
    begun = [room for room in rooms if room.taken % size]
    parts = [room for room in rooms if (room.taken + found.get(room.path, 0)) % size]
    if sum(-room.taken % size for room in begun) <= members:
        assert len(parts) <= 1
    else:
        assert set(found) <= {room.path for room in begun}


@given(some_rooms(taken=True), st.integers(1, 12))
def test_members_that_spread_go_where_the_fewest_stand(rooms: list[Room], members: int) -> None:
    found = choose_domains(rooms, members, TopologyRequest(Wish.SPREAD, "zone"))
    if isinstance(found, Shortfall):
        assert sum(room.room for room in rooms) < members
        return
    assert_sound(found, rooms, members)
    after = {room.path: room.taken + found.get(room.path, 0) for room in rooms}
    for room in rooms:
        has_room = found.get(room.path, 0) < room.room
        for path in found:
            # Nobody went to a domain with more members than another one that had room has now.
            assert not has_room or after[path] <= after[room.path] + 1


def test_a_group_that_needs_several_racks_stays_in_one_zone() -> None:
    rooms = [Room(("a", "a1"), 4), Room(("b", "b1"), 3), Room(("b", "b2"), 3)]
    assert choose_domains(rooms, 6, TopologyRequest(Wish.PREFERRED, "rack")) == {("b", "b1"): 3, ("b", "b2"): 3}
    assert choose_domains(rooms, 7, TopologyRequest(Wish.PREFERRED, "rack")) == {("a", "a1"): 4, ("b", "b1"): 3}


def test_the_shortfall_names_the_domain_that_comes_closest() -> None:
    rooms = [Room(("r1",), 5), Room(("r7",), 12), Room(("r8",), 0)]
    found = choose_domains(rooms, 16, TopologyRequest(Wish.REQUIRED, "rack"))
    assert found == Shortfall(("r7",), 12, 16)
    assert found.short == 4
