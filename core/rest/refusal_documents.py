"""The document of recent refusals, for the web page. YuniKorn has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kornel.core.domain.names import bare_partition_name
from kornel.core.service.events.refusals import Refusal
from kornel.core.telling.encoding.documents import Document, Kind, always, if_any, listed
from kornel.core.telling.encoding.values import COUNT, TEXT, TIME_NS, write_with

_COUNTS: Final = Kind({"type": "object", "additionalProperties": COUNT.schema})


class Refusals(NamedTuple):
    """The latest refusals, and how many there were of each kind since the core started."""

    counts: Mapping[str, int]
    refusals: Sequence[Refusal]


_REFUSAL: Final = Document(
    "",
    Refusal,
    {
        "number": always(COUNT, "number"),
        "time": always(TIME_NS, "at_ns"),
        "kind": always(TEXT, "kind"),
        "name": always(TEXT, "name"),
        "rmID": if_any(TEXT, "rm_id"),
        "partition": if_any(write_with(TEXT, bare_partition_name), "partition"),
        "applicationID": if_any(TEXT, "application_id"),
        "queueName": if_any(TEXT, "queue"),
        "user": if_any(TEXT, "user"),
        "reason": if_any(TEXT, "reason"),
        "message": if_any(TEXT, "message"),
    },
)

REFUSALS: Final = Document(
    "Refusals",
    Refusals,
    {"counts": always(_COUNTS, "counts"), "refusals": always(listed(_REFUSAL), "refusals")},
    description="Kinds: ask, application, node, configuration. Some hundreds of each kind are kept.",
)
