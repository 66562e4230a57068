"""What a partition shows of itself: plain values for REST, web page, status calls and tools (rest.md 4).

Times are Unix nanoseconds, 0: never. Amounts are exact and may be above 64 bits; whoever writes them down clamps.
Texts are empty where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.domain.application_states import AppState
from core.domain.drains import OperatorDrain
from core.domain.resources import Resources
from core.domain.status import AboveMax

Tags = tuple[tuple[str, str], ...]


class ManagerView(NamedTuple):
    """The registered resource manager, as it described itself."""

    rm_id: str
    version: str
    policy_group: str
    build_info: Tags
    registered_ns: int


class PartitionView(NamedTuple):
    """One partition. ``applications``: how many in each state, those still remembered included."""

    name: str
    """Without the manager's name in front."""
    rm_id: str
    capacity: Resources
    used: Resources
    node_sort_policy: str
    node_sort_weights: Mapping[str, float]
    preemption_enabled: bool
    quota_preemption_enabled: bool
    nodes: int
    applications: Mapping[AppState, int]
    allocations: int
    reservations: int
    pending_asks: int
    state: str
    since_ns: int
    """When it entered its state."""


class TemplateView(NamedTuple):
    """What queues that placement makes below a parent are made with. ``max_applications`` 0: unlimited."""

    max_applications: int
    max: Resources
    guaranteed: Resources
    properties: Mapping[str, str]


class QueueView(NamedTuple):
    """One queue. ``max`` of the root is what its nodes offer; ``None``: no maximum, no limit on the path."""

    path: str
    parent: str
    """Path of the queue above; empty: the root."""
    children: tuple[str, ...]
    """Paths, sorted."""
    status: str
    leaf: bool
    managed: bool
    guaranteed: Resources
    max: Resources | None
    used: Resources
    pending: Resources
    preempting: Resources
    headroom: Resources | None
    """The least that any level up to the root leaves; an absent type is not limited."""
    properties: Mapping[str, str]
    template: TemplateView | None
    max_applications: int
    running_applications: int
    applications: int
    """Live ones, in this very queue."""
    priority: int
    """What it shows its parent; ``PRIORITY_MIN`` also if no ask lends it a priority."""
    allocating: tuple[str, ...]
    """Applications that hold something and do not run yet."""
    sort_policy: str
    sort_by_priority: bool
    preemption_enabled: bool
    preemption_fence: bool
    priority_fence: bool
    preemption_delay_ns: int
    quota_preemption_delay_ns: int
    quota_running: bool
    quota_due_ns: int
    priority_offset: int
    backoff: int
    backoff_delay_ns: int
    preempted: Resources
    """Everything ever taken from it by preemption."""
    preempted_allocations: int
    above: AboveMax | None = None
    """``None``: it holds no more than its max, or is not configured."""


class LogEntry(NamedTuple):
    """Something that kept an ask from being placed, ``times`` times."""

    message: str
    last_ns: int
    times: int


class AskView(NamedTuple):
    """A pending ask. ``log``: the oldest last occurrence first."""

    key: str
    application_id: str
    tags: Tags
    created_ns: int
    resources: Resources
    priority: int
    required_node: str
    placeholder: bool
    task_group: str
    log: tuple[LogEntry, ...]
    triggered_preemption: bool
    originator: bool
    attempted: bool
    """The scheduler has tried to place it, or asks exactly like it."""
    scale_up: bool
    """The shim was told that no node has room for it."""
    reserved_node: str
    """Which node is kept free for it."""


@dataclass(slots=True)
class AllocationView:
    """Work on a node. Made once and shown again until something of it changes.

    ``rendered``: what a reader made of it, kept here for the next reader.
    """

    key: str
    application_id: str
    tags: Tags
    created_ns: int
    """When it was asked for."""
    bound_ns: int
    """When it got its node."""
    resources: Resources
    priority: int
    node_id: str
    placeholder: bool
    placeholder_ns: int
    """When the placeholder was made whose place it took; 0: it took none."""
    task_group: str
    preempted: bool
    originator: bool
    rendered: bytes | None = field(default=None, compare=False, repr=False)


class ForeignView(NamedTuple):
    """Load of another scheduler. ``static``: it is never told to leave."""

    key: str
    tags: Tags
    since_ns: int
    resources: Resources
    priority: int
    node_id: str
    static: bool


class StateEntry(NamedTuple):
    """An application entered ``state``."""

    at_ns: int
    state: AppState


class PlaceholderView(NamedTuple):
    """The placeholders of one task group: how many there ever were, and what became of them."""

    task_group: str
    made: int
    resources: Resources
    replaced: int
    timed_out: int


Spent = Mapping[str, Mapping[str, int]]
"""By instance type and resource type, amount times seconds."""


class SpentView(NamedTuple):
    """What ended allocations have used: real ones, those that were preempted, and placeholders."""

    real: Spent
    preempted: Spent
    placeholder: Spent


NOTHING_SPENT = SpentView({}, {}, {})


class ApplicationView(NamedTuple):
    """One application, live or remembered."""

    application_id: str
    partition: str
    queue: str
    state: AppState
    user: str
    groups: tuple[str, ...]
    used: Resources
    """By real allocations, not by placeholders."""
    placeholder: Resources
    max_used: Resources
    pending: Resources
    submitted_ns: int
    started_ns: int
    """When it first was Running."""
    finished_ns: int
    asks: tuple[AskView, ...]
    allocations: tuple[AllocationView, ...]
    rejected: str
    """Why it was not taken."""
    states: tuple[StateEntry, ...]
    placeholders: tuple[PlaceholderView, ...]
    reservations: tuple[str, ...]
    """Keys of the asks for which a node is kept free."""
    priority: int
    """Highest that its asks lend it; ``PRIORITY_MIN`` also if none does."""
    spent: SpentView
    backoff_until_ns: int
    tags: Tags = ()


class ApplicationParts(NamedTuple):
    """A live application, to be told bit by bit: it may ask for and hold very much.

    ``head``: all that a reader makes of it but its asks and allocations.
    """

    head: bytes
    asks: Iterator[Sequence[AskView]]
    allocations: Iterator[Sequence[AllocationView]]


class ApplicationSummary(NamedTuple):
    """What a list of many applications shows of one: cheap to make."""

    application_id: str
    queue: str
    user: str
    state: AppState
    submitted_ns: int
    finished_ns: int
    used: Resources
    placeholder: Resources
    pending: Resources
    allocations: int
    asks: int


class NodeSummary(NamedTuple):
    """What a list of many nodes shows of one: cheap to make."""

    node_id: str
    schedulable: bool
    capacity: Resources
    allocated: Resources
    occupied: Resources
    available: Resources
    allocations: int
    reservations: int


class NodeView(NamedTuple):
    """One node. ``available`` = capacity - allocated - occupied; negative when it is over-allocated."""

    node_id: str
    host: str
    rack: str
    attributes: Tags
    capacity: Resources
    allocated: Resources
    occupied: Resources
    available: Resources
    allocations: tuple[AllocationView, ...]
    foreign: tuple[ForeignView, ...]
    schedulable: bool
    reservations: tuple[str, ...]
    """Keys of the asks it is kept free for."""
    drained_by_shim: bool = False
    operator_drain: OperatorDrain | None = None
    """Who else keeps it out of scheduling; ``None``: no operator does."""


class UsageView(NamedTuple):
    """What a user or group holds in one queue and below. ``max`` ``None``, ``max_applications`` 0: not limited."""

    path: str
    used: Resources
    applications: tuple[str, ...]
    """That hold something, sorted."""
    max: Resources | None
    max_applications: int
    children: tuple[UsageView, ...]


class UserView(NamedTuple):
    """A user that holds something or that a limit names. ``groups``: by application, the group it counts for."""

    user: str
    groups: Mapping[str, str]
    usage: UsageView


class GroupView(NamedTuple):
    """A group that applications count for, or that a limit names; ``*`` stands for all groups that no limit names."""

    group: str
    applications: tuple[str, ...]
    usage: UsageView


class FilterView(NamedTuple):
    """Whom a placement rule serves: listed names, or a regular expression for either."""

    deny: bool
    users: tuple[str, ...]
    groups: tuple[str, ...]
    user_expression: str
    group_expression: str


class RuleView(NamedTuple):
    """A placement rule in force. ``filter`` ``None``: it serves everybody."""

    name: str
    parameters: Mapping[str, str]
    filter: FilterView | None
    parent: RuleView | None


class UsageSample(NamedTuple):
    """How much was going on at one time: running applications, allocations announced less releases announced."""

    at_ns: int
    applications: int
    allocations: int
