"""The journal of a simulated run equals that of the same scenario over gRPC with the test clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kornel.shim_mock.scenario import Scenario, load_scenario
from kornel.si.v1 import si_pb2 as si
from kornel.simulate.playing import Simulation
from kornel.simulate.simulated_core import SimulatedCore
from kornel.simulate.virtual_time import VirtualAgenda
from tests.e2e.simulate.over_the_wire import Line, leave_out_greetings, play_over_wire, recorded_engine
from tests.random_scenarios import make_scenario

BUILT_IN = sorted(path.stem for path in Path(str(files("kornel.shim_mock") / "scenarios")).glob("*.yaml"))
UNTIL_S = 30.0


def simulate(scenario: Scenario, until_s: float) -> tuple[list[Line], Simulation]:
    """Returns the calls of the engine of a simulation, and the simulation at the end."""
    engine, kept = recorded_engine()
    engine.record_events()  # As a service does; their number is in the journal.
    simulation = Simulation(scenario, engine=engine, keeps_ended=True)
    simulation.play(until_s)
    return leave_out_greetings(kept.lines), simulation


async def compare(scenario: Scenario, until_s: float) -> None:
    """Fails at the first call that differs."""
    simulated, simulation = simulate(scenario, until_s)
    wire, model = await play_over_wire(scenario, until_s)
    for number, (mine, theirs) in enumerate(zip(simulated, wire, strict=False)):
        assert mine == theirs, f"call {number} of {len(simulated)} and {len(wire)}"
    assert len(simulated) == len(wire)
    assert simulation.model.anomalies == model.anomalies
    assert simulation.model.count_tasks() == model.count_tasks()
    assert simulation.model.accounts.preemptions == model.accounts.preemptions


@pytest.mark.parametrize("name", BUILT_IN)
async def test_built_in_scenarios(name: str) -> None:
    """Each scenario of shim_mock gives the same calls with the same outcomes at the same times."""
    path = Path(str(files("kornel.shim_mock") / "scenarios" / f"{name}.yaml"))
    await compare(load_scenario(path), UNTIL_S)


@pytest.mark.parametrize(
    "seed", [seed if seed <= 4 else pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 21)]
)
async def test_random_scenarios(seed: int) -> None:
    """So does each random one."""
    await compare(make_scenario(seed), 100.0)


async def test_faults_of_the_adapter_are_found() -> None:
    """Messages in another order, one that is a nanosecond early, and one confirmation that is lost."""
    scenario = make_scenario(1)
    wire, _ = await play_over_wire(scenario, 100.0)
    assert simulate(scenario, 100.0)[0] == wire
    send = SimulatedCore.send_allocations
    add_call = VirtualAgenda._add_call

    def lose_confirmation(core: SimulatedCore, entries: Sequence[Any]) -> None:
        preempted = si.PREEMPTED_BY_SCHEDULER
        send(core, [entry for entry in entries if getattr(entry, "terminationType", 0) != preempted])

    def come_early(agenda: VirtualAgenda, at_ns: int, callback: Callable[[], None]) -> None:
        add_call(agenda, max(agenda.wall_ns, at_ns - 1), callback)

    def reverse_order(core: SimulatedCore, entries: Sequence[Any]) -> None:
        send(core, list(reversed(entries)))

    for place, name, fault in (
        (SimulatedCore, "send_allocations", lose_confirmation),
        (SimulatedCore, "send_allocations", reverse_order),
        (VirtualAgenda, "_add_call", come_early),
    ):
        with mock.patch.object(place, name, fault):
            assert simulate(scenario, 100.0)[0] != wire, fault.__name__
