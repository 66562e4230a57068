"""The schemas of all answers, which clients may rely on and tests check (rest.md 4, 5 and 8).

Each schema comes from the table from which the answer is made. Fields that are not ``required`` are left out if they
are empty, 0 or unset. Clients have to accept further fields.
"""

from __future__ import annotations

from typing import Final

from kornel.core.rest import reports
from kornel.core.rest.errors import ERROR
from kornel.core.rest.holds import HOLDS
from kornel.core.rest.page_documents import CALLER_REPORT, PLACEMENT, SEARCH
from kornel.core.rest.page_links import LINKS
from kornel.core.rest.refusal_documents import REFUSALS
from kornel.core.telling.encoding import values
from kornel.core.telling.encoding.documents import Schema
from kornel.core.telling.encoding.yunikorn import (
    applications,
    cluster,
    events,
    explanations,
    nodes,
    preemption_kinds,
    queues,
    usage,
)

FLAG: Final = values.FLAG.schema
NAME: Final[Schema] = {"type": "string", "minLength": 1}
POSITIVE: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 2**64 - 1}
UNSIGNED: Final[Schema] = {**values.COUNT.schema, "maximum": 2**64 - 1}


def any_case(*words: str, empty: bool = False) -> Schema:
    """Returns the schema of one of *words*, in any case; with *empty*, an empty text is allowed as well."""
    spelt = ["".join(f"[{letter.lower()}{letter.upper()}]" for letter in word) for word in words]
    return {"type": "string", "pattern": f"^({'|'.join([*([''] if empty else []), *spelt])})$"}


def schema_reference(name: str) -> Schema:
    """Returns a reference to the schema called *name*."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_schema(name: str) -> Schema:
    """Returns the schema of a list of objects with the schema called *name*."""
    return {"type": "array", "items": schema_reference(name)}


SCHEMAS: Final[dict[str, Schema]] = {
    document.name: document.schema
    for document in (
        ERROR,
        cluster.CLUSTER,
        cluster.PARTITION,
        cluster.RULE,
        queues.QUEUE,
        applications.ASK,
        applications.ALLOCATION,
        nodes.FOREIGN,
        nodes.NODE_DOMAIN,
        nodes.DEVICE_HOLDER,
        nodes.DEVICE,
        explanations.VICTIM,
        explanations.PREEMPTED,
        explanations.BLOCKER,
        explanations.PREEMPTION_OUTLOOK,
        explanations.ASK_ON_NODE,
        explanations.ASK_REPORT,
        explanations.NODE_REPORT,
        explanations.APPLICATION_REPORT,
        explanations.EXPLANATION,
        explanations.DECISION,
        preemption_kinds.PREEMPTION_KIND,
        preemption_kinds.PREEMPTION_ENDING,
        preemption_kinds.PREEMPTION_KINDS,
        explanations.DECISION_BATCH,
        applications.RESOURCE_HISTORY,
        applications.APPLICATION,
        nodes.NODE,
        nodes.DOMAIN,
        nodes.CLAIM,
        nodes.UTILIZATION,
        reports.APPLICATION_SAMPLE,
        reports.CONTAINER_SAMPLE,
        reports.CONFIGURATION,
        reports.VALIDATION,
        usage.USAGE,
        usage.USER,
        usage.GROUP,
        events.EVENT,
        events.EVENT_BATCH,
        reports.HEALTH,
        HOLDS,
        REFUSALS,
        LINKS,
        CALLER_REPORT,
        SEARCH,
        PLACEMENT,
        reports.STATE_DUMP,
    )
}
"""All schemas by name, in the order of the documentation."""
