"""The document that tells the web page which drains and rollbacks of operators are in force and whether the manager is
connected. YuniKorn has no such document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.domain.drains import OperatorDrain
from kornel.core.service.configuration.rollbacks import Rollback
from kornel.core.service.streams.presence import Presence
from kornel.core.telling.encoding.documents import Document, always, if_any, if_set, listed, nested
from kornel.core.telling.encoding.values import COUNT, FLAG, TEXT, TIME_NS


class OutOfScheduling(NamedTuple):
    """A node that an operator keeps out of scheduling. ``known``: its manager has registered it."""

    partition: str
    node_id: str
    drain: OperatorDrain
    known: bool


class Holds(NamedTuple):
    """The actions of operators that are in force. ``None``: no manager is registered, or no rollback is in force."""

    drained: Sequence[OutOfScheduling]
    manager: Presence | None
    rollback: Rollback | None


_DRAINED: Final = Document(
    "",
    OutOfScheduling,
    {
        "partition": always(TEXT, "partition"),
        "nodeID": always(TEXT, "node_id"),
        "by": always(TEXT, "drain.by"),
        "since": always(TIME_NS, "drain.at_ns"),
        "registered": always(FLAG, "known"),
    },
)

_MANAGER: Final = Document(
    "",
    Presence,
    {
        "rmID": always(TEXT, "rm_id"),
        "openStreams": always(COUNT, "streams"),
        "gone": always(FLAG, "gone"),
        "noStreamSince": if_set(TIME_NS, "no_stream_since_ns"),
    },
)

_ROLLBACK: Final = Document(
    "",
    Rollback,
    {
        "version": always(COUNT, "version"),
        "since": always(TIME_NS, "at_ns"),
        "by": always(TEXT, "principal"),
        "keptOut": always(COUNT, "kept_out"),
    },
    left_out=("text", "rm_id", "brought"),
)

HOLDS: Final = Document(
    "Holds",
    Holds,
    {
        "drainedNodes": always(listed(_DRAINED), "drained"),
        "manager": if_any(nested(_MANAGER), "manager"),
        "rollback": if_any(nested(_ROLLBACK), "rollback"),
    },
    description="The actions of operators that are in force. Without ``manager``, none is registered.",
)
