"""Whatever a shim does, in whatever order: the books add up, the laws hold, and nobody is forgotten."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kornel.core.model.allocations import Allocation
from kornel.core.state.partition_state import PartitionState
from tests.examples import scale_examples
from tests.properties.held_room import holders, lacking
from tests.properties.lending import may_use
from tests.properties.shim import WIDTH, Operation, Shim, check_books, check_nothing_left, random_history

HISTORIES = st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=15, max_size=100)
VARIANTS = st.integers(0, 23)


def _amounts(shim: Shim) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    state = shim.state
    return (
        {node_id: list(node.free) for node_id, node in state.nodes.items()},
        {path: list(queue.used) for path, queue in state.queues.items()},
    )


def _check_only_forced_excess(
    shim: Shim, before: tuple[dict[str, list[int]], dict[str, list[int]]], swaps: dict[str, list[int]]
) -> None:
    """A cycle leaves no node and no queue further above what it has than it found them, but for swaps."""
    state = shim.state
    free_before, used_before = before
    for node_id, node in state.nodes.items():
        for was, now in zip(free_before[node_id], node.free, strict=True):
            assert now >= 0 or now == was, f"{node} is filled beyond its capacity"
    for path, queue in state.queues.items():
        if queue.parent is None:
            continue  # The size of the cluster: that is for the nodes to keep.
        for t, most in queue.max.items():
            now, swapped = queue.used[t], swaps[path][t] if path in swaps else 0
            assert now <= most or now <= used_before[path][t] + swapped, f"{queue} is filled beyond its max"


def _held(shim: Shim) -> dict[str, set[str]]:
    """What runs on each node, or has its room there until its placeholder elsewhere is gone."""
    return {node_id: set(node.allocations) for node_id, node in shim.state.nodes.items()}


def _swaps(shim: Shim) -> dict[str, list[int]]:
    """By queue above its max, what asks that preempted there are about to take over from their victims."""
    found: dict[str, list[int]] = {}
    for ask in shim.state.requests.values():
        for queue in ask.swaps_in:
            amounts = found.setdefault(queue.path, [0] * len(queue.used))
            for t, amount in ask.shape.pairs:
                amounts[t] += amount
    return found


Claims = dict[str, tuple[list[Allocation], list[int]]]
"""By node: who holds room there, and how much more than there is."""


def _claims(shim: Shim) -> Claims:
    state = shim.state
    found: Claims = {}
    for node_id, node in state.nodes.items():
        asks = holders(state, node)
        found[node_id] = (asks, lacking(state, node, asks))
    return found


def _check_held_room(shim: Shim, claims: Claims, held: dict[str, set[str]]) -> None:
    """Nothing was placed on room still held for an ask, but what must run there (preemption.md A.1 no. 15, H)."""
    state = shim.state
    for node_id, (before, lacked) in claims.items():
        node = state.nodes[node_id]
        placed = [node.allocations[key] for key in sorted(node.allocations.keys() - held[node_id])]
        if any(p.spec.required_node for p in placed):
            continue
        still = [ask for ask in holders(state, node) if ask in before and not _is_lent(state, ask, placed)]
        for lacks, did in zip(lacking(state, node, still), lacked, strict=True):
            assert lacks <= did, f"{placed} took room on {node} that is held for {still}"


def _is_lent(state: PartitionState, holder: Allocation, placed: list[Allocation]) -> bool:
    """Whether the room is saved for *holder*, and one of those *placed* may have used it."""
    claim = holder.reservation
    saved = claim is not None and claim.comes_last
    return saved and any(may_use(state, ask, holder, before=False) for ask in placed)


def _play(variant: int, history: list[Operation], *, gangs: bool = False) -> None:
    shim = Shim(variant, gangs=gangs)
    for operation in history:
        shim.perform(operation)
        check_books(shim)
        before = _amounts(shim)
        claims, swaps = _claims(shim), _swaps(shim)
        held = _held(shim)
        shim.settle()
        check_books(shim)
        _check_held_room(shim, claims, held)
        _check_only_forced_excess(shim, before, swaps)
        check_nothing_left(shim)


@settings(max_examples=scale_examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(VARIANTS, HISTORIES)
def test_any_history(variant: int, history: list[Operation]) -> None:
    """After every operation the books are sound, and after every cycle nothing that fits is left waiting."""
    _play(variant, history)


@pytest.mark.long
def test_long_histories() -> None:
    """The same holds over long histories, in which everything has happened to everything."""
    for seed in range(24):
        _play(seed, list(random_history(seed, 250)))


REPLACED_ON_A_NODE_THEN_KEPT: Final = [
    (0, 0, 2, 0, 0, 0),
    (0, 0, 679, 915, 0, 1),
    (0, 0, 0, 2000, 0, 1),
    (0, 0, 594, 509, 0, 0),
    (0, 0, 0, 0, 0, 0),
]
"""An ask has its room on n0 and waits for its placeholder on n1 to go when n0 becomes kept for another."""


@settings(max_examples=scale_examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@example(18, REPLACED_ON_A_NODE_THEN_KEPT)
@given(VARIANTS, HISTORIES)
def test_any_history_of_gangs(variant: int, history: list[Operation]) -> None:
    """The same with placeholders that are replaced, time out, and are confirmed in any order or not at all."""
    _play(variant, history, gangs=True)


@pytest.mark.long
def test_long_histories_of_gangs() -> None:
    """Long histories of gangs, in which all of that really happens."""
    seen: Counter[str] = Counter()
    elsewhere = 0
    for seed in range(16):
        shim = Shim(seed, gangs=True)
        for operation in random_history(seed, 250):
            shim.perform(operation)
            check_books(shim)
            replacing = [r for r in shim.state.requests.values() if r.replaces is not None]
            elsewhere += sum(r.node is not r.replaces.node for r in replacing if r.replaces is not None)
            shim.settle()
            check_books(shim)
            check_nothing_left(shim)
        for line in shim.log:
            seen.update(name for name in ("PLACEHOLDER_REPLACED", "AskReleased(", "Resuming", "Failed") if name in line)
    assert seen["PLACEHOLDER_REPLACED"] > 20
    assert seen["Resuming"] > 2
    assert seen["Failed"] > 0
    assert seen["AskReleased("] > 0
    assert elsewhere > 20


def test_long_histories_preempt() -> None:
    """The histories are not idle: asks preempt, victims are confirmed, and asks are placed."""
    preemptions = placed = 0
    for seed in range(6):
        shim = Shim(seed)
        for operation in random_history(seed, 250):
            shim.perform(operation)
        preemptions += shim.state.preemptions
        placed += sum(line.startswith("Allocated(") for line in shim.log)
    assert preemptions > 10
    assert placed > 400
