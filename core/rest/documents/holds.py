"""What operators did that holds, and whether the manager is there: ours, for people who look at a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.domain.drains import OperatorDrain
from core.service.presence import Presence
from core.service.rollbacks import Rollback


def document(presence: Presence | None, rollback: Rollback | None, drained: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What there is is there; what there is not is left out."""
    found: dict[str, Any] = {"drainedNodes": list(drained)}
    if presence is not None:
        found["manager"] = {"rmID": presence.rm_id, "openStreams": presence.streams, "gone": presence.gone}
        if presence.no_stream_since_ns is not None:
            found["manager"]["noStreamSince"] = presence.no_stream_since_ns
    if rollback is not None:
        found["rollback"] = {
            "version": rollback.version,
            "since": rollback.at_ns,
            "by": rollback.principal,
            "keptOut": rollback.kept_out,
        }
    return found


def drained_node(partition: str, node_id: str, drain: OperatorDrain, *, known: bool) -> dict[str, Any]:
    """A node that an operator keeps out of scheduling."""
    return {"partition": partition, "nodeID": node_id, "by": drain.by, "since": drain.at_ns, "registered": known}
