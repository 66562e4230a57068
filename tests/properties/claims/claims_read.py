"""Reads from the engine what is claimed for whom. Whoever changes how claims are kept or shown changes this module."""

from __future__ import annotations

from kornel.core.engine.engine import Engine
from kornel.core.model.queues import Queue
from kornel.core.model.users import Account
from tests.oracles.claims.scene import Claim


def read_claims(engine: Engine, partition: str) -> tuple[Claim, ...]:
    """Returns all claims. Those by age, those below limits, and those of asks that must run there and for which nobody
    goes, are saved."""
    state = engine.partition(partition)
    assert state is not None
    held = ((ask.key, ask.reservation) for ask in state.requests.values() if ask.pending)
    on_nodes = [Claim(key, not (r.by_age or r.comes_last), r.node.node_id) for key, r in held if r is not None]
    below = [
        Claim(claim.ask.key, False, "", _name(limit)) for claim in state.reserving.at_limits for limit in claim.limits
    ]
    return (*on_nodes, *below)


def read_owners(engine: Engine, partition: str) -> dict[str, str]:
    """Returns the victims that have not left yet, each with the ask for which it leaves now: claims pass on."""
    state = engine.partition(partition)
    assert state is not None
    leaving = (task for node in state.nodes.values() for task in node.allocations.values())
    return {task.key: task.preemptor.key for task in leaving if task.preemptor is not None}


def _name(limit: Queue | Account) -> str:
    if isinstance(limit, Queue):
        return f"max of {limit.path}"
    return f"limit of {limit.kind} {limit.name} at {limit.queue.path}"
