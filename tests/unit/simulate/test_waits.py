"""Waits in the simulation equal those that queueing theory works out: the recursion of Kiefer and Wolfowitz."""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heapify, heapreplace

import pytest

from kornel.core.engine.engine import Engine
from kornel.core.state.options import RESERVATION_PERCENT, EngineOptions
from kornel.shim_mock.scenario import Application, NodeGroup, Scenario, TaskGroup
from kornel.simulate.playing import Simulation

SECOND = 10**9
CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: line}]
"""


def work_out_waits(arrivals: Sequence[int], runs: Sequence[int], servers: int) -> list[int]:
    """Each customer goes, in the order of arrival, to the server that is free first."""
    free = [0] * servers
    heapify(free)
    waits = []
    for came, takes in zip(arrivals, runs, strict=True):
        begins = max(came, free[0])
        waits.append(begins - came)
        heapreplace(free, begins + takes)
    return waits


def draw_work(number: int, servers: int, seed: int) -> tuple[list[int], list[int]]:
    """Returns when tasks come and how long they run, in nanoseconds: nine tenths of what the servers can do."""
    dice = random.Random(seed)
    at, arrivals, runs = 0, [], []
    for _ in range(number):
        at += 1 + int(dice.expovariate(1.0) * SECOND)
        arrivals.append(at)
        runs.append(1 + int(dice.expovariate(1 / (0.9 * servers)) * SECOND))
    return arrivals, runs


def simulate_waits(arrivals: Sequence[int], runs: Sequence[int], nodes: int, slots: int, percent: int) -> list[int]:
    """*percent*: of the nodes, that carry claims by age at most."""
    groups = tuple(
        TaskGroup(f"t{number}", {"vcore": 1}, runtime_s=takes / SECOND, at_s=came / SECOND)
        for number, (came, takes) in enumerate(zip(arrivals, runs, strict=True))
    )
    scenario = Scenario(
        name="line",
        config=CONFIG,
        nodes=(NodeGroup("n", {"vcore": slots}, count=nodes),),
        applications=(Application("app", "root.line", groups),),
    )
    simulation = Simulation(scenario, engine=Engine(EngineOptions(reservation_percent=percent)))
    simulation.play()
    assert not simulation.model.anomalies
    assert not simulation.model.tasks
    return list(simulation.figures.queues["root.line"].waits_ns)


def check_waits(number: int, nodes: int, slots: int, percent: int = RESERVATION_PERCENT) -> None:
    arrivals, runs = draw_work(number, nodes * slots, seed=nodes * slots)
    expected = work_out_waits(arrivals, runs, nodes * slots)
    assert sum(wait > 0 for wait in expected) > number / 50
    assert simulate_waits(arrivals, runs, nodes, slots, percent) == expected


@pytest.mark.parametrize(("nodes", "slots"), [(1, 1), (1, 3), (3, 1), (1, 10), (10, 1), (1, 100)])
def test_each_wait_is_that_of_the_recursion(nodes: int, slots: int) -> None:
    """To the nanosecond, in the order of arrival, with one node of many slots and with many nodes of one."""
    check_waits(max(700, 25 * nodes * slots), nodes, slots)


@pytest.mark.parametrize(("nodes", "slots", "percent"), [(3, 1, 100), (6, 1, 50), (4, 2, 100)])
def test_each_wait_is_that_of_the_recursion_where_many_save_room(nodes: int, slots: int, percent: int) -> None:
    """The tasks are equal asks of one application, so that whoever has waited longest is served, on whichever node
    there is room, and wherever he saves some (preemption.md B.7)."""
    check_waits(200, nodes, slots, percent)


@pytest.mark.long
def test_each_wait_is_that_of_the_recursion_on_many_nodes() -> None:
    """Five of a hundred nodes carry claims by age."""
    check_waits(2_500, nodes=100, slots=1)
