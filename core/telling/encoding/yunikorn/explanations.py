"""Writes explanations. YuniKorn has none; the names are those of ``kornel.v1`` in YuniKorn's
style."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.domain.effects import VictimRecord
from kornel.core.model.not_placed import Failure
from kornel.core.preemption.foresight import LawTally, PreemptionOutlook, PreemptionVerdict
from kornel.core.telling.allocations.explanation import (
    ApplicationReport,
    AskReport,
    Blocker,
    EqualAsks,
    Level,
    LostWork,
    Position,
    PreemptedWork,
    Report,
    Shortage,
)
from kornel.core.telling.encoding.documents import Described, Document, always, apart, if_any, listed, nested
from kornel.core.telling.encoding.records import made
from kornel.core.telling.encoding.values import (
    AMOUNT,
    AMOUNTS,
    COUNT,
    FLAG,
    TEXT,
    TEXTS,
    TIME_NS,
    WHOLE,
    drained_at_ns,
    drained_by,
    one_of,
)
from kornel.core.telling.nodes.node_reports import AskOnNode, AsksOnNode, NodeReport

VICTIM: Final = Document(
    "Victim",
    VictimRecord,
    {
        "allocationKey": always(TEXT, "key"),
        "applicationID": always(TEXT, "application_id"),
        "queueName": always(TEXT, "queue"),
        "nodeID": always(TEXT, "node_id"),
        "priority": always(WHOLE, "adjusted_priority"),
        "resource": if_any(AMOUNTS, "resources"),
    },
)

PREEMPTED: Final = Document(
    "Preempted",
    PreemptedWork,
    {
        "victim": always(nested(VICTIM), "victim"),
        "time": always(TIME_NS, "at_ns"),
        "kind": always(TEXT, "kind"),
        "takenBy": if_any(TEXT, "taken_by"),
        "takenByApplicationID": if_any(TEXT, "taken_by_application"),
        "takenByQueue": if_any(TEXT, "taken_by_queue"),
        "law": if_any(TEXT, "law"),
        "reason": if_any(TEXT, "reason"),
        "alternatives": if_any(TEXT, "alternatives"),
    },
)

BLOCKER: Final = Document(
    "Blocker",
    Blocker,
    {
        "kind": always(TEXT, "kind"),
        "level": always(one_of(*(level for level in Level if level is not Level.MANAGER)), "level"),
        "name": always(TEXT, "name"),
        "detail": if_any(TEXT, "detail"),
        "shortages": if_any(
            listed(
                Document(
                    "",
                    Shortage,
                    {
                        "type": always(TEXT, "type"),
                        "limit": always(AMOUNT, "limit"),
                        "used": always(AMOUNT, "used"),
                        "asked": always(AMOUNT, "asked"),
                        "short": always(AMOUNT, "short"),
                    },
                )
            ),
            "shortages",
        ),
        "nodes": if_any(COUNT, "nodes"),
        "permanent": if_any(FLAG, "permanent"),
        "until": if_any(TIME_NS, "until_ns"),
    },
    left_out=("distance",),
    description="One thing in the way, the worst first. permanent: waiting alone does not help.",
)

PREEMPTION_OUTLOOK: Final = Document(
    "PreemptionOutlook",
    PreemptionOutlook,
    {
        "verdict": always(one_of(*PreemptionVerdict), "verdict"),
        "blockedBy": if_any(TEXT, "blocked_by"),
        "outcome": if_any(TEXT, "outcome"),
        "detail": if_any(TEXT, "detail"),
        "notBefore": if_any(TIME_NS, "not_before_ns"),
        "nodeID": if_any(TEXT, "node_id"),
        "victims": if_any(listed(VICTIM), "victims"),
        "protections": if_any(
            listed(
                Document(
                    "",
                    LawTally,
                    {
                        "law": always(TEXT, "law"),
                        "queues": always(COUNT, "queues"),
                        "allocations": always(COUNT, "allocations"),
                        "example": always(TEXT, "example"),
                    },
                )
            ),
            "protected",
        ),
    },
)

ASK_REPORT: Final = Document(
    "AskReport",
    AskReport,
    {
        "allocationKey": always(TEXT, "key"),
        "applicationID": always(TEXT, "application_id"),
        "queueName": always(TEXT, "queue"),
        "state": always(TEXT, "state"),
        "priority": always(WHOLE, "priority"),
        "fittingNodes": always(COUNT, "fitting_nodes"),
        "nodeID": if_any(TEXT, "node_id"),
        "resource": if_any(AMOUNTS, "resources"),
        "requestTime": if_any(TIME_NS, "created_ns"),
        "blockers": if_any(listed(BLOCKER), "blockers"),
        "position": if_any(
            nested(
                Document(
                    "",
                    Position,
                    {
                        "application": always(COUNT, "application"),
                        "applicationOf": always(COUNT, "application_of"),
                        "queue": always(COUNT, "leaf"),
                        "queueOf": always(COUNT, "leaf_of"),
                        "partition": always(COUNT, "partition"),
                        "partitionOf": always(COUNT, "partition_of"),
                    },
                    description="Places in line, from 1, and of how many pending asks.",
                )
            ),
            "position",
        ),
        "preemption": if_any(nested(PREEMPTION_OUTLOOK), "preemption"),
        "preempted": if_any(nested(PREEMPTED), "preempted"),
        "failures": if_any(
            listed(
                Document(
                    "",
                    Failure,
                    {
                        "message": always(TEXT, "message"),
                        "count": always(COUNT, "times"),
                        "lastOccurrence": always(TIME_NS, "last_ns"),
                    },
                )
            ),
            "failures",
        ),
    },
)

APPLICATION_REPORT: Final = Document(
    "ApplicationReport",
    ApplicationReport,
    {
        "applicationID": always(TEXT, "application_id"),
        "queueName": always(TEXT, "queue"),
        "state": always(TEXT, "state"),
        "user": always(TEXT, "user"),
        "pendingAsks": always(COUNT, "pending"),
        "allocations": always(COUNT, "allocations"),
        "groupCount": always(COUNT, "kinds"),
        "usedResource": if_any(AMOUNTS, "used"),
        "groups": if_any(
            listed(
                Document(
                    "",
                    EqualAsks,
                    {"size": always(COUNT, "size"), "first": always(nested(ASK_REPORT), "first")},
                )
            ),
            "asks",
        ),
        "preempted": if_any(listed(PREEMPTED), "preempted"),
        "remarks": if_any(TEXTS, "remarks"),
    },
)

ASK_ON_NODE: Final = Document(
    "AskOnNode",
    AskOnNode,
    {
        "allocationKey": always(TEXT, "key"),
        "applicationID": always(TEXT, "application_id"),
        "queueName": always(TEXT, "queue"),
        "state": always(TEXT, "state"),
        "nodeID": always(TEXT, "node_id"),
        "resource": if_any(AMOUNTS, "resources"),
        "runsOn": if_any(TEXT, "runs_on"),
        "blockers": if_any(listed(BLOCKER), "blockers"),
        "elsewhere": if_any(listed(BLOCKER), "elsewhere"),
        "firstNode": if_any(TEXT, "first_node"),
    },
    description="Why an ask is, or is not, on one node. elsewhere: what keeps it waiting whatever the node.",
)

NODE_REPORT: Final = Document(
    "NodeReport",
    NodeReport,
    {
        "nodeID": always(TEXT, "node_id"),
        "schedulable": always(FLAG, "schedulable"),
        "drainedByManager": if_any(FLAG, "drained_by_manager"),
        "drainedBy": if_any(TEXT, made(drained_by, "operator_drain")),
        "drainedSince": if_any(TIME_NS, made(drained_at_ns, "operator_drain")),
        "capacity": if_any(AMOUNTS, "capacity"),
        "available": if_any(AMOUNTS, "available"),
        "allocations": always(COUNT, "allocations"),
        "reservations": if_any(TEXTS, "reservations"),
        "lastPlaced": if_any(TIME_NS, "last_placed_ns"),
        "waitingAsks": always(COUNT, "waiting"),
        "verdicts": if_any(
            listed(
                Document(
                    "",
                    AsksOnNode,
                    {
                        "kind": always(TEXT, "kind"),
                        "asks": always(COUNT, "asks"),
                        "example": always(TEXT, "example"),
                        "blocker": if_any(nested(BLOCKER), "blocker"),
                    },
                    description="Waiting asks with the same first obstacle; fits: nothing is in their way.",
                )
            ),
            "verdicts",
        ),
    },
    description="Why a node is used as it is: what keeps the asks that wait off it.",
)

EXPLANATION: Final = Document(
    "Explanation",
    Described,
    {
        "ask": apart(nested(ASK_REPORT)),
        "application": apart(nested(APPLICATION_REPORT)),
        "lost": apart(nested(PREEMPTED)),
        "askOnNode": apart(nested(ASK_ON_NODE)),
        "node": apart(nested(NODE_REPORT)),
    },
    description="One of the five.",
)


def write_explanation(found: Report | AskOnNode | NodeReport) -> dict[str, Any]:
    """Returns the document with *found*, in the field for its kind of report, as :data:`EXPLANATION` describes it."""
    if isinstance(found, AskReport):
        return {"ask": ASK_REPORT.write(found)}
    if isinstance(found, ApplicationReport):
        return {"application": APPLICATION_REPORT.write(found)}
    if isinstance(found, AskOnNode):
        return {"askOnNode": ASK_ON_NODE.write(found)}
    if isinstance(found, NodeReport):
        return {"node": NODE_REPORT.write(found)}
    assert isinstance(found, LostWork)
    return {"lost": PREEMPTED.write(found.preempted)}
