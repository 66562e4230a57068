"""Reads from the engine what is claimed for whom. Whoever changes how claims are kept or shown changes this module."""

from __future__ import annotations

from kornel.core.partition.engine import Engine
from tests.oracles.claims.scene import Claim


def read_claims(engine: Engine, partition: str, since: dict[str, int], now: int) -> tuple[Claim, ...]:
    """Returns all claims, each with the second in which it was first seen, which *since* keeps.

    A claim is saved if it is held by age, or for an ask that must run there and for which nobody goes; else firm.
    """
    state = engine.partition(partition)
    assert state is not None
    found = []
    for ask in state.requests.values():
        if not ask.pending or ask.reservation is None:
            continue
        saved = ask.reservation.by_age or ask.reservation.comes_last
        node = ask.reservation.node.node_id
        found.append(Claim(ask.key, not saved, node, since=since.setdefault(f"{ask.key} {node}", now)))
    for known in since.keys() - {f"{claim.key} {claim.node}" for claim in found}:
        del since[known]
    return tuple(found)
