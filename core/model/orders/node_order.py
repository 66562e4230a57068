"""Keeps nodes in the order of their score, and searches for the first one that has room.

The order is kept in groups of about 96 nodes, each with an upper bound of the free room of any node in it. A group
whose bound cannot hold the demand is passed over in one comparison, so a search costs the number of groups, not of
nodes, however full the cluster is. Bounds rise at once when a node gains room and are tightened when a search found
nothing in a group: a bound may be too high, never too low. One node may have the processors and another the memory, so
a group also keeps the latest demands that its bound could hold but none of its nodes can. A node that loses room
changes nothing about that; a node that joins the group is compared with each of these demands.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs, Vector, holds_pairs, widen_vector

GROUP_SIZE: Final = 96

REFUSED_KEPT: Final = 32
"""The most demands that a group remembers."""

Place = tuple[float, str]
"""The sort key of a node: (score, node ID), which is total because IDs are unique."""


class NodeGroup:
    """A group of nodes that are neighbours in the order, with a common bound of their room."""

    __slots__ = ("bound", "loose", "nodes", "places", "refused")

    def __init__(self, places: list[Place], nodes: list[Node], width: int) -> None:
        self.places = places
        self.nodes = nodes
        self.bound: Vector = [0] * width
        self.refused: set[Pairs] = set()
        """The demands that no node of the group can hold."""
        self.loose = False
        """Tells whether a node has left since the bound was tightened."""
        self.tighten_bound()

    def note_refused(self, pairs: Pairs) -> None:
        """Notes that no node of the group can hold *pairs*."""
        if self.loose:
            self.tighten_bound()
        if len(self.refused) == REFUSED_KEPT:
            self.refused.clear()
        self.refused.add(pairs)

    def tighten_bound(self) -> None:
        """Computes the bound again, as low as the nodes of the group allow."""
        self.loose = False
        if self.nodes:
            self.bound = list(map(max, zip(*[node.open for node in self.nodes], strict=True)))
        else:
            self.bound = [0] * len(self.bound)


class NodeOrder:
    """The nodes open to normal placement, which are the schedulable ones; the caller adds and removes them."""

    __slots__ = ("_groups", "_home", "_lasts", "_score", "_width")

    def __init__(self, score: Callable[[Node], float]) -> None:
        self._score = score
        self._groups: list[NodeGroup] = []
        self._lasts: list[Place] = []
        self._home: dict[Node, NodeGroup] = {}
        self._width = 0

    def __len__(self) -> int:
        return len(self._home)

    def __contains__(self, node: object) -> bool:
        return node in self._home

    def __iter__(self) -> Iterator[Node]:
        for group in self._groups:
            yield from group.nodes

    def score_of(self, node: Node) -> float:
        """Returns the score of *node* with its present load."""
        return self._score(node)

    def first_fit(self, pairs: Pairs) -> Node | None:
        """Returns the first node in order whose open room holds *pairs*."""
        if not pairs:
            return next(iter(self), None)
        # The type that was too small in one group is tried first in the next, because neighbours tend to lack the same.
        lacked, least = pairs[0]
        for group in self._groups:
            bound = group.bound
            if bound[lacked] < least:
                continue
            for t, amount in pairs:
                if bound[t] < amount:
                    lacked, least = t, amount
                    break
            else:
                if pairs in group.refused:
                    continue
                for node in group.nodes:
                    room = node.open
                    if room[lacked] < least:
                        continue
                    for t, amount in pairs:
                        if room[t] < amount:
                            lacked, least = t, amount
                            break
                    else:
                        return node
                group.note_refused(pairs)
        return None

    def fitting_nodes(self, pairs: Pairs) -> Iterator[Node]:
        """Yields all nodes, in order, whose open room holds *pairs*; nothing may change while the caller reads them."""
        for group in self._groups:
            bound = group.bound
            if holds_pairs(bound, pairs):
                for node in group.nodes:
                    if node.has_room(pairs):
                        yield node

    def add(self, node: Node) -> None:
        """Adds *node* at the place that its score gives it."""
        node.score = self._score(node)
        place = (node.score, node.node_id)
        groups, lasts = self._groups, self._lasts
        if not groups:
            self._groups.append(NodeGroup([place], [node], self._width))
            lasts.append(place)
            self._home[node] = self._groups[0]
            return
        at = min(bisect_left(lasts, place), len(groups) - 1)
        group = groups[at]
        index = bisect_left(group.places, place)
        group.places.insert(index, place)
        group.nodes.insert(index, node)
        self._home[node] = group
        bound = group.bound
        for t, room in enumerate(node.open):
            if room > bound[t]:
                bound[t] = room
        if group.refused:
            # The new node may hold demands that no other node of the group can.
            group.refused = {pairs for pairs in group.refused if not node.has_room(pairs)}
        lasts[at] = group.places[-1]
        if len(group.nodes) > 2 * GROUP_SIZE:
            self._split_group(at)

    def discard(self, node: Node) -> None:
        """Removes *node* if it is in the order."""
        group = self._home.pop(node, None)
        if group is None:
            return
        place = (node.score, node.node_id)
        places = group.places
        index = bisect_left(places, place)
        del places[index]
        del group.nodes[index]
        group.loose = True
        if index < len(places):
            return
        at = bisect_left(self._lasts, place)
        if places:
            self._lasts[at] = places[-1]
        else:
            del self._groups[at]
            del self._lasts[at]

    def refresh_node(self, node: Node) -> None:
        """Moves *node*, if it is in the order, to the place that its load now gives it."""
        if node in self._home:
            self.discard(node)
            self.add(node)

    def room_changed(self, node: Node) -> None:
        """Update the open room of *node* after held amounts changed on it. Its load and so its place stay the same."""
        group = self._home.get(node)
        if group is None:
            return
        group.loose = True
        bound = group.bound
        for t, room in enumerate(node.open):
            if room > bound[t]:
                bound[t] = room
        if group.refused:
            group.refused = {pairs for pairs in group.refused if not node.has_room(pairs)}

    def widen_amounts(self, width: int) -> None:
        """Extend all amounts to *width* types."""
        self._width = width
        for group in self._groups:
            widen_vector(group.bound, width)

    def rebuild_order(self, score: Callable[[Node], float], nodes: Iterable[Node]) -> None:
        """Start again with another score and these nodes."""
        self._score = score
        placed: list[tuple[Place, Node]] = []
        for node in nodes:
            node.score = score(node)
            insort(placed, ((node.score, node.node_id), node), key=lambda entry: entry[0])
        self._groups = []
        self._home = {}
        for start in range(0, len(placed), GROUP_SIZE):
            part = placed[start : start + GROUP_SIZE]
            group = NodeGroup([place for place, _ in part], [node for _, node in part], self._width)
            self._groups.append(group)
            self._home.update(dict.fromkeys(group.nodes, group))
        self._lasts = [group.places[-1] for group in self._groups]

    def _split_group(self, at: int) -> None:
        group = self._groups[at]
        half = len(group.nodes) // 2
        upper = NodeGroup(group.places[half:], group.nodes[half:], self._width)
        del group.places[half:]
        del group.nodes[half:]
        group.tighten_bound()
        upper.refused = group.refused.copy()
        self._groups.insert(at + 1, upper)
        self._lasts[at] = group.places[-1]
        self._lasts.insert(at + 1, upper.places[-1])
        self._home.update(dict.fromkeys(upper.nodes, upper))
