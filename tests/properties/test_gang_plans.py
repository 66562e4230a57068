"""The plan of a gang that preempts, held against a search of all plans there are.

The exact solver was written from the words of the rules (preemption.md B.10, B.11), by somebody who had not read the
planner. Where it finds a lawful plan the engine finds one too, with victims of no worse class and none in vain; where
it finds none nobody leaves. A walk may miss a plan only where a guarantee keeps some because of others. Nobody leaves
without whom all members would find places, though not the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kornel.core.preemption.guarantee.gangs import packing as gang_packing
from tests.examples import scale_examples
from tests.oracles.rules import gang_units
from tests.properties.gang_worlds import (
    GangWorld,
    Play,
    Settled,
    random_device_world,
    random_domain_world,
    random_gang_world,
)


@given(st.integers(0, 2**32))
@example(826)
@settings(max_examples=scale_examples(1_000), deadline=None)
def test_a_gang_preempts_by_a_lawful_plan_or_not_at_all(seed: int) -> None:
    judge(random_gang_world(seed))


@given(st.integers(0, 2**32))
@settings(max_examples=scale_examples(1_000), deadline=None)
def test_a_gang_that_requires_racks_preempts_in_lawful_ones_or_not_at_all(seed: int) -> None:
    world = random_domain_world(seed)
    if world.racks:
        judge(world)


@given(st.integers(0, 2**32))
@example(1)
@example(315)
@example(342)
@example(501)
@example(826)
@example(1412)
@example(2319)
@settings(max_examples=scale_examples(1_000), deadline=None)
def test_a_gang_that_wants_devices_preempts_for_all_of_them_or_not_at_all(seed: int) -> None:
    judge(random_device_world(seed))


def test_spreading_members_counts_as_work_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each set of victims two thousand tries to spread the members may be made, which is too much for one slice."""
    done: list[int] = []
    monkeypatch.setattr(gang_packing, "STEPS_AT_ONCE", 10)
    place_members, take_steps = gang_packing._Spread.place_members, gang_packing.Packing.take_steps

    def counted(spread: gang_packing._Spread) -> Iterator[None]:
        before = spread.work
        for _ in place_members(spread):
            done.append(spread.work - before)
            yield
            before = spread.work
        done.append(spread.work - before)

    def bounded(packing: gang_packing.Packing, steps: Iterator[None]) -> bool:
        done.clear()
        ended = take_steps(packing, steps)
        assert sum(done[:-1]) < 10
        assert all(work <= 10 for work in done)
        return ended

    monkeypatch.setattr(gang_packing._Spread, "place_members", counted)
    monkeypatch.setattr(gang_packing.Packing, "take_steps", bounded)
    most = 0
    for seed in range(60):
        Play(random_gang_world(seed)).settle()
        most = max(most, len(done))
    assert most > 1


def told_devices(world: GangWorld, settled: Settled, gone: Collection[str]) -> list[str]:
    """Returns what is wrong with the devices that the members were told to use once *gone* have left."""
    devices = world.unit.devices
    return [] if devices is None else devices.complaints(settled.spread, settled.devices, gone)


def judge(world: GangWorld) -> None:
    """Fails where the engine settles *world* otherwise than the rules say."""
    settled = Play(world).settle()
    if settled.refused:
        return
    books, unit, gangs = world.books(), world.unit, world.gangs
    if gang_units.fits_idle(books, unit):
        assert not settled.victims, f"{settled.victims} had to leave though all members fit: {world}"
        assert settled.spread, f"all members fit, and none was placed: {world}"
        assert told_devices(world, settled, ()) == [], f"{settled} in {world}"
        return
    best = gang_units.best_plan(books, unit, gangs)
    if not settled.victims:
        assert best is None or keeps_somebody(world), f"missed {best}: {world}"
        assert not settled.spread, f"placed without room: {world}"
        return
    victims = [books.running[key] for key in settled.victims]
    assert settled.placed_at_once, f"members were placed in parts: {settled} in {world}"
    assert settled.spread, f"{settled.victims} left for nothing: {world}"
    assert not settled.preempted_again, f"more had to leave than the first plan said: {settled} in {world}"
    said = gang_units.complaints(books, unit, gangs, settled.spread, victims)
    assert said == [], f"{said}: {settled} in {world}"
    assert not gang_units.could_stay(books, unit, gangs, victims), f"not all are needed: {settled} in {world}"
    assert told_devices(world, settled, settled.victims) == [], f"{settled} in {world}"
    assert best is not None
    whole = [gang_units.goes_below_minimum(books, gangs, each) for each in (victims, best[2])]
    assert whole != [True, False], f"a whole gang left where {best} is enough: {settled} in {world}"
    worst, least = (max((task.originator, task.opted_out) for task, _ in each) for each in (victims, best[2]))
    assert keeps_somebody(world) or worst <= least, f"{worst}, not {best}: {settled} in {world}"


def keeps_somebody(world: GangWorld) -> bool:
    """Tells whether tasks are in queues with a guarantee that the gang has no part in."""
    own = world.unit.queue
    guarding = [queue.path for queue in world.queues if queue.guaranteed and not f"{own}.".startswith(f"{queue.path}.")]
    return any(f"{task.queue}.".startswith(f"{path}.") for task, _ in world.running for path in guarding)
