"""Lists every route of the interface, with its texts for the OpenAPI document (rest.md 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kornel.core.rest import sorting
from kornel.core.rest.access import Access
from kornel.core.rest.handlers import debug
from kornel.core.rest.handlers.applications import ACTIVE, ApplicationHandlers
from kornel.core.rest.handlers.calls import CALLS, MOST_BODY, CallHandlers
from kornel.core.rest.handlers.cluster import ClusterHandlers
from kornel.core.rest.handlers.configuration import ConfigurationHandlers
from kornel.core.rest.handlers.documentation import DocumentationHandlers
from kornel.core.rest.handlers.dump import DumpHandlers
from kornel.core.rest.handlers.events import EventHandlers
from kornel.core.rest.handlers.explanations import ExplanationHandlers
from kornel.core.rest.handlers.findings import FindingHandlers
from kornel.core.rest.handlers.health import HealthHandlers, live
from kornel.core.rest.handlers.history import HistoryHandlers
from kornel.core.rest.handlers.metrics import MetricsHandlers
from kornel.core.rest.handlers.nodes import NodeHandlers
from kornel.core.rest.handlers.queues import QueueHandlers
from kornel.core.rest.handlers.refusals import RefusalHandlers
from kornel.core.rest.handlers.users import UserHandlers
from kornel.core.rest.listing import PAGE_PARAMETERS
from kornel.core.rest.operations import JSON_TYPE, Operation, Parameter
from kornel.core.rest.routing import Route
from kornel.core.rest.schemas import FLAG, NAME, POSITIVE, UNSIGNED, any_case, list_schema, schema_reference
from kornel.core.service.events.refusals import RefusalKind
from kornel.core.telling.claims.claim_views import ClaimKind
from kornel.core.telling.encoding.documents import Schema

PREFIX: Final = "/ws/v1"

_BAD_PAGE: Final = {400: "A parameter that cannot be read."}
_NO_PARTITION: Final = {404: "Partition not found."}
_BAD_QUEUE: Final = {400: "Not a queue's path, or a parameter that cannot be read.", 404: "No such partition or queue."}
_NO_NAME: Final = {400: "Not a name.", 404: "Unknown."}
_SUMMARY: Final = Parameter("summary", "Extension: leave out allocations and asks.", FLAG)
_APPLICATION_FILTERS: Final = (
    *PAGE_PARAMETERS,
    sorting.APPLICATIONS.parameter,
    _SUMMARY,
    Parameter("user", "Extension: only applications of this user."),
    Parameter("queuePrefix", "Extension: only applications of queues whose path begins so."),
    Parameter("contains", "Extension: only applications with this text in ID, queue or user; case does not matter."),
    Parameter("since", "Extension: only applications submitted at this time (ns) or later.", UNSIGNED),
)
_TAKEN_SINCE: Final = Parameter("since", "Extension: only samples taken at this time (ns) or later.", UNSIGNED)
_STATUS: Final = Parameter(
    "status", f"Only applications in this active state: {', '.join(ACTIVE)}.", any_case(*ACTIVE, empty=True)
)
_SUBTREE: Final = Parameter("subtree", "With any value, the answer also has all queues below.")


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of all routes."""

    cluster: ClusterHandlers
    queues: QueueHandlers
    nodes: NodeHandlers
    applications: ApplicationHandlers
    users: UserHandlers
    events: EventHandlers
    explanations: ExplanationHandlers
    configuration: ConfigurationHandlers
    history: HistoryHandlers
    health: HealthHandlers
    refusals: RefusalHandlers
    dump: DumpHandlers
    metrics: MetricsHandlers
    documentation: DocumentationHandlers
    findings: FindingHandlers
    calls: CallHandlers


def all_routes(to: Handlers) -> list[Route]:
    """Returns the routes in the order in which the documentation shows them."""
    return [
        *_cluster_routes(to),
        *_partition_routes(to),
        *_application_routes(to),
        *_explanation_routes(to),
        *_user_routes(to),
        *_event_routes(to),
        *_configuration_routes(to),
        *_finding_routes(to),
        *_call_routes(to),
        *_operation_routes(to),
        *_debug_routes(to),
    ]


def _cluster_routes(to: Handlers) -> list[Route]:
    return [
        Route(
            f"{PREFIX}/clusters",
            to.cluster.clusters,
            _get("clusters", "Cluster", "Clusters.", list_schema("Cluster"), PAGE_PARAMETERS, errors=_BAD_PAGE),
        ),
        Route(
            f"{PREFIX}/partitions",
            to.cluster.partitions,
            _get(
                "partitions", "Cluster", "All partitions.", list_schema("Partition"), PAGE_PARAMETERS, errors=_BAD_PAGE
            ),
        ),
        Route(
            f"{PREFIX}/scheduler/node-utilizations",
            to.cluster.utilization,
            _get(
                "nodeUtilizations",
                "Cluster",
                "Numbers of nodes by how full they are, by partition and resource type.",
                list_schema("PartitionNodeUtilization"),
                PAGE_PARAMETERS,
                errors=_BAD_PAGE,
            ),
        ),
        Route(
            f"{PREFIX}/history/apps",
            to.history.applications,
            _get(
                "applicationHistory",
                "Cluster",
                "Numbers of running applications, one sample per minute.",
                list_schema("ApplicationSample"),
                (*PAGE_PARAMETERS, _TAKEN_SINCE),
                errors={**_BAD_PAGE, 500: "Internal metrics collection is not enabled."},
            ),
        ),
        Route(
            f"{PREFIX}/history/containers",
            to.history.containers,
            _get(
                "containerHistory",
                "Cluster",
                "Numbers of containers, one sample per minute.",
                list_schema("ContainerSample"),
                (*PAGE_PARAMETERS, _TAKEN_SINCE),
                errors={**_BAD_PAGE, 500: "Internal metrics collection is not enabled."},
            ),
        ),
    ]


def _partition_routes(to: Handlers) -> list[Route]:
    one = f"{PREFIX}/partition/:partition"
    return [
        Route(
            f"{one}/placementrules",
            to.cluster.rules,
            _get(
                "placementRules",
                "Partition",
                "Placement rules in force, in the order in which they are tried.",
                list_schema("Rule"),
                PAGE_PARAMETERS,
                errors={**_BAD_PAGE, **_NO_PARTITION},
            ),
        ),
        Route(
            f"{one}/queues",
            to.queues.tree,
            _get(
                "queues",
                "Partition",
                "The root queue with all others in it.",
                schema_reference("Queue"),
                errors=_NO_PARTITION,
            ),
            long=True,
        ),
        Route(
            f"{one}/queues/flat",
            to.queues.flat,
            _get(
                "queueList",
                "Partition",
                "Extension: all queues as a flat list, sorted by path.",
                list_schema("Queue"),
                (
                    *PAGE_PARAMETERS,
                    sorting.QUEUES.parameter,
                    Parameter("queuePrefix", "Only queues whose path begins so."),
                ),
                errors={**_BAD_PAGE, **_NO_PARTITION},
            ),
            long=True,
        ),
        Route(
            f"{one}/queue/:queue",
            to.queues.queue,
            _get("queue", "Partition", "One queue.", schema_reference("Queue"), (_SUBTREE,), errors=_BAD_QUEUE),
            long=True,
        ),
        Route(
            f"{one}/nodes",
            to.nodes.nodes,
            _get(
                "nodes",
                "Partition",
                "All nodes with what runs on them.",
                list_schema("Node"),
                (
                    *PAGE_PARAMETERS,
                    sorting.NODES.parameter,
                    _SUMMARY,
                    Parameter(
                        "schedulable", "Extension: only schedulable nodes (true), or only the others (false).", FLAG
                    ),
                ),
                errors={**_BAD_PAGE, **_NO_PARTITION},
            ),
            long=True,
        ),
        Route(
            f"{one}/node/:node",
            to.nodes.node,
            _get(
                "node", "Partition", "One node.", schema_reference("Node"), errors={404: "No such partition or node."}
            ),
        ),
        Route(
            f"{one}/domains",
            to.nodes.domains,
            _get(
                "domains",
                "Partition",
                "Extension: the domains of the topology, such as racks, and their free room.",
                list_schema("Domain"),
                (*PAGE_PARAMETERS, Parameter("level", "Only domains of this level, such as rack.")),
                errors={**_BAD_PAGE, 404: "No such partition or level."},
            ),
            long=True,
        ),
        Route(
            f"{one}/claims",
            to.nodes.claims,
            _get(
                "claims",
                "Partition",
                "Extension: the room that is kept for asks which are not placed yet.",
                list_schema("Claim"),
                (
                    *PAGE_PARAMETERS,
                    Parameter("node", "Only claims on this node."),
                    Parameter("kind", "Only firm, or only saved claims.", any_case(*ClaimKind, empty=True)),
                ),
                errors=_BAD_PAGE | _NO_PARTITION,
            ),
            long=True,
        ),
    ]


def _application_routes(to: Handlers) -> list[Route]:
    one = f"{PREFIX}/partition/:partition"
    bad_state = {400: "No such state, or a parameter that cannot be read.", 404: "No such partition or queue."}
    return [
        Route(
            f"{one}/queue/:queue/applications",
            to.applications.of_queue,
            _get(
                "applicationsOfQueue",
                "Applications",
                "Live applications of this queue, without the queues below.",
                list_schema("Application"),
                _APPLICATION_FILTERS,
                errors=_BAD_QUEUE,
            ),
            long=True,
        ),
        Route(
            f"{one}/queue/:queue/application/:application",
            to.applications.in_queue,
            _get(
                "applicationOfQueue",
                "Applications",
                "A live application of this queue.",
                schema_reference("Application"),
                errors={**_BAD_QUEUE, 404: "No such partition, queue or application."},
            ),
        ),
        Route(
            f"{one}/queue/:queue/applications/:state",
            to.applications.of_queue_by_state,
            _get(
                "applicationsOfQueueByState",
                "Applications",
                "Live applications of this queue that are in one state.",
                list_schema("Application"),
                (_STATUS, *_APPLICATION_FILTERS),
                errors=bad_state,
            ),
            long=True,
        ),
        Route(
            f"{one}/applications/:state",
            to.applications.by_state,
            _get(
                "applicationsByState",
                "Applications",
                "Applications that are active, completed or rejected.",
                list_schema("Application"),
                (_STATUS, *_APPLICATION_FILTERS),
                errors=bad_state,
            ),
            long=True,
        ),
        Route(
            f"{one}/application/:application",
            to.applications.application,
            _get(
                "application",
                "Applications",
                "A live application.",
                schema_reference("Application"),
                (
                    Parameter(
                        "state", "Extension: with the value any, also an application that has ended or was rejected."
                    ),
                ),
                errors={404: "No such partition or application."},
            ),
        ),
    ]


def _explanation_routes(to: Handlers) -> list[Route]:
    one = f"{PREFIX}/partition/:partition"
    return [
        Route(
            f"{one}/explain",
            to.explanations.explain,
            _get(
                "explain",
                "Explanations",
                "Extension: why an ask waits, what an application waits for, or who took an allocation's room; with a"
                " node, why the ask is not there, or why the node is used as it is.",
                schema_reference("Explanation"),
                (
                    Parameter("key", "Key of an ask or allocation, or an application ID.", NAME),
                    Parameter(
                        "node", "A node: why the ask is not there; without key: why the node is used as it is.", NAME
                    ),
                ),
                errors={400: "Neither key nor node.", 404: "No such partition or node, or nothing has this key."},
            ),
        ),
        Route(
            f"{PREFIX}/preemption-kinds",
            to.explanations.kinds,
            _get(
                "preemptionKinds",
                "Explanations",
                "Extension: the kinds of preemption in the order in which they run, then the governor.",
                schema_reference("PreemptionKinds"),
            ),
        ),
        Route(
            f"{one}/preemptions",
            to.explanations.preemptions,
            _get(
                "preemptions",
                "Explanations",
                "Extension: decisions to preempt, the oldest first.",
                schema_reference("PreemptionBatch"),
                (
                    Parameter(
                        "start", "Number of the first decision; without it, the answer has the newest.", UNSIGNED
                    ),
                    Parameter("limit", "The most entries to look at; never more than 1000.", POSITIVE),
                ),
                errors={400: "A parameter that cannot be read.", **_NO_PARTITION},
            ),
            long=True,
        ),
    ]


def _user_routes(to: Handlers) -> list[Route]:
    usage = f"{PREFIX}/partition/:partition/usage"
    return [
        Route(
            f"{usage}/users",
            to.users.users,
            _get(
                "users",
                "Users",
                "Usage of all users.",
                list_schema("UserUsage"),
                (*PAGE_PARAMETERS, sorting.USERS.parameter),
                errors=_BAD_PAGE,
            ),
            long=True,
        ),
        Route(
            f"{usage}/user/:user",
            to.users.user,
            _get("user", "Users", "Usage of one user.", schema_reference("UserUsage"), errors=_NO_NAME),
        ),
        Route(
            f"{usage}/groups",
            to.users.groups,
            _get(
                "groups",
                "Users",
                "Usage of all groups.",
                list_schema("GroupUsage"),
                (*PAGE_PARAMETERS, sorting.GROUPS.parameter),
                errors=_BAD_PAGE,
            ),
            long=True,
        ),
        Route(
            f"{usage}/group/:group",
            to.users.group,
            _get("group", "Users", "Usage of one group.", schema_reference("GroupUsage"), errors=_NO_NAME),
        ),
    ]


def _event_routes(to: Handlers) -> list[Route]:
    disabled = {400: "A parameter that cannot be read.", 500: "Event tracking is disabled."}
    return [
        Route(
            f"{PREFIX}/events/batch",
            to.events.batch,
            _get(
                "eventBatch",
                "Events",
                "Events by their numbers.",
                schema_reference("EventBatch"),
                (
                    Parameter("start", "Number of the first event; 0 by default.", UNSIGNED),
                    Parameter(
                        "count", "The most events in the answer; never more than the configured number.", POSITIVE
                    ),
                ),
                errors=disabled,
            ),
            long=True,
        ),
        Route(
            f"{PREFIX}/events/stream",
            to.events.stream,
            Operation(
                "eventStream",
                "Events",
                "Events as they happen, one JSON object per line; the answer never ends.",
                None,
                (
                    Parameter("count", "Number of the newest stored events that come first.", UNSIGNED),
                    Parameter("start", "Extension: number of the first event.", UNSIGNED),
                ),
                errors={**disabled, 503: "Too many streaming connections."},
                content=("application/x-ndjson",),
            ),
        ),
    ]


def _configuration_routes(to: Handlers) -> list[Route]:
    return [
        Route(
            f"{PREFIX}/config",
            to.configuration.show,
            Operation(
                "config",
                "Configuration",
                "The configuration in force: as JSON for clients that accept only application/json, otherwise as YAML.",
                schema_reference("Configuration"),
                content=(JSON_TYPE, "application/x-yaml"),
            ),
        ),
        Route(
            f"{PREFIX}/validate-conf",
            to.configuration.validate,
            Operation(
                "validateConf",
                "Configuration",
                "Checks whether a queue configuration could be used. Changes nothing.",
                schema_reference("Validation"),
                errors={413: "The text is too long."},
                body="application/x-yaml",
            ),
            method="POST",
        ),
    ]


def _finding_routes(to: Handlers) -> list[Route]:
    one = f"{PREFIX}/partition/:partition"
    return [
        Route(
            f"{one}/search",
            to.findings.find_names,
            _get(
                "search",
                "Explanations",
                "Extension: applications (ended ones too), queues, nodes, users, asks, allocations by part of a name.",
                schema_reference("Search"),
                (
                    Parameter("text", "The text that names contain; case does not matter.", NAME, required=True),
                    Parameter("limit", "The most names of each kind; 20 by default, never more than 1000.", POSITIVE),
                ),
                errors={400: "No text, or a parameter that cannot be read.", **_NO_PARTITION},
            ),
            long=True,
        ),
        Route(
            f"{one}/placement",
            to.findings.find_queue,
            _get(
                "placement",
                "Explanations",
                "Extension: the queue that an application would get, were it submitted now; tag.NAME gives a tag.",
                schema_reference("Placement"),
                (
                    Parameter("user", "Owner of the application.", NAME, required=True),
                    Parameter(
                        "groups", "Groups of the owner, separated by commas; by default one group with the user's name."
                    ),
                    Parameter("queue", "The queue that the application names."),
                ),
                errors={400: "Not a user's name, or too many tags.", **_NO_PARTITION},
            ),
        ),
    ]


def _call_routes(to: Handlers) -> list[Route]:
    anything: dict[str, Any] = {"type": "object"}
    refused = {
        400: "The body is not the JSON of this request, or the request contradicts itself.",
        404: "Something that the request names does not exist.",
        409: "Not possible in this state: for instance, no resource manager is registered, or no history is kept.",
        413: "The body is too long.",
        503: "Too many such requests at once, or the history does not answer.",
    }
    change_refused = {
        **refused,
        403: "Changes are not allowed from another origin, nor from another host while the core has no security file.",
        415: "The body of a change must be application/json or application/x-yaml.",
    }
    return [
        Route(
            f"{PREFIX}/caller",
            to.calls.show_caller,
            _get(
                "caller",
                "Calls",
                "Extension: the caller's name as the core records it, and the caller's permissions.",
                schema_reference("Caller"),
            ),
        ),
        Route(
            f"{PREFIX}/configuration",
            to.calls.apply_text,
            Operation(
                "configure",
                "Calls",
                f"Extension: puts a queue configuration of at most {MOST_BODY} bytes into force. Other settings stay.",
                anything,
                errors=change_refused,
                body="application/x-yaml",
            ),
            method="POST",
            access=Access.CONFIGURE,
        ),
        *(
            Route(
                f"{PREFIX}/calls/{call.name}",
                to.calls.handler_of(call),
                Operation(
                    call.method[0].lower() + call.method[1:],
                    "Calls",
                    f"Extension: {call.summary} It is the call of kornel.v1 with this name, in JSON.",
                    anything,
                    errors=change_refused if call.changes else refused,
                    body=JSON_TYPE,
                    wanted=anything,
                ),
                method="POST",
                access=call.access,
            )
            for call in CALLS
        ),
    ]


def _operation_routes(to: Handlers) -> list[Route]:
    return [
        Route(
            f"{PREFIX}/scheduler/healthcheck",
            to.health.report,
            _get(
                "healthcheck",
                "Operations",
                "The latest health report; 200 even when it reports a problem.",
                schema_reference("Health"),
                (Parameter("strict", "Extension: 503 when the report has a problem.", FLAG),),
                errors={
                    400: "The parameter strict is neither true nor false.",
                    404: "There is no report yet.",
                    503: "The report has a problem (with strict).",
                },
            ),
        ),
        Route(
            f"{PREFIX}/scheduler/holds",
            to.configuration.holds,
            _get(
                "holds",
                "Operations",
                "Extension: a rollback in force, nodes drained by operators, and whether the resource manager is"
                " connected.",
                schema_reference("Holds"),
            ),
        ),
        Route(
            f"{PREFIX}/scheduler/refusals",
            to.refusals.show_refusals,
            _get(
                "refusals",
                "Operations",
                "Extension: recent refusals, with their resource manager, time and reason; the newest first.",
                schema_reference("Refusals"),
                (
                    Parameter("kind", "Only this kind.", {"type": "string", "enum": list(RefusalKind)}),
                    Parameter("partition", "Only of this partition; configurations belong to each."),
                    Parameter("limit", "The most refusals in the answer; 500 by default.", POSITIVE),
                ),
                errors={400: "No such kind, or a parameter that cannot be read."},
            ),
        ),
        Route(
            f"{PREFIX}/scheduler/links",
            to.documentation.show_links,
            _get(
                "links",
                "Operations",
                "Extension: the addresses to which the web page links.",
                schema_reference("Links"),
            ),
        ),
        Route(
            f"{PREFIX}/metrics",
            to.metrics.scrape,
            Operation("metrics", "Operations", "Metrics for Prometheus.", None, content=("text/plain",)),
        ),
        Route(
            "/healthz/live",
            live,
            Operation("live", "Operations", "Answers as long as the process runs.", None, content=("text/plain",)),
            access=Access.OPEN,
        ),
        Route(
            "/healthz/ready",
            to.health.ready,
            Operation(
                "ready",
                "Operations",
                "Tells whether the core accepts requests.",
                None,
                errors={503: "Not now."},
                content=("text/plain",),
            ),
            access=Access.OPEN,
        ),
        *_documentation_routes(to),
    ]


def _documentation_routes(to: Handlers) -> list[Route]:
    document = Operation("openapi", "Operations", "This document.", {"type": "object"})
    return [
        Route("/openapi.json", to.documentation.openapi, document, access=Access.OPEN),
        Route(f"{PREFIX}/openapi.json", to.documentation.openapi, access=Access.OPEN),
        Route("/docs", to.documentation.page, access=Access.OPEN),
    ]


def _debug_routes(to: Handlers) -> list[Route]:
    moved: dict[str, Any] = {"content": ("text/html",), "status": 301}
    return [
        Route(f"{PREFIX}/stack", debug.stack_moved, Operation("stackMoved", "Debug", "Moved.", None, **moved)),
        Route(
            f"{PREFIX}/fullstatedump",
            debug.dump_moved,
            Operation("dumpMoved", "Debug", "Moved.", None, **moved),
        ),
        Route(
            "/debug/stack",
            debug.stack,
            Operation("stack", "Debug", "Stacks of threads and tasks, as text.", None),
            access=Access.ADMIN,
        ),
        Route(
            "/debug/fullstatedump",
            to.dump.dump,
            _get(
                "fullStateDump",
                "Debug",
                "The full state of the core in one answer.",
                schema_reference("StateDump"),
                (Parameter("include", "Extension: only these parts of the state, separated by commas."),),
            ),
            access=Access.ADMIN,
        ),
        Route("/debug/pprof/", debug.profiles, access=Access.ADMIN),
        Route("/debug/pprof/cmdline", debug.command_line, access=Access.ADMIN),
        Route("/debug/pprof/:profile", debug.no_profile, access=Access.ADMIN),
    ]


def _get(
    identity: str,
    tag: str,
    summary: str,
    answer: Schema,
    parameters: tuple[Parameter, ...] = (),
    errors: dict[int, str] | None = None,
) -> Operation:
    return Operation(identity, tag, summary, answer, parameters, errors or {})
