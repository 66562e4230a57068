"""Waits in the simulation equal those that queueing theory works out: the recursion of Kiefer and Wolfowitz."""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heapify, heapreplace

import pytest

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


def simulate_waits(arrivals: Sequence[int], runs: Sequence[int], nodes: int, slots: int) -> list[int]:
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
    simulation = Simulation(scenario)
    simulation.play()
    assert not simulation.model.anomalies
    assert not simulation.model.tasks
    return list(simulation.figures.queues["root.line"].waits_ns)


def check_waits(number: int, nodes: int, slots: int) -> None:
    arrivals, runs = draw_work(number, nodes * slots, seed=nodes * slots)
    expected = work_out_waits(arrivals, runs, nodes * slots)
    assert sum(wait > 0 for wait in expected) > number / 50
    assert simulate_waits(arrivals, runs, nodes, slots) == expected


@pytest.mark.parametrize(("nodes", "slots"), [(1, 1), (1, 3), (3, 1), (1, 10), (10, 1), (1, 100)])
def test_each_wait_is_that_of_the_recursion(nodes: int, slots: int) -> None:
    """To the nanosecond, in the order of arrival, with one node of many slots and with many nodes of one."""
    check_waits(max(700, 25 * nodes * slots), nodes, slots)


@pytest.mark.long
@pytest.mark.xfail(reason="among a hundred nodes, an ask is overtaken now and then by younger ones", strict=True)
def test_each_wait_is_that_of_the_recursion_on_many_nodes() -> None:
    """In this line tasks 1632 and 1633 start before task 1631, and 1663 and 1664 before 1662; all are alike."""
    check_waits(2_500, nodes=100, slots=1)
