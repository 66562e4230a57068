"""The room that nodes have left over in one round of the monitor, once everything planned has happened (preemption.md
E.5)."""

from __future__ import annotations

from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node


class NodeRooms:
    """The amounts by node that planned places may still use; ``given_back``: keys of asks whose reservation is gone."""

    def __init__(self) -> None:
        self.given_back: Final[dict[str, None]] = {}
        self._rooms: Final[dict[Node, list[int]]] = {}
        """By node, what is free once everybody who was asked to has left and everything planned has happened."""

    def room_for(self, node: Node, ask: Allocation) -> list[int]:
        """Returns what *ask* could use of *node* once everything planned has happened, its own reservation included."""
        room = self.left_over(node)
        own = ask.reservation
        if own is None or own.node is not node or ask.key in self.given_back:
            return room
        return [
            have + more - without for have, more, without in zip(room, node.room_without(own), node.beside, strict=True)
        ]

    def left_over(self, node: Node) -> list[int]:
        """Returns what nobody holds of *node* once victims have left and everything planned has happened."""
        room = self._rooms.get(node)
        if room is None:
            room = self._rooms[node] = list(node.beside)
        return room
