"""The choice of connections that are cut when there are too many, so that whoever holds them locks nobody out.

A newcomer has a moment to prove who it is. Those who have proved nothing give way, whether they hold a call or not; of
those who have, the newest of the identity that has most connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

GRACE_S: Final = 2.0
"""The time that a newcomer has to make a call and to prove who it is."""


class Standing(IntEnum):
    """The claims that connections have to their place, the weakest first."""

    NEVER_CALLED = 0
    IDLE = 1
    CALLING = 2
    """A connection with a call whose caller has proved nothing."""
    NEWCOMER = 3
    PROVED_IDLE = 4
    PROVED = 5
    """A connection with a call of somebody who has proved who it is, or to a socket file, whose calls are not known."""
    MANAGER = 6


class Member(NamedTuple):
    """One open connection. ``since_s``: when it was last in use, or opened. ``holder``: whose it is, as was proved."""

    name: str
    block: str
    standing: Standing
    since_s: float
    holder: str


class Room(NamedTuple):
    """The connections that may be open at once, and the newcomers that may be open beyond them for a moment."""

    most: int
    newcomers: int


def choose_surplus(members: Sequence[Member], everywhere: Room, of_block: Room) -> Iterator[str]:
    """Yields the names of those of *members* that have to go, each once."""
    blocks: dict[str, list[Member]] = {}
    for member in members:
        blocks.setdefault(member.block, []).append(member)
    gone: set[str] = set()
    for found in blocks.values():
        gone.update(_choose(found, of_block))
    gone.update(_choose([member for member in members if member.name not in gone], everywhere))
    yield from (member.name for member in members if member.name in gone)


def _choose(members: Sequence[Member], room: Room) -> Iterator[str]:
    surplus = len(members) - room.most
    if surplus <= 0:
        return
    unproved = [member for member in members if member.standing < Standing.NEWCOMER]
    yield from _take(unproved, surplus, by=_block_of, oldest=True)
    surplus -= len(unproved)
    newcomers = [member for member in members if member.standing is Standing.NEWCOMER]
    most_cut = min(surplus - room.newcomers, len(newcomers))
    yield from _take(newcomers, most_cut, by=_block_of, oldest=True)
    proved = [member for member in members if member.standing > Standing.NEWCOMER]
    yield from _take(proved, len(proved) - room.most, by=_holder_of, oldest=False)


def _take(members: Iterable[Member], count: int, *, by: Callable[[Member], str], oldest: bool) -> Iterator[str]:
    """Yields the names of *count* members: of the weakest standing, and among equals of whoever *by* has most left."""
    left = sorted(members, key=lambda member: (member.standing, member.since_s if oldest else -member.since_s))
    held = Counter(map(by, left))
    for _ in range(min(count, len(left))):
        weakest = left[0].standing
        chosen = max(
            (member for member in left if member.standing is weakest),
            key=lambda member: held[by(member)],  # the first of several
        )
        left.remove(chosen)
        held[by(chosen)] -= 1
        yield chosen.name


def _block_of(member: Member) -> str:
    return member.block


def _holder_of(member: Member) -> str:
    return member.holder
