"""Applications come and go."""

from __future__ import annotations

from kornel.core.domain.commands import ApplicationRef, ApplicationSpec, UpdateApplications
from kornel.core.domain.resources import Resources
from tests.properties.machine.allocation_rules import some_partition
from tests.properties.machine.cluster import APPLICATIONS, DEFAULT, LEAVES, NOWHERE, ODD_QUEUES, USERS, size
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import rule
from tests.properties.machine.world import RM, SECOND, World


def _spec(world: World, dice: Dice) -> ApplicationSpec:
    partition = some_partition(world, dice)
    queues = LEAVES if partition == DEFAULT else ("root.r",)
    tags: tuple[tuple[str, str], ...] = ()
    if dice.one_in(5):
        tags = (("application.create.force", "true"),)
    if dice.one_in(8):
        tags = (*tags, ("application.creationtime", str(world.now_ns // SECOND - dice.below(100))))
    ask: Resources | None = None
    if dice.one_in(3):
        ask = (
            dice.pick((size(60, 1), size(-1, 1))) if dice.one_in(6) else size(2 + 2 * dice.below(3), 2 * dice.below(2))
        )
    return ApplicationSpec(
        "" if dice.one_in(50) else dice.pick(APPLICATIONS[partition]),
        dice.pick(ODD_QUEUES) if dice.one_in(8) else dice.pick(queues),
        NOWHERE if dice.one_in(50) else partition,
        user=dice.pick(USERS) if dice.one_in(6) else dice.pick(USERS[:3]),
        groups=("staff",) if dice.one_in(3) else (),
        tags=tags,
        placeholder_timeout_ms=dice.pick((0, 5_000, 60_000, -1)) if ask is not None else 0,
        placeholder_ask=ask,
        gang_style=dice.pick(("", "Soft", "Hard", "odd")) if ask is not None else "",
    )


@rule(10)
def add_applications(world: World, dice: Dice) -> None:
    """One or two in one request, live already or not."""
    added = tuple(_spec(world, dice) for _ in range(1 + dice.one_in(5)))
    world.send(UpdateApplications(RM, added))


@rule(4)
def remove_applications(world: World, dice: Dice) -> None:
    """One or two, with all they have; sometimes ones that do not exist, or that are added in the same request."""
    partition = some_partition(world, dice)
    names = [dice.pick((*APPLICATIONS[partition], "nobody")) for _ in range(1 + dice.one_in(4))]
    added = (_spec(world, dice),) if dice.one_in(8) else ()
    world.send(UpdateApplications(RM, added, tuple(ApplicationRef(name, partition) for name in names)))
