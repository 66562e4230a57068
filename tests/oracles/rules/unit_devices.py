"""Devices of the members of a gang, by trying everything: whether all members on each node can have theirs at once.

A device has 1,000 parts. What somebody holds of it nobody else has; whole devices are shared with nobody, and linked
ones are of one group (scheduling.md 15.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

WHOLE = 1_000


@dataclass(frozen=True)
class Wish:
    """What a member wants: ``count`` whole devices, or ``share`` thousandths of one."""

    count: int = 0
    share: int = 0
    linked: bool = False
    type: str = ""


@dataclass(frozen=True)
class Device:
    """A device of a node."""

    name: str
    type: str = ""
    link: str = ""


@dataclass(frozen=True)
class UnitDevices:
    """The devices of each node, what running tasks hold of them, by task, and what members want, by member."""

    devices: Mapping[str, tuple[Device, ...]]
    held: Mapping[str, tuple[str, Mapping[str, int]]] = field(default_factory=dict)
    """By task, its node and the thousandths of each device."""
    wishes: Mapping[str, Wish] = field(default_factory=dict)

    def suffice(self, spread: Mapping[str, str], gone: Collection[str]) -> bool:
        """Tells whether all members find devices where *spread* puts them once the tasks *gone* have left."""
        return all(
            self._suffice_on(
                node, [self.wishes[key] for key, place in spread.items() if place == node and key in self.wishes], gone
            )
            for node in set(spread.values())
        )

    def complaints(
        self, spread: Mapping[str, str], given: Mapping[str, tuple[str, ...]], gone: Collection[str]
    ) -> list[str]:
        """Returns what is wrong with the devices *given* to members where *spread* puts them once *gone* have left."""
        found: list[str] = []
        left = {(node, device.name): WHOLE for node, devices in self.devices.items() for device in devices}
        for task, (node, parts) in self.held.items():
            for name, share in parts.items() if task not in gone else ():
                left[node, name] -= share
        for key, node in spread.items():
            wish, names = self.wishes.get(key), given.get(key, ())
            if wish is None:
                found += [f"{key} got {names} and wants none"] if names else []
                continue
            known = {device.name: device for device in self.devices.get(node, ())}
            if len(set(names)) != (wish.count or 1) or not known.keys() >= set(names):
                found.append(f"{key} got {names} on {node}, not {wish}")
                continue
            links = {known[name].link for name in names}
            if wish.linked and len(names) > 1 and (len(links) > 1 or "" in links):
                found.append(f"{key} got {names}, which are not linked")
            if any(wish.type not in ("", known[name].type) for name in names):
                found.append(f"{key} got {names}, of another type than {wish.type}")
            for name in names:
                left[node, name] -= wish.share or WHOLE
        return found + [f"{amount} parts are left of {place}" for place, amount in left.items() if amount < 0]

    def _suffice_on(self, node: str, wishes: list[Wish], gone: Collection[str]) -> bool:
        devices = self.devices.get(node, ())
        left = {device.name: WHOLE for device in devices}
        for task, (where, parts) in self.held.items():
            if where == node and task not in gone:
                for name, share in parts.items():
                    left[name] -= share
        ways = {tuple(left[device.name] for device in devices)}
        for wish in wishes:
            ways = {after for before in ways for after in _serve(wish, devices, before)}
        return bool(ways)


def _serve(wish: Wish, devices: tuple[Device, ...], left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    share = wish.share or WHOLE
    usable = [at for at, device in enumerate(devices) if left[at] >= share and wish.type in ("", device.type)]
    for chosen in combinations(usable, wish.count or 1):
        links = [devices[at].link for at in chosen]
        if wish.linked and len(chosen) > 1 and (not links[0] or len(set(links)) > 1):
            continue
        yield tuple(amount - share * (at in chosen) for at, amount in enumerate(left))
