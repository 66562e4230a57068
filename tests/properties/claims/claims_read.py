"""Reads from the engine what is claimed for whom. Whoever changes how claims are kept or shown changes this module."""

from __future__ import annotations

from kornel.core.partition.engine import Engine
from tests.oracles.claims.scene import Claim


def read_claims(engine: Engine, partition: str) -> tuple[Claim, ...]:
    """Returns all claims. Those by age, and those of asks that must run there and for which nobody goes, are saved."""
    state = engine.partition(partition)
    assert state is not None
    held = ((ask.key, ask.reservation) for ask in state.requests.values() if ask.pending)
    return tuple(Claim(key, not (r.by_age or r.comes_last), r.node.node_id) for key, r in held if r is not None)
