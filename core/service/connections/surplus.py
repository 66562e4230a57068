"""Chooses the connections to cut if there are too many, so that no client can lock others out by holding connections.

A new connection has a moment to prove who its caller is. Connections that have proved nothing are cut first, with or
without a call; of the others, the newest of the identity with the most connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

GRACE_S: Final = 2.0
"""The time for a new connection to make a call and prove who the caller is."""


class Standing(IntEnum):
    """The ranks of connections, the lowest first."""

    NEVER_CALLED = 0
    IDLE = 1
    CALLING = 2
    """The connection has a call whose caller has proved nothing."""
    NEWCOMER = 3
    PROVED_IDLE = 4
    PROVED = 5
    """The connection has a call whose caller has proved who it is, or belongs to a socket file, for which calls are not
    known."""
    MANAGER = 6


class Member(NamedTuple):
    """One open connection. ``since_s``: the time when it was last in use, or opened. ``holder``: the identity that was
    proved."""

    name: str
    block: str
    standing: Standing
    since_s: float
    holder: str


class Room(NamedTuple):
    """The connections that may be open at once, and the new ones that may be open in addition for a moment."""

    most: int
    newcomers: int


def choose_surplus(members: Sequence[Member], everywhere: Room, of_block: Room) -> Iterator[str]:
    """Yields the names of the *members* to be cut, each once."""
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
    """Yields the names of *count* members: those of the lowest rank, and among equal ranks those whose value of *by* is
    shared by the most remaining members."""
    left = sorted(members, key=lambda member: (member.standing, member.since_s if oldest else -member.since_s))
    held = Counter(map(by, left))
    for _ in range(min(count, len(left))):
        weakest = left[0].standing
        chosen = max(
            (member for member in left if member.standing is weakest),
            key=lambda member: held[by(member)],  # The first of several members.
        )
        left.remove(chosen)
        held[by(chosen)] -= 1
        yield chosen.name


def _block_of(member: Member) -> str:
    return member.block


def _holder_of(member: Member) -> str:
    return member.holder
