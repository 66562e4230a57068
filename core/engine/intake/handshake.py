"""The steps of a replacement, from its announcement until the shim confirms it or something prevents it.

Rules: scheduling.md 10.4; protocol.md 7.2 (nodes), 10.3, 10.4 and DB-10 (confirmation, release of either half).
"""

from __future__ import annotations

from kornel.core.domain.effects import Allocated
from kornel.core.engine import lifecycle
from kornel.core.engine.gangs import pools
from kornel.core.model.allocations import Allocation
from kornel.core.state.asks import instances, moves
from kornel.core.state.asks.answers import device_tags
from kornel.core.state.partition_state import PartitionState


def confirm_replacement(state: PartitionState, placeholder: Allocation, now_ns: int) -> None:
    """Gives the place of *placeholder*, which has ended, to the ask that waited for it, and answers the shim."""
    announce_swap(state, swap_in(state, placeholder, now_ns), now_ns)


def swap_in(state: PartitionState, placeholder: Allocation, now_ns: int) -> Allocation:
    """Book the end of *placeholder* and the start of its replacement. Returns the replacement."""
    placeholder.application.note_end(placeholder, now_ns)
    real = moves.confirm_replacement(state, placeholder)
    instances.forget_request(state, placeholder)
    pools.placeholder_replaced(state, placeholder)
    return real


def announce_swap(state: PartitionState, real: Allocation, now_ns: int) -> None:
    """Updates the application after :func:`swap_in`, and tells the shim where *real* runs."""
    assert real.node is not None, "a swapped allocation has a node"
    lifecycle.placeholder_replaced(state, real.application, now_ns)
    state.effects.append(Allocated(real.spec, real.node.node_id, real.shape.resources, device_tags(real)))
