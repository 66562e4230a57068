"""Which connections go when there are too many: whoever holds them locks nobody out who has a better claim."""

from __future__ import annotations

from kornel.core.service.connections.surplus import Member, Room, Standing, choose_surplus


def member(name: str, standing: Standing, since_s: float, block: str = "10.0.0.1", holder: str = "") -> Member:
    return Member(name, block, standing, since_s, holder or block)


def gone(members: list[Member], *, most: int, newcomers: int = 0, of_block: int = 100) -> list[str]:
    return sorted(choose_surplus(members, Room(most, newcomers), Room(of_block, newcomers)))


def test_as_many_as_may_be_stay() -> None:
    held = [member(f"c{at}", Standing.CALLING, at) for at in range(4)]
    assert gone(held, most=4) == []


def test_a_newcomer_takes_the_place_of_the_oldest_stranger_with_a_call() -> None:
    held = [member(f"c{at}", Standing.CALLING, at) for at in range(4)]
    assert gone([*held, member("new", Standing.NEWCOMER, 9)], most=4) == ["c0"]


def test_those_without_a_call_go_first() -> None:
    """Who never had one before who has it no longer, and either before a stranger who has one."""
    held = [
        member("calls", Standing.CALLING, 0),
        member("idle", Standing.IDLE, 1),
        member("never", Standing.NEVER_CALLED, 2),
        member("new", Standing.NEWCOMER, 3),
    ]
    assert [gone(held, most=most) for most in (3, 2, 1)] == [["never"], ["idle", "never"], ["calls", "idle", "never"]]


def test_the_address_with_most_connections_gives_way() -> None:
    held = [member(f"many{at}", Standing.CALLING, 10 + at, "10.0.0.2") for at in range(3)]
    held.append(member("single", Standing.CALLING, 0))
    assert gone([*held, member("new", Standing.NEWCOMER, 99)], most=4) == ["many0"]


def test_a_newcomer_has_a_moment_beside_those_who_have_proved_who_they_are() -> None:
    """And whoever proves it then takes the place of the newest of the identity that has most."""
    held = [member(f"a{at}", Standing.PROVED, at, holder="token:a") for at in range(3)]
    held.append(member("b0", Standing.PROVED, 7, holder="token:b"))
    assert gone([*held, member("new", Standing.NEWCOMER, 9)], most=4, newcomers=1) == []
    assert gone([*held, member("old", Standing.NEVER_CALLED, 9)], most=4, newcomers=1) == ["old"]
    assert gone([*held, member("c0", Standing.PROVED, 9, holder="token:c")], most=4, newcomers=1) == ["a2"]


def test_newcomers_beyond_their_room_go_the_oldest_of_the_largest_address_first() -> None:
    held = [member(f"a{at}", Standing.PROVED, at, holder="token:a") for at in range(2)]
    flood = [member(f"f{at}", Standing.NEWCOMER, 10 + at, "10.0.0.9") for at in range(4)]
    shim = member("shim", Standing.NEWCOMER, 9)
    assert gone([*held, *flood, shim], most=2, newcomers=2) == ["f0", "f1", "f2"]


def test_resource_managers_go_last() -> None:
    held = [member(f"m{at}", Standing.MANAGER, at, holder="cn:shim") for at in range(3)]
    held += [member(f"p{at}", Standing.PROVED, 10 + at, holder="token:p") for at in range(2)]
    assert gone(held, most=3) == ["p0", "p1"]
    assert gone(held[:3], most=2) == ["m2"]


def test_an_address_has_its_own_room_and_each_goes_once() -> None:
    many = [member(f"a{at}", Standing.NEVER_CALLED, at, "10.0.0.2") for at in range(4)]
    held = [*many, member("other", Standing.NEVER_CALLED, 9)]
    assert gone(held, most=3, of_block=2) == ["a0", "a1"]
    assert gone(held, most=2, of_block=2) == ["a0", "a1", "a2"]
