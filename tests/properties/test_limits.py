"""Whatever limits there are and whatever a shim does: users and groups are counted exactly, kept within their limits,
and nobody waits who could go on. Held against limits that are reckoned from scratch each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kornel.core.model.allocations import Allocation
from tests.examples import scale_examples
from tests.oracles import plain_limits
from tests.oracles.plain_limits import Owned
from tests.properties.held_room import has_room
from tests.properties.lending import is_kept_below
from tests.properties.limited_shim import LimitedShim
from tests.properties.shim import WIDTH, Operation, check_books, random_history
from tests.scenarios.shown_records import headroom_of

VARIANTS = st.integers(0, 9_999)
HISTORIES = st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=15, max_size=80)


def check_headroom(shim: LimitedShim) -> None:
    """Every application counts for the right group, and has the headroom that the rules give it."""
    everybody = shim.everybody()
    for name, owned in everybody.items():
        application = shim.state.applications[name]
        assert application.limit_group == owned.group, f"{name} of {owned}"
        left = shim.state.types.to_resources(headroom_of(application.accounts))
        assert dict(left) == plain_limits.headroom(shim.limits, owned, everybody.values()), f"{name} of {owned}"


def usage(shim: LimitedShim) -> dict[tuple[str, str, str, str], tuple[int, int]]:
    """(used, limit) of every limited type of everybody whom a limit binds."""
    everybody = shim.everybody().values()
    return {
        (bound.path, bound.kind, bound.name, name): (bound.used(name), most)
        for owned in everybody
        for bound in plain_limits.bounds(shim.limits, owned, everybody)
        for name, most in bound.limit.most.items()
    }


def counts(shim: LimitedShim) -> dict[str, int]:
    """Applications that run or start, by queue with a limit on them."""
    return {
        path: sum(
            path in plain_limits.paths(owned.path)
            and (shim.states[name] == "Running" or shim.state.applications[name].allocating)
            for name, owned in shim.everybody().items()
        )
        for path in shim.applications
    }


def check_nothing_above(
    shim: LimitedShim,
    used_before: Mapping[tuple[str, str, str, str], tuple[int, int]],
    counts_before: Mapping[str, int],
) -> None:
    """A cycle takes nobody further above a limit than it found them."""
    for who, (used, most) in usage(shim).items():
        assert used <= most or used <= used_before[who][0], f"{who} holds {used} of {most}"
    for path, count in counts(shim).items():
        assert count <= max(shim.applications[path], counts_before[path]), f"{count} applications in {path}"


def with_claims(shim: LimitedShim) -> dict[str, Owned]:
    """Everybody as :meth:`LimitedShim.everybody` says, holding also what somebody leaves or has left for."""
    found = dict(shim.everybody())
    for ask in shim.state.requests.values():
        if ask.pending and ask.triggered:
            name = ask.application.application_id
            found[name] = replace(found[name], held=[*found[name].held, dict(ask.shape.resources)])
    return found


def check_nobody_forgotten(shim: LimitedShim) -> None:
    """After a settled cycle no ask waits that every limit admits and an open node can hold."""
    everybody = with_claims(shim)
    running = counts(shim)
    for ask in shim.state.requests.values():
        if not ask.pending or ask.reservation is not None or not _has_room(shim, ask):
            continue
        if is_kept_below(shim.state, ask):
            continue
        name = ask.application.application_id
        owned = everybody[name]
        if shim.states[name] == "Accepted":
            gated = any(
                running[path] + 1 > shim.applications[path]
                for path in plain_limits.paths(owned.path)
                if path in shim.applications and not ask.application.allocating
            )
            if gated or not plain_limits.may_hold(shim.limits, owned, everybody.values()):
                continue
        left = plain_limits.headroom(shim.limits, owned, everybody.values())
        short = [n for n, amount in ask.shape.resources.items() if amount and amount > left.get(n, amount)]
        assert short, f"{ask} waits for nothing"


def _has_room(shim: LimitedShim, ask: Allocation) -> bool:
    pairs = ask.shape.pairs
    if any(not queue.admits(pairs) for queue in ask.queue.lineage()):
        return False
    if ask.spec.required_node:
        node = shim.state.nodes.get(ask.spec.required_node)
        refused = node is None or node.node_id in (ask.refused or {})
        return node is not None and has_room(shim.state, node, ask) and not refused
    nodes = [node for node in shim.state.nodes.values() if node.node_id not in (ask.refused or {})]
    return any(n.schedulable and has_room(shim.state, n, ask) for n in nodes)


def play(variant: int, history: list[Operation]) -> LimitedShim:
    shim = LimitedShim(variant)
    for operation in history:
        shim.perform(operation)
        check_books(shim)
        check_headroom(shim)
        used, running = usage(shim), counts(shim)
        shim.settle()
        check_books(shim)
        check_headroom(shim)
        check_nothing_above(shim, used, running)
        check_nobody_forgotten(shim)
        applications = shim.state.applications.values()
        shim.held_back += sum(application.held_at is not None for application in applications)
        shim.parked += sum(group.kept_back for application in applications for group in application.groups.values())
    return shim


@settings(max_examples=scale_examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(VARIANTS, HISTORIES)
def test_any_limits_and_any_history(variant: int, history: list[Operation]) -> None:
    """After every operation the books are sound, and every cycle keeps to the limits and uses them up."""
    play(variant, history)


@pytest.mark.long
def test_long_histories() -> None:
    """The same over long histories; in them limits do keep asks and applications back."""
    shims = [play(seed, list(random_history(seed, 150))) for seed in range(16)]
    assert sum(shim.held_back for shim in shims) > 100
    assert sum(shim.parked for shim in shims) > 500
