"""Tentative places of a gang: they are booked on the live records while the next place is searched for, and taken back
afterwards.

Each member of a gang is placed in the room that the members before it leave. The search for one ask reads the records
of the partition, so the places found so far are booked there, but only during one search, so that nothing else sees
them: :meth:`Paper.tear_up` restores every record.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.claims import Claims
from kornel.core.model.devices import NodeDevices
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, book_amounts, unbook_amounts
from kornel.core.policies.device_choice import choose_devices


class Paper:
    """Tentative places on the records of a partition."""

    def __init__(self, given_up: Container[Allocation] = ()) -> None:
        self._given_up: Final = given_up
        """The victims that are no longer expected to leave."""
        self._nodes: dict[Node, tuple[Claims | None, int]] = {}
        """The former claims and the former version of each changed node."""
        self._devices: dict[Node, NodeDevices] = {}
        """The former devices of each node on which devices were given away."""
        self._victims: Final[list[Allocation]] = []
        self._claimed: Final[list[tuple[Queue, Pairs]]] = []

    @property
    def nodes(self) -> Collection[Node]:
        """Returns the changed nodes."""
        return self._nodes.keys()

    def put(self, ask: Allocation, node: Node, victims: Iterable[Allocation]) -> tuple[str, ...] | None:
        """Books that *ask* has claimed its amounts on *node*, and that *victims* are leaving for it.

        Returns the names of the devices that it gets there, or ``None`` if it wants devices that are not left.
        """
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
        return self._put_devices(ask, node)

    def _put_devices(self, ask: Allocation, node: Node) -> tuple[str, ...] | None:
        """Takes devices of *node* for *ask*. What leaving allocations hold counts as free."""
        request = ask.shape.devices
        if request is None:
            return ()
        if node.devices is None:
            return None
        if node not in self._devices:
            self._devices[node] = node.devices
            node.devices = node.devices.copy()
        for allocation in node.allocations.values():
            if allocation.preempted and allocation not in self._given_up:
                node.devices.give_back(allocation)
        taken = choose_devices(node.devices, request, ask)
        if taken is None:
            return None
        node.devices.put_on_paper(taken)
        return tuple([name for name, _ in taken])

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
        for node, devices in self._devices.items():
            node.devices = devices
        self._nodes.clear()
        self._devices.clear()
        self._victims.clear()
        self._claimed.clear()

    def _open(self, node: Node) -> None:
        """Replaces the claims of *node* by a copy, which may be changed."""
        if node not in self._nodes:
            self._nodes[node] = (node.claims, node.version)
            node.claims = None if node.claims is None else node.claims.copy()
