"""Time, slices, rounds of preemption, configurations, and shims that start over."""

from __future__ import annotations

from typing import Final

from kornel.core.domain.commands import (
    Command,
    RegisterManager,
    UnregisterManager,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from tests.properties.machine.cluster import BAD_CONFIGURATIONS, VARIANTS, configuration
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import rule
from tests.properties.machine.world import RM, SECOND, World

_MS: Final = 10**6
_DAY: Final = 24 * 3600 * SECOND
_JUMPS_NS: Final = (
    100 * _MS, _MS, SECOND, 2 * SECOND, 2 * SECOND, 5 * SECOND, 16 * SECOND, 16 * SECOND, 31 * SECOND, 31 * SECOND,
    70 * SECOND, 700 * SECOND, 1000 * SECOND, 3700 * SECOND, 2 * _DAY, 4 * _DAY,
)  # fmt: skip


@rule(14)
def settle(world: World, dice: Dice) -> None:
    world.settle(dice.pick((1000, 1000, 7, 1)))


@rule(6)
def one_slice(world: World, dice: Dice) -> None:
    """One slice, however small, and whatever comes before the next."""
    world.cycle(dice.below(9))


@rule(14)
def later(world: World, dice: Dice) -> None:
    """Time passes, and a core that wanted to be called may be called late."""
    world.now_ns += dice.pick(_JUMPS_NS)
    if not dice.one_in(4):
        world.settle()


@rule(6)
def preempt(world: World, dice: Dice) -> None:
    """A round of the periodic preemption cycle."""
    if dice.one_in(2):
        world.now_ns += 2 * SECOND
    world.preempt()


@rule(2)
def configure(world: World, dice: Dice) -> None:
    world.send(UpdateConfiguration(RM, configuration(dice.below(VARIANTS))))


@rule(1)
def configure_wrongly(world: World, dice: Dice) -> None:
    """Configurations that cannot be used, and managers that are not registered, change nothing."""
    other = dice.pick(("", "other"))
    commands: tuple[Command, ...] = (
        UpdateConfiguration(RM, dice.pick(BAD_CONFIGURATIONS)),
        UpdateConfiguration(other, configuration(0)),
        RegisterManager(other, configuration(0)),
        UpdateNodes(other),
        UpdateApplications(other),
        UnregisterManager(other),
    )
    world.send(dice.pick(commands))


@rule(1)
def start_over(world: World, dice: Dice) -> None:
    """Registration clears everything, silently. A failed one leaves nobody registered, so the next follows at once."""
    if not dice.one_in(6):
        return
    if dice.one_in(3):
        bad = RegisterManager(RM, dice.pick(BAD_CONFIGURATIONS))
        world.send(UnregisterManager(RM) if dice.one_in(2) else bad)
        world.send(UpdateNodes(RM))
    world.send(RegisterManager(RM, configuration(dice.below(VARIANTS))))
