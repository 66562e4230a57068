"""What preemption on required nodes does in a round of the periodic cycle (preemption.md F2)."""

from __future__ import annotations

from kornel.core.partition.scheduling import reserved
from kornel.core.partition.state import PartitionState


def has_asks(state: PartitionState) -> bool:
    """Tells whether anybody waits."""
    return state.root.waiting > 0


def serve_required_nodes(state: PartitionState, now_ns: int) -> None:
    """Try the asks again that must run on one node, where something has changed for them."""
    reserved.serve(state, now_ns, required_only=True)
