"""Why an ask waits, in plain values."""

from __future__ import annotations

from core.domain.status import AskExplanation, AskFailure
from core.model.allocations import Allocation
from core.partition.state import PartitionState


def explain(state: PartitionState, key: str) -> AskExplanation | None:
    """The ask or allocation *key* as it stands; ``None`` if the partition does not know it."""
    allocation = state.requests.get(key)
    if allocation is None:
        return None
    ask_state, node_id = _standing(allocation)
    application = allocation.application
    failures = () if allocation.failures is None else allocation.failures.recent_first()
    return AskExplanation(
        application.application_id,
        allocation.queue.path,
        ask_state,
        node_id,
        tuple([AskFailure(*failure) for failure in failures]),
    )


def _standing(allocation: Allocation) -> tuple[str, str]:
    """Name of the state, and the node that goes with it."""
    if allocation.node is not None:
        return "Allocated", allocation.node.node_id
    if allocation.held_on is not None:
        return "Held", allocation.held_on.node_id
    if allocation.reservation is not None:
        return "Reserved", allocation.reservation.node.node_id
    return "Pending", ""
