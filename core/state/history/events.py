"""The event history of a partition: what happened, in order (protocol.md 14).

Code that makes something happen records it by ``if state.recording: state.events.<event>(...)``, which costs one
attribute test while the history is off. Only what succeeded is recorded (DB-19). Texts are sentences that are
understandable by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.commands import TerminationType
from kornel.core.domain.history.events import STATE_DETAILS, EventChange, EventDetail, EventType, removal_detail
from kornel.core.domain.reasons import Unschedulable
from kornel.core.domain.resources import Resources
from kornel.core.model.recorded_events import RecordedEvents
from kornel.core.state.history import event_texts
from kornel.core.state.history.queue_events import QueueRecorder
from kornel.shared.readable_amounts import format_count

if TYPE_CHECKING:
    from kornel.core.domain.commands import ApplicationSpec
    from kornel.core.model.allocations import Allocation, Reservation
    from kornel.core.model.applications import Application
    from kornel.core.model.nodes import Node
    from kornel.core.model.not_placed import NotPlaced
    from kornel.core.model.queues import Queue
    from kornel.core.model.shapes import ResourceTypes, Shape
    from kornel.core.model.task_groups import GroupMembers
    from kornel.core.state.history.event_log import EventLog

NO_GANGS: Final[Mapping[Application, str]] = MappingProxyType({})
PAUSE_NS: Final = 15 * 10**9
"""The least time between two equal events about one ask (scheduling.md 17)."""
MOST_RECORDED: Final = 1000
"""The most asks of an application with an event that it waits for a slot. A shim gets no more events at a time."""

SCHEDULABLE: Final = "schedulable: true"
NOT_SCHEDULABLE: Final = "schedulable: false"

_REQUEST, _APP, _NODE = EventType.REQUEST, EventType.APP, EventType.NODE
_QUEUE, _USERGROUP = EventType.QUEUE, EventType.USERGROUP
_NONE, _SET, _ADD, _REMOVE = EventChange.NONE, EventChange.SET, EventChange.ADD, EventChange.REMOVE


class Recorder:
    """Records what happens to requests, applications, allocations and nodes; ``queues`` records what happens to
    queues."""

    __slots__ = ("_callbacks", "_log", "_say", "_types", "queues")

    def __init__(self, log: EventLog, types: ResourceTypes) -> None:
        self._log: Final = log
        self._say: Final = log.add
        self._callbacks: Final = log.callbacks
        self._types: Final = types
        self.queues: Final = QueueRecorder(log, types)

    def limits_checked(self, ask: Allocation, limited: NotPlaced | None) -> None:
        """Records which limits *ask* exceeds or fits under now, if that has changed since it was last checked;
        *limited* names the first limit that it would exceed."""
        reason = limited.reason if limited is not None else None
        application = ask.application
        if application.state is AppState.ACCEPTED:
            held = reason is Unschedulable.APPLICATION_LIMIT
            by_queue = held and limited is not None and limited.account is None
            waited = application.recorded_held_by_queue or application.recorded_held_by_quota
            self._record_runnable(application, by_queue=by_queue, by_quota=held and not by_queue)
            gate = (limited.account or limited.queue) if held and limited is not None else None
            if gate is not None and not waited:
                message = event_texts.describe_gate(application, gate)
                for each in islice(application.asks.values(), MOST_RECORDED):
                    self._record_about(each, message)
        if reason is Unschedulable.APPLICATION_LIMIT:
            return
        recorded = ask.recorded
        if recorded is None:
            if reason is None:
                return
            recorded = ask.recorded = RecordedEvents()
        over_user, over_queue = reason is Unschedulable.USER_QUOTA, reason is Unschedulable.QUEUE_QUOTA
        if over_user is not recorded.over_user_quota:
            recorded.over_user_quota = over_user
            account = limited.account if limited is not None else None
            self._record_about(
                ask,
                event_texts.describe_room_in_limits(ask)
                if account is None
                else event_texts.describe_used_limit(self._types, ask, account),
            )
        if over_queue is not recorded.over_queue_quota and not over_user:
            recorded.over_queue_quota = over_queue
            queue = limited.queue if limited is not None else None
            self._record_about(
                ask,
                event_texts.describe_room_in_queue(ask)
                if queue is None
                else event_texts.describe_full_queue(self._types, ask, queue),
            )

    def _record_runnable(self, application: Application, *, by_queue: bool, by_quota: bool) -> None:
        """Records whether *application* may run. The limit of a queue is checked before that of a user; while the first
        one keeps the application back, the second one is not known."""
        name = application.application_id
        if by_queue is not application.recorded_held_by_queue:
            application.recorded_held_by_queue = by_queue
            detail = EventDetail.APP_CANNOTRUN_QUEUE if by_queue else EventDetail.APP_RUNNABLE_QUEUE
            self._say(_APP, name, _NONE, detail)
        if by_quota is not application.recorded_held_by_quota and not by_queue:
            application.recorded_held_by_quota = by_quota
            detail = EventDetail.APP_CANNOTRUN_QUOTA if by_quota else EventDetail.APP_RUNNABLE_QUOTA
            self._say(_APP, name, _NONE, detail)

    def refused_everywhere(self, ask: Allocation) -> None:
        """Records that the shim refused every node that it was asked about for *ask*, with its reasons and the number
        of nodes for each."""
        recorded = ask.recorded = ask.recorded or RecordedEvents()
        now_ns = self._log.now_ns
        if recorded.refused_ns is not None and now_ns - recorded.refused_ns < PAUSE_NS:
            return
        recorded.refused_ns = now_ns
        self._record_about(
            ask, event_texts.describe_refusals(refusal.reason for refusal in (ask.refused or {}).values())
        )

    def no_victim_on_required_node(self, ask: Allocation) -> None:
        """Records that *ask* requires a node on which no victim could make room for it."""
        recorded = ask.recorded = ask.recorded or RecordedEvents()
        now_ns = self._log.now_ns
        if recorded.no_victim_ns is not None and now_ns - recorded.no_victim_ns < PAUSE_NS:
            return
        recorded.no_victim_ns = now_ns
        amounts = ask.shape.write_amounts()
        self._record_about(ask, f"No victim makes room for {amounts} on required node {ask.spec.required_node}")

    def freed_room_taken(self, claim: Reservation) -> None:
        """Records that others have taken the room for which somebody had to leave; *claim* is what ends with it."""
        self._record_about(claim.ask, event_texts.describe_taken_room(claim))

    def preemption_bounded(self, ask: Allocation, detail: str) -> None:
        """Records that a bound on victims, or on what one interval may take, keeps preemption from making room for
        *ask*."""
        recorded = ask.recorded = ask.recorded or RecordedEvents()
        now_ns = self._log.now_ns
        if recorded.bounded_ns is not None and now_ns - recorded.bounded_ns < PAUSE_NS:
            return
        recorded.bounded_ns = now_ns
        self._record_about(ask, f"Preemption is held back: {detail}")

    def preempted_for_ask(
        self,
        victims: Iterable[Allocation],
        ask: Allocation,
        gangs: Mapping[Application, str] = NO_GANGS,
        gang_plan: int = 0,
    ) -> None:
        """Records that *victims* are to leave so that *ask* can run. *gangs*: the gangs that leave as a whole, and
        those that are left with too few members, in words. *gang_plan*: the number of the plan, if *ask* is a member of
        a gang."""
        name = ask.application.application_id
        message = f"Preempted for request {ask.spec.key} of application {name} in queue {ask.queue.path}"
        if gang_plan:
            message += f" (plan {gang_plan} for a gang)"
        for victim in victims:
            gang = gangs.get(victim.application)
            self._record_about(victim, f"{message}; {gang}" if gang else message)

    def preempted_for_quota(
        self, victims: Iterable[Allocation], queue: Queue, whole: Mapping[Application, str]
    ) -> None:
        """Records that *victims* are to leave because *queue* holds more than its max. *whole*: the gangs that leave as
        a whole, in words."""
        message = f"Preempted because {event_texts.describe_excess(self._types, queue)}"
        for victim in victims:
            gang = whole.get(victim.application)
            self._record_about(victim, f"{message}; {gang}" if gang else message)

    def preempted_by_hand(self, victims: Iterable[Allocation], said: str) -> None:
        """Records that a person asked *victims* to leave; *said* names the person and the reason."""
        for victim in victims:
            self._record_about(victim, f"Preempted {said}")

    def preempted_for_share(self, victims: Iterable[Allocation], queue: Queue) -> None:
        """Records that the periodic policy asked *victims* to leave, because their *queue* holds more than its
        share."""
        message = f"Preempted because queue {queue.path} holds more than its share"
        for victim in victims:
            self._record_about(victim, message)

    def gang_below_minimum(self, member: Allocation, members: GroupMembers) -> None:
        """Records that the gang of *member*, which was lost, runs below its minimum; *members* are those of its task
        group."""
        self._record_about(member, event_texts.describe_shortfall(member, members))

    def gang_repaired(self, member: Allocation) -> None:
        """Records that *member* was the last one that its task group lacked for its minimum."""
        self._record_about(member, event_texts.describe_repair(member))

    def gang_given_up(self, members: Iterable[Allocation], message: str) -> None:
        """Records that *members*, what is left of a gang below its minimum, are to leave; *message* says so."""
        for member in members:
            self._record_about(member, f"Ended because {message}")

    def placeholders_too_small(self, found: Mapping[Allocation, Allocation]) -> None:
        """Records that the placeholders in *found* were asked to leave, because each is too small for the real ask that
        it is mapped to."""
        for placeholder, ask in found.items():
            small, large = placeholder.shape.write_amounts(), ask.shape.write_amounts()
            message = f"Placeholder with {small} is smaller than the real request {ask.spec.key} for {large}"
            self._record_about(placeholder, message, ask.shape.resources)

    def _record_about(self, request: Allocation, message: str, resources: Resources | None = None) -> None:
        self._say(
            _REQUEST,
            request.spec.key,
            _NONE,
            reference_id=request.application.application_id,
            resources=resources or request.shape.resources,
            message=message,
        )

    def application_created(self, spec: ApplicationSpec) -> None:
        """Records that an application is about to be placed in a queue; it may still be rejected."""
        self._say(_APP, spec.application_id, _ADD, EventDetail.APP_NEW)

    def application_added(self, application: Application) -> None:
        """Records that *application* is in its queue, and counted for a group if a limit of a group applies to it."""
        self._say(_QUEUE, application.queue.path, _ADD, EventDetail.QUEUE_APP, application.application_id)
        self.group_chosen(application, None)

    def application_left(self, application: Application) -> None:
        """Records that *application* is out of its queue."""
        name, group = application.application_id, application.limit_group
        if group is not None:
            self._say(_USERGROUP, group, _REMOVE, EventDetail.UG_APP_LINK, name)
        self._say(_QUEUE, application.queue.path, _REMOVE, EventDetail.QUEUE_APP, name)
        self._say(_APP, name, _REMOVE)

    def group_chosen(self, application: Application, before: str | None) -> None:
        """Records that *application* now counts for its limit group, and no longer for the group *before*."""
        group = application.limit_group
        if group == before:
            return
        if before is not None:
            self._say(_USERGROUP, before, _REMOVE, EventDetail.UG_APP_LINK, application.application_id)
        if group is not None:
            self._say(_USERGROUP, group, _SET, EventDetail.UG_APP_LINK, application.application_id)

    def state_entered(self, application_id: str, entered: AppState, message: str) -> None:
        """Records that an application is in another state. *message* says why, if the state alone does not."""
        self._say(_APP, application_id, _SET, STATE_DETAILS[entered], message=message)

    def ask_added(self, ask: Allocation) -> None:
        """Records that *ask* waits to be placed."""
        values = self._callbacks.asks_recorded
        if values:
            values += (ask.application.application_id, ask.spec.key, ask.shape.resources)
        else:
            self._log.begin_asks(ask.application.application_id, ask.spec.key, ask.shape.resources)
        gate = ask.application.held_at
        if gate is not None and len(ask.application.asks) < MOST_RECORDED:
            self._record_about(ask, event_texts.describe_gate(ask.application, gate))

    def ask_removed(self, ask: Allocation, *, timed_out: bool = False) -> None:
        """Records that *ask* was withdrawn, or removed together with its allocation."""
        detail = EventDetail.REQUEST_TIMEOUT if timed_out else EventDetail.REQUEST_CANCEL
        application = ask.application.application_id
        self._say(_APP, application, _REMOVE, detail, ask.spec.key, ask.shape.resources)

    def node_charged(self, allocation: Allocation, node: Node) -> None:
        """Records that room on *node* was given to *allocation*."""
        self._say(_NODE, node.node_id, _ADD, EventDetail.NODE_ALLOC, allocation.spec.key, allocation.shape.resources)

    def node_refunded(self, allocation: Allocation, node: Node) -> None:
        """Records that *allocation* gave its room on *node* back."""
        self._say(_NODE, node.node_id, _REMOVE, EventDetail.NODE_ALLOC, allocation.spec.key, allocation.shape.resources)

    def allocation_added(self, allocation: Allocation) -> None:
        """Records that the application of *allocation* holds it now."""
        application, resources = allocation.application, allocation.shape.resources
        self._record_usage(application, _ADD, resources)
        self._say(_APP, application.application_id, _ADD, EventDetail.APP_ALLOC, allocation.spec.key, resources)

    def placement_made(self, allocation: Allocation, node: Node) -> None:
        """Records what :meth:`node_charged` and then :meth:`allocation_added` do, as one record if that is enough."""
        application = allocation.application
        if application.limit_group is not None:
            self.node_charged(allocation, node)
            self.allocation_added(allocation)
            return
        values = self._callbacks.placements_recorded
        if values is None:
            values = self._log.begin_placements()
        values += (
            allocation.spec.key,
            application.application_id,
            node.node_id,
            application.user,
            application.queue.path,
            allocation.shape.resources,
        )

    def allocation_removed(self, allocation: Allocation, node: Node, termination: int | None) -> None:
        """Records that *allocation* and its key are gone. *termination* says why it ended; ``None``: its node was
        removed.

        The removal of the request is recorded as a further event, unless the allocation timed out or its node was
        removed.
        """
        detail = removal_detail(termination)
        with_request = detail is not EventDetail.ALLOC_TIMEOUT and detail is not EventDetail.ALLOC_NODEREMOVED
        application = allocation.application
        if application.limit_group is None and with_request:
            values = self._callbacks.removals_recorded
            if values is None:
                values = self._log.begin_removals()
            values += (
                allocation.spec.key,
                application.application_id,
                node.node_id,
                application.user,
                application.queue.path,
                int(detail),
                allocation.shape.resources,
            )
            return
        self._allocation_gone(allocation, termination)
        self.node_refunded(allocation, node)
        if with_request:
            self.ask_removed(allocation)

    def allocation_returned(self, allocation: Allocation, node: Node) -> None:
        """Records that *allocation* is a pending request again."""
        self._allocation_gone(allocation, TerminationType.SCHEDULING_FAILED_ON_RM)
        self.node_refunded(allocation, node)

    def placeholder_replaced(self, placeholder: Allocation, real: Allocation, node: Node) -> None:
        """Records that *real* took the place of *placeholder*, which ran on *node*; if *real* runs on the same node, no
        change of the node is recorded."""
        self._allocation_gone(placeholder, TerminationType.PLACEHOLDER_REPLACED)
        if real.node is not node:
            self.node_refunded(placeholder, node)
        self.ask_removed(placeholder)
        self.allocation_added(real)

    def allocation_resized(self, allocation: Allocation, before: Shape) -> None:
        """Records that *allocation*, which held *before* until now, was resized, so that its user holds more of some
        types or less of others."""
        was, now = before.resources, allocation.shape.resources
        change = {name: now.get(name, 0) - was.get(name, 0) for name in dict.fromkeys((*was, *now))}
        more = {name: amount for name, amount in change.items() if amount > 0}
        less = {name: -amount for name, amount in change.items() if amount < 0}
        if more:
            self._record_usage(allocation.application, _ADD, Resources(more))
        if less:
            self._record_usage(allocation.application, _REMOVE, Resources(less))

    def _allocation_gone(self, allocation: Allocation, termination: int | None) -> None:
        application, resources = allocation.application, allocation.shape.resources
        self._record_usage(application, _REMOVE, resources)
        detail = removal_detail(termination)
        self._say(_APP, application.application_id, _REMOVE, detail, allocation.spec.key, resources)

    def _record_usage(self, application: Application, change: EventChange, resources: Resources) -> None:
        path = application.queue.path
        self._say(_USERGROUP, application.user, change, EventDetail.UG_USER_RESOURCE, path, resources)
        if application.limit_group is not None:
            self._say(_USERGROUP, application.limit_group, change, EventDetail.UG_GROUP_RESOURCE, path, resources)

    def node_added(self, node: Node) -> None:
        """Records that *node* was accepted."""
        self.schedulable_set(node)
        capacity = self._types.to_resources(node.capacity)
        self._say(_NODE, node.node_id, _ADD, resources=capacity, message=f"Node {node.node_id} was registered")

    def node_removed(self, node: Node) -> None:
        """Records that *node* is gone, and everything on it."""
        message = f"Node {node.node_id} was removed"
        self._say(_NODE, node.node_id, _REMOVE, EventDetail.NODE_DECOMISSION, message=message)

    def schedulable_set(self, node: Node) -> None:
        """Records that the shim opened or closed *node*, even if it was in that state already."""
        message = SCHEDULABLE if node.schedulable else NOT_SCHEDULABLE
        if node.operator_drain is not None:
            message = f"{message}, drained by {node.operator_drain.by}"
        self._say(_NODE, node.node_id, _SET, EventDetail.NODE_SCHEDULABLE, message=message)

    def operator_drain_set(self, node: Node, by: str) -> None:
        """Records that an operator, *by*, drained *node* or ended its drain."""
        what = "undrained" if node.operator_drain is None else "drained"
        message = f"{SCHEDULABLE if node.schedulable else NOT_SCHEDULABLE}, {what} by {by}"
        if node.operator_drain is None and node.drained_by_shim:
            message = f"{message}, still drained by its manager"
        self._say(_NODE, node.node_id, _SET, EventDetail.NODE_SCHEDULABLE, message=message)

    def capacity_changed(self, node: Node) -> None:
        """Records that *node* is larger or smaller than before."""
        capacity = self._types.to_resources(node.capacity)
        self._say(_NODE, node.node_id, _SET, EventDetail.NODE_CAPACITY, resources=capacity)

    def devices_changed(self, node: Node, number: int) -> None:
        """Records that *node* reports other devices than before, *number* of them."""
        self._say(_NODE, node.node_id, _SET, EventDetail.NONE, message=f"reports {format_count(number, 'device')}")

    def foreign_load_set(self, key: str, before: Node | None, now: Node | None, shape: Shape | None) -> None:
        """Records that foreign load *key*, which was on node *before*, is about to hold *shape* on node *now*, if that
        is a change.

        *before* is ``None`` if the load is new, *now* if it is removed.
        """
        if before is not None:
            held = before.foreign[key]
            if before is now and shape is not None and held == shape.pairs:
                return
            resources = self._types.to_resources(dict(held))
            self._say(_NODE, before.node_id, _REMOVE, EventDetail.NODE_ALLOC, key, resources)
        if now is not None and shape is not None:
            self._say(_NODE, now.node_id, _ADD, EventDetail.NODE_ALLOC, key, shape.resources)

    def node_reserved(self, ask: Allocation, node: Node) -> None:
        """Records that *node* is kept free for *ask*."""
        self._say(_NODE, node.node_id, _ADD, EventDetail.NODE_RESERVATION, ask.spec.key, ask.shape.resources)

    def node_unreserved(self, ask: Allocation, node: Node) -> None:
        """Records that *node* is no longer kept free for *ask*."""
        self._say(_NODE, node.node_id, _REMOVE, EventDetail.NODE_RESERVATION, ask.spec.key, ask.shape.resources)
