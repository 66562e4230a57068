"""Tries all ways to put different members of a gang on nodes, one member after the other, up to a number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs, holds_pairs
from kornel.core.policies.device_packing import Budget, DevicesTogether


class Kind(NamedTuple):
    """The demand of each of *number* equal members, and the *nodes* that are tried for them, in order."""

    pairs: Pairs
    number: int
    nodes: Sequence[Node]


class Packing:
    """The search of nodes for all members of *kinds*, whose turns come in *order*.

    *alike* says that nodes which have the same room are equally good for all members. So if one was tried in vain, the
    others need not be tried. *devices* tells whether members find their devices; ``None``: none wants some.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        order: Sequence[int],
        budget: Budget,
        *,
        alike: bool,
        devices: DevicesTogether | None = None,
    ) -> None:
        self._kinds: Final = kinds
        self._turns: Final = [at for at in order for _ in range(kinds[at].number)]
        self._budget: Final = budget
        self._alike: Final = alike
        self._devices: Final = devices
        self._room: Final = {node: node.open.copy() for kind in kinds for node in kind.nodes}
        self._chosen: Final[list[Node]] = []

    def find_nodes(self) -> tuple[tuple[Node, ...], ...] | None:
        """Returns the nodes of each kind, or ``None`` if no way was found."""
        if not self._place_next(0, 0):
            return None
        found: list[list[Node]] = [[] for _ in self._kinds]
        for at, node in zip(self._turns, self._chosen, strict=True):
            found[at].append(node)
        return tuple(map(tuple, found))

    def _place_next(self, turn: int, start: int) -> bool:
        """Tries every node for the member whose *turn* has come, and then for the next ones. Returns whether all found
        a node. Equal members go on nodes in order, from *start* on."""
        if turn == len(self._turns):
            return True
        at = self._turns[turn]
        budget, devices = self._budget, self._devices
        pairs, _, nodes = self._kinds[at]
        equal_follows = turn + 1 < len(self._turns) and self._turns[turn + 1] == at
        tried: set[object] = set()
        for index in range(start, len(nodes)):
            node = nodes[index]
            room = self._room[node]
            if not holds_pairs(room, pairs):
                continue
            if self._alike:
                key = tuple(room) if devices is None else (tuple(room), devices.describe_node(node))
                if key in tried:
                    continue
                tried.add(key)
            if budget.left <= 0:
                budget.cut_short = True
                return False
            budget.left -= 1
            if devices is not None and not devices.add_member(node, at):
                continue
            for t, amount in pairs:
                room[t] -= amount
            self._chosen.append(node)
            if self._place_next(turn + 1, index if equal_follows else 0):
                return True
            self._chosen.pop()
            for t, amount in pairs:
                room[t] += amount
            if devices is not None:
                devices.remove_member(node, at)
        return False
