"""Translates the suppositions of ``kornel.v1.ExplainService`` into those of the engine."""

from __future__ import annotations

from kornel.core.domain.resources import Resources
from kornel.core.service.wire.status_codes import InvalidRequest
from kornel.core.telling.what_if.supposition import (
    SupposeAsk,
    SupposeNodeLost,
    SupposePriority,
    SupposeQuota,
    Supposition,
)
from kornel.v1 import explain_pb2 as pb


def decode_supposition(request: pb.WhatIfRequest) -> Supposition:
    """Returns what *request* supposes. Raises :class:`InvalidRequest` if it supposes nothing."""
    match request.WhichOneof("supposition"):
        case "ask":
            ask = request.ask
            return SupposeAsk(
                Resources(dict(ask.resources)),
                ask.queue,
                ask.application_id,
                ask.count or 1,
                ask.priority,
                ask.required_node,
                not ask.never_preempts,
                ask.user,
                tuple(ask.groups),
                gang=ask.gang,
                tags=tuple(sorted(ask.tags.items())),
            )
        case "node_lost":
            return SupposeNodeLost(request.node_lost.node_id)
        case "quota":
            quota = request.quota
            maxima: dict[str, int | None] = {**dict(quota.max), **dict.fromkeys(quota.unlimited)}
            return SupposeQuota(quota.queue, maxima, dict(quota.guaranteed))
        case "priority":
            return SupposePriority(request.priority.key, request.priority.priority)
        case _:
            raise InvalidRequest("nothing is supposed: set ask, node_lost, quota or priority")
