"""Tentative places of a gang: they are booked on the live records while the next place is searched for, and taken back
afterwards.

Each member of a gang is placed in the room that the members before it leave. The search for one ask reads the records
of the partition, so the places found so far are booked there, but only during one search, so that nothing else sees
them: :meth:`Paper.tear_up` restores every record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.claims import Claims
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, book_amounts, unbook_amounts


class Paper:
    """Tentative places on the records of a partition."""

    def __init__(self) -> None:
        self._nodes: dict[Node, tuple[Claims | None, int]] = {}
        """The former claims and the former version of each changed node."""
        self._victims: Final[list[Allocation]] = []
        self._claimed: Final[list[tuple[Queue, Pairs]]] = []

    @property
    def nodes(self) -> Iterable[Node]:
        """Returns the changed nodes."""
        return self._nodes.keys()

    def put(self, ask: Allocation, node: Node, victims: Iterable[Allocation]) -> None:
        """Books that *ask* has claimed its amounts on *node*, and that *victims* are leaving for it."""
        for victim in victims:
            # This is set directly and not by a move, because nothing else must react to it, and it is taken back before
            # anything else happens.
            victim.place = AskPlace.PREEMPTED
            self._victims.append(victim)
            assert victim.node is not None, "only a placed allocation can be a victim"
            self._open(victim.node)
            victim.node.expect_exits((victim,))
            for queue in victim.queue.lineage():
                book_amounts(queue.preempting, victim.shape.pairs)
        self._open(node)
        node.reserve(Reservation(ask, node, 0))
        for queue in ask.queue.lineage():
            book_amounts(queue.claimed, ask.shape.pairs)
        self._claimed.append((ask.queue, ask.shape.pairs))

    def tear_up(self) -> None:
        """Takes back everything that was booked."""
        for leaf, pairs in self._claimed:
            for queue in leaf.lineage():
                unbook_amounts(queue.claimed, pairs)
        for victim in self._victims:
            victim.place = AskPlace.PLACED
            for queue in victim.queue.lineage():
                unbook_amounts(queue.preempting, victim.shape.pairs)
        for node, (claims, version) in self._nodes.items():
            node.take_claims_back(claims, version)
        self._nodes.clear()
        self._victims.clear()
        self._claimed.clear()

    def _open(self, node: Node) -> None:
        """Replaces the claims of *node* by a copy, which may be changed."""
        if node not in self._nodes:
            self._nodes[node] = (node.claims, node.version)
            node.claims = None if node.claims is None else node.claims.copy()
