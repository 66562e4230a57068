"""Numbers the nodes of a partition, and tells which of them have changed since an earlier look.

Changes are found by comparing the version of each node, not by notifications, which code might forget to send. One
comparison serves all who keep something about nodes: each keeps the number of the last look that it has followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import compress
from operator import attrgetter, ne
from typing import Final

from kornel.core.model.nodes import Node

_DOUBTED: Final = -1
"""A version that no node has, so that the node counts as changed at the next look."""

_version_of = attrgetter("version")


class NumberedNodes:
    """The nodes of the last look by slot, a small number that is used again once its node has gone."""

    __slots__ = ("_changed_at", "_free", "_versions", "look", "nodes", "slots")

    def __init__(self) -> None:
        self.slots: dict[Node, int] = {}
        self.nodes: list[Node | None] = []
        """The node in each slot; ``None``: the slot is free."""
        self.look = 0
        """The number of the last look."""
        self._versions: dict[Node, int] = {}
        """The version of each node at the last look."""
        self._free: list[int] = []
        self._changed_at: dict[int, int] = {}
        """By slot, the number of the look that found the latest change of its node; the latest change comes last."""

    def compare_nodes(self, nodes: Mapping[str, Node]) -> list[int]:
        """Looks at all *nodes*. Returns the slots of those that have gone, which are free from now on."""
        slots, versions, present = self.slots, self._versions, nodes.values()
        # Nearly all nodes are as they were, so no step of the interpreter is spent on each.
        changed = list(compress(present, map(ne, map(_version_of, present), map(versions.get, present))))
        self.look += 1
        gone: list[int] = []
        if len(slots) + sum(node not in slots for node in changed) > len(nodes):
            gone = [slot for node, slot in slots.items() if nodes.get(node.node_id) is not node]
            for slot in gone:
                self._release(slot)
        for node in changed:
            slot = slots[node] if node in slots else self._take_slot(node)
            versions[node] = node.version
            self._changed_at.pop(slot, None)
            self._changed_at[slot] = self.look
        return gone

    def changed_since(self, look: int) -> Iterable[int]:
        """Yields the slots of the nodes that have changed after the look of that number, the latest change first."""
        for slot, changed_at in reversed(self._changed_at.items()):
            if changed_at <= look:
                return
            yield slot

    def doubt_nodes(self, nodes: Iterable[Node]) -> None:
        """Makes *nodes* count as changed at the next look."""
        for node in nodes:
            if node in self._versions:
                self._versions[node] = _DOUBTED

    def _take_slot(self, node: Node) -> int:
        if self._free:
            slot = self._free.pop()
            self.nodes[slot] = node
        else:
            slot = len(self.nodes)
            self.nodes.append(node)
        self.slots[node] = slot
        return slot

    def _release(self, slot: int) -> None:
        node = self.nodes[slot]
        assert node is not None, "only a slot with a node is released"
        del self.slots[node], self._versions[node]
        self.nodes[slot] = None
        self._changed_at.pop(slot, None)
        self._free.append(slot)
