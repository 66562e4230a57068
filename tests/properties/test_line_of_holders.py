"""The orders in which holders of claims are tried, and in which room is saved, held against the words of the rule
(preemption.md B.7): nobody stands before somebody who comes before him. Some of those who wait repair gangs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.policies.claim_order import Dues, importance_of, in_line, may_pass
from kornel.core.state.partition_state import PartitionState
from tests.properties.lending import is_ahead
from tests.scenarios.stage import Stage

LEAVES = ("a", "b.x", "b.y", "b.z.u", "b.z.v", "c.w")
PROPERTIES = ("", " priority.policy=fence", " priority.offset=2", " application.sort.priority=disabled")


@pytest.mark.parametrize("seed", range(40))
def test_nobody_is_tried_before_who_comes_before_him(seed: int) -> None:
    """Nobody stands behind somebody whom he comes before, whatever fences, offsets and unsorted queues there are."""
    rng = random.Random(seed)
    state, claims = hold(rng, PROPERTIES)
    line = [claim.ask for claim in in_line(claims)]
    assert sorted(ask.key for ask in line) == sorted(claim.ask.key for claim in claims)
    for asks in (line, sorted(line, key=importance_of)):
        wrong = [
            (one.key, other.key) for n, one in enumerate(asks) for other in asks[n:] if is_ahead(state, other, one)
        ]
        assert not wrong


@pytest.mark.parametrize("seed", range(5))
def test_equals_are_tried_as_they_hold(seed: int) -> None:
    """Where every queue sorts by priority and none has a fence or offset, equals stay in the order that is given."""
    _, claims = hold(random.Random(seed), ("",))
    assert in_line(claims) == sorted(claims, key=lambda claim: -claim.ask.turn_priority)


@pytest.mark.parametrize("seed", range(10))
def test_a_gang_that_is_repaired_keeps_its_room_from_equals_only(seed: int) -> None:
    """Whoever has a higher priority passes it, although it is owed its guarantee and he is owed nothing."""
    state, claims = hold(random.Random(seed), ("",), owed=LEAVES[::2])
    asks = [claim.ask for claim in claims]
    higher = [(ask, claim) for claim in claims for ask in asks if ask.priority > claim.ask.priority]
    assert any(claim.ask.turn_priority > claim.ask.priority for _, claim in higher)
    assert all(may_pass(ask, claim, Dues(state.guarantee_mode)) for ask, claim in higher)


def hold(
    rng: random.Random, properties: tuple[str, ...], owed: Sequence[str] = ()
) -> tuple[PartitionState, list[Reservation]]:
    """Returns claims of asks of random priorities, in random order, in a tree of queues with random *properties*.
    *owed*: the leaves that have a guarantee."""
    stage = Stage()
    paths = {".".join(["root", *leaf.split(".")[:n]]): None for leaf in LEAVES for n in range(leaf.count(".") + 2)}
    terms = {f"root.{leaf}": " guaranteed={vcore=4}" for leaf in owed}
    stage.play([f"queue {path}{rng.choice(properties)}{terms.get(path, '')}" for path in paths] + ["node n1 vcore=1"])
    stage.play(
        [
            f"ask k{number} app={leaf}{number % 2} queue=root.{leaf} vcore=2 p={rng.randrange(4)} group=w{number % 3}"
            for number, leaf in enumerate(rng.choices(LEAVES, k=24))
        ]
    )
    state = stage.state
    asks: list[Allocation] = [ask for application in state.applications.values() for ask in application.asks.values()]
    rng.shuffle(asks)
    for application in state.applications.values():
        for name in ("w0", "w1"):
            application.members_in(name).short = rng.randrange(2)
            application.missing += application.members_in(name).short
    return state, [Reservation(ask, state.nodes["n1"], number) for number, ask in enumerate(asks)]
