"""Chooses domains for the members of a group, and how many members go to each. Rules: docs/topology.md.

Members are placed in slices, each within one domain. The choice has the fewest domains, and among these the tightest
fit: all domains but one are the roomiest, and the last is the smallest that holds the rest. Domains with members of the
group come before others. If there are outer levels, a group that needs several domains stays in the narrowest outer
domain that has room for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from kornel.core.domain.topology import TopologyRequest, Wish

Path = tuple[str, ...]


class Room(NamedTuple):
    """A domain of the level in question, with the number of members that fit there now and the number of those that are
    there already."""

    path: Path
    room: int
    taken: int = 0


class Shortfall(NamedTuple):
    """The answer if there is no choice. ``best`` is the domain that comes closest, with room for ``room`` of ``wanted``
    members; ``None``: there is no domain."""

    best: Path | None
    room: int
    wanted: int

    @property
    def short(self) -> int:
        """The number of members that do not fit into ``best``."""
        return self.wanted - self.room


Shares = dict[Path, int]
"""The number of members that each chosen domain gets, in the order in which they are to be placed."""


def choose_domains(rooms: Sequence[Room], members: int, request: TopologyRequest) -> Shares | Shortfall:
    """Returns the domains for *members* more members of a group, all of them, or why there is no such choice.

    *rooms* are the domains of the level of *request*.
    """
    if request.wish == Wish.SPREAD:
        return _spread_slices(rooms, members, request.slice_size or 1)
    if request.wish == Wish.PREFERRED:
        return _choose_preferred(rooms, members, request.slice_size or 1)
    if request.slice_size:
        return _complete_slices(rooms, members, request.slice_size)
    if not rooms:
        return Shortfall(None, 0, members)
    # The group is one slice, so all other members belong where one of them is.
    begun = [room for room in rooms if room.taken]
    if begun:
        home = max(begun, key=lambda room: (room.room >= members, room.taken))
    else:
        tightest = min([room for room in rooms if room.room >= members], key=_by_room, default=None)
        home = tightest or max(rooms, key=_by_room)
    return {home.path: members} if home.room >= members else Shortfall(home.path, max(0, home.room), members)


def _by_room(room: Room) -> tuple[int, Path]:
    return (room.room, room.path)


def _choose_preferred(rooms: Sequence[Room], members: int, size: int) -> Shares | Shortfall:
    found = _complete_slices(rooms, members, size)
    if isinstance(found, Shortfall) and size > 1:
        found = _complete_slices(rooms, members, 1)
    return found


def _complete_slices(rooms: Sequence[Room], members: int, size: int) -> Shares | Shortfall:
    """Completes slices that have begun, then uses domains with members of the group, and other domains only for the
    rest."""
    shares: Shares = {}
    left = members
    for room in sorted(rooms):
        missing = min(-room.taken % size, left)
        if missing and room.room < missing:
            return Shortfall(room.path, max(0, room.room), missing)
        if missing:
            shares[room.path] = missing
            left -= missing
    remaining = [room._replace(room=room.room - shares.get(room.path, 0)) for room in rooms]
    if any(room.taken for room in remaining):
        for path, count in _fill_roomiest([room for room in remaining if room.taken], left, size).items():
            shares[path] = shares.get(path, 0) + count
            left -= count
        remaining = [room for room in remaining if not room.taken]
    if left:
        found = _choose_nested(remaining, left, size)
        if isinstance(found, Shortfall):
            return found
        shares |= found
    return shares


def _fill_roomiest(rooms: Iterable[Room], members: int, size: int) -> Shares:
    """Returns as many whole slices as *rooms* hold, the roomiest first, up to *members*."""
    shares: Shares = {}
    for room in sorted(rooms, key=lambda room: (-room.room, room.path)):
        count = min(room.room // size * size, members)
        if count:
            shares[room.path] = count
            members -= count
    return shares


def _choose_nested(rooms: Sequence[Room], members: int, size: int) -> Shares | Shortfall:
    """Chooses the narrowest outer domain that has room for all, in it the fewest domains, and among these the
    tightest."""
    usable = [room for room in rooms if room.room > 0]
    for depth in range(len(rooms[0].path) - 1, -1, -1) if rooms else ():
        around: dict[Path, list[Room]] = {}
        for room in usable:
            around.setdefault(room.path[:depth], []).append(room)
        found = [chosen for inner in around.values() if (chosen := _choose_fewest(inner, members, size)) is not None]
        if found:
            best = min(found, key=lambda chosen: (len(chosen), sum([room.room for room in chosen]), chosen[-1].path))
            return _share_out(best, members, size)
    best_room = max(rooms, key=lambda room: room.room, default=None)
    if best_room is None:
        return Shortfall(None, 0, members)
    if size >= members:
        return Shortfall(best_room.path, max(0, best_room.room), members)
    return Shortfall(best_room.path, sum([room.room // size * size for room in usable]), members)


def _choose_fewest(rooms: list[Room], members: int, size: int) -> list[Room] | None:
    """Returns the fewest of *rooms* that hold *members*: the roomiest ones, but as the last one the smallest that is
    enough."""
    order = sorted(rooms, key=lambda room: (-(room.room // size), -(room.room % size), room.path))
    chosen: list[Room] = []
    for room in order:
        if _hold_all([*chosen, room], members, size):
            others = [other for other in order if other not in chosen]
            fitting = [other for other in others if _hold_all([*chosen, other], members, size)]
            return [*chosen, min(fitting, key=lambda other: (other.room, other.path))]
        chosen.append(room)
    return None


def _hold_all(rooms: list[Room], members: int, size: int) -> bool:
    """Tells whether *rooms* hold *members* in slices of *size*, of which the last may be smaller."""
    slices, rest = divmod(members, size)
    whole = sum([room.room // size for room in rooms])
    if whole > slices or not rest:
        return whole >= slices
    return whole == slices and any(room.room % size >= rest for room in rooms)


def _share_out(rooms: list[Room], members: int, size: int) -> Shares:
    """Fills all of *rooms*, which hold *members*, with whole slices; the last domain gets what remains."""
    slices, rest = divmod(members, size)
    shares: Shares = {}
    for room in rooms:
        count = min(room.room // size, slices)
        slices -= count
        shares[room.path] = count * size
    if rest:
        # The last domain takes the smaller slice if it can, because the others were chosen to be full.
        for room in reversed(rooms):
            if room.room - shares[room.path] >= rest:
                shares[room.path] += rest
                break
    return {path: count for path, count in shares.items() if count}


def _spread_slices(rooms: Sequence[Room], members: int, size: int) -> Shares | Shortfall:
    """Gives each slice to the domain that has the fewest so far, and among equals to the one with the most room
    left."""
    shares: Shares = {}
    left = members
    waiting = [(room.taken // size, -room.room, room.path) for room in rooms if room.room > 0]
    begun = {room.path: room.taken % size for room in rooms}
    heapify(waiting)
    while left and waiting:
        slices, negative_room, path = waiting[0]
        wanted = min(size - begun[path], left)
        if -negative_room < wanted:
            heappop(waiting)
            continue
        shares[path] = shares.get(path, 0) + wanted
        begun[path] = 0
        left -= wanted
        heapreplace(waiting, (slices + 1, negative_room + wanted, path))
    if not left:
        return shares
    best = max(rooms, key=lambda room: room.room, default=None)
    return Shortfall(best.path if best is not None else None, members - left, members)
