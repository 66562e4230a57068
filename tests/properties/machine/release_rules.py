"""Releases of every type: the shim's own, confirmations in any order, twice or never, and plain mistakes."""

from __future__ import annotations

from kornel.core.domain.allocation_ids import allocation_id
from kornel.core.domain.commands import ReleaseSpec, TerminationType, UpdateAllocations
from tests.properties.machine.allocation_rules import some_application, some_partition, some_request, view_of
from tests.properties.machine.cluster import NOWHERE
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import rule
from tests.properties.machine.view import RequestView
from tests.properties.machine.world import RM, World

_STOPPED = TerminationType.STOPPED_BY_RM
_KINDS = (_STOPPED, 1, 1, 0, 2, 3, 4, 5, 99)


def _naming(request: RequestView, dice: Dice) -> tuple[str, str]:
    """Key and ID that mean *request*: the key alone, an ID, or both."""
    if not request.spec.instance and not dice.one_in(8):
        return request.key, ""
    named = allocation_id(request.key, request.spec.instance)
    return (request.key, named) if dice.one_in(2) else ("", named)


def _release_of(partition: str, request: RequestView, kind: int, dice: Dice) -> ReleaseSpec:
    key, named = _naming(request, dice)
    return ReleaseSpec(partition, request.owner, key, kind, allocation_id=named)


def _send(world: World, *releases: ReleaseSpec) -> None:
    world.send(UpdateAllocations(RM, releases=releases))


@rule(14)
def confirm(world: World, dice: Dice) -> None:
    """What was told to leave has left. Confirmations that never come are those this rule never picks."""
    partition = some_partition(world, dice)
    leaves_as = [request for request in view_of(world, partition).requests.values() if request.leaves_as is not None]
    for _ in range(1 + dice.below(3)):
        if not leaves_as:
            return
        request = leaves_as.pop(dice.below(len(leaves_as)))
        kind = dice.pick((1, 2, 3, 4)) if dice.one_in(8) else int(request.leaves_as or 0)
        release = _release_of(partition, request, kind, dice)
        _send(world, *([release, release] if dice.one_in(8) else [release]))


@rule(16)
def stop(world: World, dice: Dice) -> None:
    """Allocations end; most shims do this most of the time."""
    partition = some_partition(world, dice)
    running = [request for request in view_of(world, partition).requests.values() if request.node]
    gone = [running.pop(dice.below(len(running))) for _ in range(1 + dice.below(4)) if running]
    _send(world, *(_release_of(partition, request, _STOPPED, dice) for request in gone))


@rule(6)
def release_somehow(world: World, dice: Dice) -> None:
    """Any request, pending or placed, with any type; sometimes in the name of another application."""
    partition = some_partition(world, dice)
    request = some_request(world, dice, partition)
    if request is not None:
        owner = some_application(world, dice, partition) if dice.one_in(8) else request.owner
        key, named = (request.key, "") if dice.one_in(3) else _naming(request, dice)
        _send(world, ReleaseSpec(partition, owner, key, dice.pick(_KINDS), allocation_id=named))


@rule(3)
def could_not_start(world: World, dice: Dice) -> None:
    """The shim could not bind what the core placed; shims may say so twice."""
    partition = some_partition(world, dice)
    request = some_request(world, dice, partition, placed=True)
    if request is not None:
        release = _release_of(partition, request, TerminationType.SCHEDULING_FAILED_ON_RM, dice)
        _send(world, *([release, release] if dice.one_in(3) else [release]))


@rule(3)
def withdraw(world: World, dice: Dice) -> None:
    """The older list: one ask or all of an application."""
    partition = some_partition(world, dice)
    ask = some_request(world, dice, partition, placed=False)
    owner = ask.owner if ask is not None else some_application(world, dice, partition)
    key = ask.key if ask is not None and not dice.one_in(4) else dice.pick(("", "unknown"))
    entry = ReleaseSpec(partition, owner, key, dice.pick((1, 1, 2)))
    world.send(UpdateAllocations(RM, ask_releases=(entry,)))


@rule(1)
def release_everything(world: World, dice: Dice) -> None:
    partition = some_partition(world, dice)
    _send(world, ReleaseSpec(partition, some_application(world, dice, partition), "", dice.pick(_KINDS)))


@rule(2)
def release_the_unknown(world: World, dice: Dice) -> None:
    """Keys, applications and partitions that do not exist are ignored without an answer."""
    partition = some_partition(world, dice)
    owner = some_application(world, dice, partition)
    unknown = (
        ReleaseSpec(partition, owner, "unknown"),
        ReleaseSpec(partition, "nobody", "k00"),
        ReleaseSpec(partition, "nobody", ""),
        ReleaseSpec(partition, owner, "", allocation_id="k00-77"),
        ReleaseSpec(partition, owner, "k00", allocation_id="k00-9999"),
        ReleaseSpec(partition, owner, "", allocation_id="made-by-another-core"),
        ReleaseSpec(NOWHERE, owner, "k00"),
    )
    _send(world, dice.pick(unknown)._replace(termination=dice.pick(_KINDS)))
