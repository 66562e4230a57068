"""What thousands of asks cost that require a domain and wait for room in one (docs/topology.md, preemption.md B.7)."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain import commands
from kornel.core.domain.commands import AllocationSpec, NodeAction, NodeSpec, TerminationType, UpdateAllocations
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest, Wish
from kornel.core.engine.engine import Engine
from kornel.core.model.allocations import Reservation
from kornel.core.policies.claim_order import list_lent
from kornel.core.state.options import EngineOptions
from kornel.core.state.waiting import waking

RM, PARTITION, SECOND = "rm", "[rm]default", 10**9
CONFIGURATION = """
partitions:
- {name: default, topology: [rack], queues: [{name: root, submitacl: "*", queues: [{name: a}, {name: b}]}]}
"""
NODES, APPLICATIONS, SIZES = 20, 20, 30
RACK = TopologyRequest(Wish.REQUIRED, "rack")


def ask(key: str, application: str, size: int, node: str = "", rack: TopologyRequest | None = None) -> AllocationSpec:
    return AllocationSpec(key, application, PARTITION, Resources({"vcore": size}), 0, node)._replace(topology=rack)


def test_those_who_wait_for_a_domain_are_not_all_gone_through_for_one_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full cluster, where 600 asks of 30 sizes require a rack and no priority or guarantee lets any of them pass who
    saves room: not each of them is compared with the holders when a node gains room. (With 20,000 asks of 200 sizes at
    2,000 nodes, that took seconds.)"""
    compared = 0

    def count(*args: Any, **kwargs: Any) -> list[Reservation]:
        nonlocal compared
        compared += 1
        return list_lent(*args, **kwargs)

    monkeypatch.setattr(waking, "list_lent", count)
    engine, now = Engine(EngineOptions()), SECOND
    engine.apply(commands.RegisterManager(RM, CONFIGURATION), 0)
    nodes = (
        NodeSpec(f"n{n}", NodeAction.CREATE, PARTITION, (("rack", f"r{n % 4}"),), Resources({"vcore": 100}))
        for n in range(NODES)
    )
    engine.apply(commands.UpdateNodes(RM, tuple(nodes)), 0)
    names = ["full", *(f"app{n}" for n in range(APPLICATIONS))]
    applications = (
        commands.ApplicationSpec(name, f"root.{'ab'[n % 2]}", PARTITION, "u") for n, name in enumerate(names)
    )
    engine.apply(commands.UpdateApplications(RM, tuple(applications)), 0)
    full = (ask(f"f{n}{half}", "full", 50, f"n{n}") for n in range(NODES) for half in "ab")
    engine.apply(UpdateAllocations(RM, tuple(full)), 0)
    waits = (
        ask(f"k{n}-{size}", f"app{n}", size, rack=RACK) for n in range(APPLICATIONS) for size in range(20, 20 + SIZES)
    )
    engine.apply(UpdateAllocations(RM, tuple(waits)), now)

    def settle(until: int) -> None:
        nonlocal now
        while now < until:
            now += SECOND
            while engine.cycle(now, 250).more:
                pass

    settle(5 * SECOND)
    ended = commands.ReleaseSpec(PARTITION, "full", "f0a", TerminationType.STOPPED_BY_RM)
    engine.apply(UpdateAllocations(RM, releases=(ended,)), now)
    settle(now + 5 * SECOND)
    state = engine.partition(PARTITION)
    assert state is not None
    assert len(state.waiting_for_domain) > 500
    assert state.reserving.saved
    assert compared < 50
