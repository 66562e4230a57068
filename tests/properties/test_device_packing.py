"""Nodes for gangs whose members want different devices, against a search that tries every node for every member, and
all devices of each node.
"""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.devices import WHOLE, DeviceRequest, DeviceSpec
from kornel.core.domain.settings import NodeSortPolicy
from kornel.core.model.devices import NodeDevices
from kornel.core.model.nodes import Node
from kornel.core.model.orders.node_order import NodeOrder
from kornel.core.policies.device_packing import Budget
from kornel.core.policies.gang_nodes import Candidates, Members, Shortfall, choose_nodes
from kornel.core.policies.node_score import NodeScore
from tests.examples import scale_examples
from tests.oracles.rules.unit_devices import Device, UnitDevices, Wish

WISHES = (Wish(1), Wish(2), Wish(2, linked=True), Wish(1, type="A"), Wish(share=500), Wish(share=300), Wish(share=700))


class Room:
    """A few nodes with room for amounts and devices, and a gang of members with two or three wishes."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        order = NodeOrder(NodeScore(NodeSortPolicy.FAIR, {0: 1.0}))
        order.widen_amounts(1)
        self.nodes: dict[str, Node] = {}
        devices: dict[str, tuple[Device, ...]] = {}
        held: dict[str, tuple[str, dict[str, int]]] = {}
        for number in range(rng.randint(1, 3)):
            name = f"n{number}"
            node = self.nodes[name] = Node(name, (), [rng.choice([2, 4, 9])])
            devices[name] = tuple(
                Device(f"g{at}", rng.choice(["", "A"]), rng.choice(["", "x", "x", "y"]))
                for at in range(rng.randint(0, 4))
            )
            specs = [DeviceSpec(device.name, device.type, link=device.link) for device in devices[name]]
            node.devices = NodeDevices(specs) if specs else None
            for device in node.devices or ():
                taken = rng.choice([0, 0, 0, 300, 500, WHOLE])
                device.free -= taken
                held[f"{name}-{device.spec.device_id}"] = name, {device.spec.device_id: taken}
            order.add(node)
        self.candidates = Candidates(order, self.nodes)
        self.gang: list[Members] = []
        self.wants: list[tuple[Wish | None, int]] = []
        """The wish and the amount of each member."""
        for wish in rng.sample([None, *WISHES], rng.choice([2, 2, 3])):
            size, number = rng.choice([1, 1, 2]), rng.choice([1, 1, 2])
            self.gang.append(Members(((0, size),), number, devices=_request(wish)))
            self.wants += [(wish, size)] * number
        wishes = {f"m{at}": wish for at, (wish, _) in enumerate(self.wants) if wish is not None}
        self.devices = UnitDevices(devices, held, wishes)

    def holds(self, names: tuple[str, ...]) -> bool:
        """Tells whether the nodes *names*, one for each member, have room for all of them at once."""
        used: dict[str, int] = {}
        for name, (_, size) in zip(names, self.wants, strict=True):
            used[name] = used.get(name, 0) + size
        spread = {f"m{at}": name for at, name in enumerate(names)}
        return all(size <= self.nodes[name].open[0] for name, size in used.items()) and self.devices.suffice(spread, ())


def _request(wish: Wish | None) -> DeviceRequest | None:
    if wish is None:
        return None
    return DeviceRequest(wish.count, wish.share, linked=wish.linked, types=(wish.type,) if wish.type else ())


@settings(max_examples=scale_examples(2_000), deadline=None)
@given(st.integers(0, 2**32))
def test_a_gang_with_different_wishes_finds_nodes_wherever_there_are_some(seed: int) -> None:
    room = Room(seed)
    found = choose_nodes(room.candidates, room.gang)
    possible = any(map(room.holds, product(room.nodes, repeat=len(room.wants))))
    if isinstance(found, Shortfall):
        assert not possible
        assert found.exhaustive
        return
    assert room.holds(tuple(node.node_id for nodes in found for node in nodes))


@settings(max_examples=scale_examples(1_000), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 12))
def test_a_search_that_ended_early_says_so(seed: int, steps: int) -> None:
    room = Room(seed)
    found = choose_nodes(room.candidates, room.gang, Budget(steps))
    possible = any(map(room.holds, product(room.nodes, repeat=len(room.wants))))
    if isinstance(found, Shortfall):
        assert not (possible and found.exhaustive)
    else:
        assert room.holds(tuple(node.node_id for nodes in found for node in nodes))
