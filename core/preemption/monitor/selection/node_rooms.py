"""The room that is left over on nodes in one round of the monitor once its plan is carried out (preemption.md E.5)."""

from __future__ import annotations

from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node


class NodeRooms:
    """The amounts by node that planned places may still use; ``given_back``: keys of asks whose reservation is gone."""

    def __init__(self) -> None:
        self.given_back: Final[dict[str, None]] = {}
        self._rooms: Final[dict[Node, list[int]]] = {}
        """The room of each node that is free once all victims have left and the plan is carried out."""

    def room_for(self, node: Node, ask: Allocation) -> list[int]:
        """Returns what *ask* could use of *node* once the plan is carried out, including its own reservation."""
        room = self.left_over(node)
        own = ask.reservation
        if own is None or own.node is not node or ask.key in self.given_back:
            return room
        return [
            have + more - without for have, more, without in zip(room, node.room_without(own), node.beside, strict=True)
        ]

    def left_over(self, node: Node) -> list[int]:
        """Returns the room of *node* that is not held once victims have left and the plan is carried out."""
        room = self._rooms.get(node)
        if room is None:
            room = self._rooms[node] = list(node.beside)
        return room
