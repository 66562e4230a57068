"""The tables: every class that belongs to the state of an engine, and each of its fields.

A new field has to be named in the row of its class: as stored, if a later decision depends on it, or as derived, if it
can be computed from other fields. A field that is added to a class of an earlier release needs a default, because files
of that release do not contain it. A field that is removed is ignored when such a file is read. A class, function or
constant that is renamed keeps its name in files.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from fractions import Fraction
from typing import Any, Final

from kornel.core.config.model import (
    ChildTemplate,
    Configuration,
    LimitConfig,
    NodeSortConfig,
    PartitionConfig,
    PreemptionConfig,
    QueueConfig,
)
from kornel.core.config.text.problems import Problem, Severity
from kornel.core.domain import resources
from kornel.core.domain.access import AccessList
from kornel.core.domain.application_states import AppEvent, AppState, StateEntry
from kornel.core.domain.ask_places import AskPlace, WaitsFor
from kornel.core.domain.commands import (
    PLAIN_FIELDS,
    AllocationSpec,
    ApplicationSpec,
    PlacementKey,
    RegisterManager,
    TerminationType,
    UpdateConfiguration,
)
from kornel.core.domain.devices import DeviceRequest, DeviceSpec
from kornel.core.domain.drains import OperatorDrain
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationRemoved,
    ApplicationUpdated,
    AskReleased,
    AsksRecorded,
    EventRecorded,
    NodeAccepted,
    NodeRejected,
    PlacementsRecorded,
    PlacementVoid,
    PredicatesAsked,
    PreemptionDecided,
    PreemptionNotice,
    PreemptionNoticeWithdrawn,
    PreemptionPredicatesAsked,
    Released,
    RemovalsRecorded,
    SchedulingFailed,
    VictimRecord,
)
from kornel.core.domain.history.events import EventChange, EventDetail, EventType
from kornel.core.domain.manager import RegisteredManager
from kornel.core.domain.reasons import Ignored, Outcome, Unschedulable
from kornel.core.domain.settings import (
    Budget,
    FilterConfig,
    GangScheduling,
    GovernorSettings,
    GuaranteeMode,
    MonitorContract,
    NodeSortPolicy,
    PlacementRuleConfig,
    PreemptionPolicyKind,
    PreemptWithin,
    PriorityPolicy,
    QueueProperties,
    QuotaTimer,
    SortPolicy,
    VictimBound,
)
from kornel.core.domain.topology import TopologyLevel, TopologyRequest, Wish
from kornel.core.model import allocations, applications, domains, gang_units, users
from kornel.core.model.allocations import Allocation, AskGroup, LimitClaim, NodeRefusal, Reservation
from kornel.core.model.applications import Application, SpentKind
from kornel.core.model.callbacks import Callbacks, Inquiry, LinedUp
from kornel.core.model.claim_clocks import ClaimClock
from kornel.core.model.claims import Claims
from kornel.core.model.devices import Device, NodeDevices
from kornel.core.model.domains import Counted, Domain, Topology
from kornel.core.model.gang_units import GangUnit, UnitId
from kornel.core.model.leaf_accounts import MoreShares, OriginatorAccount, ShareAccount
from kornel.core.model.nodes import ForeignLoad, Node
from kornel.core.model.not_placed import Failure, NotPlaced
from kornel.core.model.orders import group_order
from kornel.core.model.orders.group_order import GroupOrder
from kornel.core.model.orders.keyed_heap import KeyedHeap
from kornel.core.model.orders.node_order import NodeGroup, NodeOrder
from kornel.core.model.orders.waiting_rooms import Branch, WaitingRoom
from kornel.core.model.queues import DynamicTerms, Queue
from kornel.core.model.recorded_events import RecordedEvents
from kornel.core.model.shapes import ResourceTypes, Shape, estimate_size
from kornel.core.model.task_groups import GroupMembers, TaskGroup
from kornel.core.model.users import Account, AccountKind, FreedSlot, Limit, QueueLimits
from kornel.core.policies.claim_order import place_in_line
from kornel.core.policies.gang_nodes import Members
from kornel.core.policies.node_score import NodeScore
from kornel.core.policies.placement.rules import Rule, compile_rules
from kornel.core.preemption import plan as preemption_plan
from kornel.core.preemption.consulting import Dialogue
from kornel.core.preemption.guarantee.attempts.gang_attempts import GangAttempt
from kornel.core.preemption.guarantee.attempts.gang_consulting import GangDialogue
from kornel.core.preemption.guarantee.attempts.gang_plans import GangProposal
from kornel.core.preemption.guarantee.attempts.questions import LastLook, QuestionGate, RefusedQuestion
from kornel.core.preemption.guarantee.guarantee_record import GuaranteeRecord
from kornel.core.preemption.guarantee.rules.allowances import Rules
from kornel.core.preemption.guarantee.search.outlooks import Outlook, WatchedNodes
from kornel.core.preemption.guarantee.search.prospects import Band, KeptBounds, KnownProspects
from kornel.core.preemption.monitor.plan import Place
from kornel.core.preemption.monitor.selection.settings import MonitorSettings
from kornel.core.preemption.plan import NOBODY_SPARED, FreedAmounts, GangPlan, PreemptionPlan, Refusal, Spared
from kornel.core.preemption.priorities import Adjustment
from kornel.core.preemption.quota.timer_rules import Terms
from kornel.core.preemption.registry import KINDS
from kornel.core.snapshot.called_functions import FUNCTIONS
from kornel.core.snapshot.kept import Kept, Schema, named_of
from kornel.core.state.history import past
from kornel.core.state.history.event_log import EventLog
from kornel.core.state.history.events import Recorder
from kornel.core.state.history.past import EndedApplication, EndedGroup, Past
from kornel.core.state.history.recent_victims import RecentVictim, RecentVictims
from kornel.core.state.options import EngineOptions
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records import notices
from kornel.core.state.records.enforcement import Enforcement, Overuse, ProtectedBy, Protection, Remainder
from kornel.core.state.records.gang_record import GangHold, GangRecord, GangRoom, Vetting
from kornel.core.state.records.governor_books import GovernorBooks, Scope, Taken, Turn, Window
from kornel.core.state.records.kind_records import KindRecord, KindRecords
from kornel.core.state.records.missing_shares import MissingShares
from kornel.core.state.records.notices import Entry, Notice, Notices
from kornel.core.state.records.reserving_record import ReservingRecord
from kornel.core.state.records.victim_index import VictimIndex

VERSION: Final = 1
"""The version of the tables, which every file names. It changes when files of the previous version have to be read in
another way."""

MEMBERS: Final = (
    AppEvent, AppState, AskPlace, EventChange, EventDetail, EventType, GangScheduling, GuaranteeMode, Ignored,
    MonitorContract, NodeSortPolicy, Outcome, PreemptionPolicyKind, PreemptWithin, PriorityPolicy, ProtectedBy,
    QuotaTimer, Severity, SortPolicy, SpentKind, AccountKind, TerminationType, Unschedulable, WaitsFor, Wish,
)  # fmt: skip

MAPS: Final = (dict, OrderedDict, Counter, FreedAmounts, KindRecords)

CONSTANTS: Final = {
    **named_of(allocations, "NONE_REFUSED", "NONE_STUCK", "NO_VICTIMS", "_NOT_DUE", "_NO_ENTRIES"),
    **named_of(
        applications,
        *("NOBODY_WAITS", "NOTHING_LENT", "NOTHING_SPENT", "NO_GROUPS", "NO_MEMBERS", "NO_REQUESTS", "NO_SAVERS"),
        "NO_TASK_GROUPS",
    ),
    **named_of(domains, "NOTHING_COUNTED"),
    **named_of(gang_units, "UNIT_SHAPE"),
    **named_of(group_order, "NONE_OFFERED", "NO_ENTRIES"),
    **named_of(past, "_NOTHING_SPENT"),
    **named_of(preemption_plan, "NOBODY_SPARED"),
    **named_of(resources, "NOTHING"),
    **named_of(users, "NO_LIMITS"),
    **{cls.__name__: cls for kind in KINDS for cls in kind.records if issubclass(cls, KindRecord)},
}
"""Objects that are compared by identity, the classes by which a partition keeps records of kinds, and empty containers
that many records share."""


def _find_due(queue: Queue) -> dict[Application, None]:
    if queue.parent is not None:
        return {}
    applications = _applications_below(queue)
    return {each: None for each in applications if any(group.due for group in each.groups.values())}


def _line_up(queue: Queue) -> KeyedHeap[AskGroup] | None:
    if queue.parent is not None:
        return None
    line = KeyedHeap(place_in_line)
    for application in _applications_below(queue):
        for group in application.groups.values():
            if group.waits_for in (WaitsFor.ROOM, WaitsFor.DOMAIN):
                line.add(group)
    return line


def _applications_below(root: Queue) -> list[Application]:
    leaves = [root]
    for above in leaves:
        leaves += above.children.values()
    return [application for leaf in leaves for application in leaf.applications.values()]


def _is_settled(application: Application) -> bool:
    return application.state is AppState.RUNNING and application not in application.queue.starting


def _by_type(shape: Shape) -> dict[int, int]:
    return dict(shape.pairs)


def _no_text(_: object) -> str:
    return ""


def _no_map(_: object) -> dict[Any, Any]:
    return {}


def _no_list(_: object) -> list[Any]:
    return []


def _no_dues(_: object) -> None:
    return None


def _no_missing_shares(_: object) -> MissingShares:
    return MissingShares()


def _no_victims_ranked(_: object) -> VictimIndex:
    return VictimIndex()


def _compile_rules(state: PartitionState) -> tuple[Rule, ...]:
    return compile_rules(state.config.placement_rules if state.config is not None else ())


def _make_recorder(state: PartitionState) -> Recorder:
    return Recorder(EventLog(state.effects, state.callbacks), state.types)


VALUES_OF_SHIMS: Final = (
    Kept(
        AllocationSpec,
        " ".join(AllocationSpec._fields),
        defaults={name: AllocationSpec._field_defaults[name] for name in PLAIN_FIELDS},
    ),
    Kept(
        ApplicationSpec,
        "application_id queue partition user groups tags placeholder_timeout_ms placeholder_ask"
        " gang_style looked_up unresolved created_s",
    ),
    Kept(RegisterManager, "rm_id config policy_group version build_info extra_config of_file"),
    Kept(UpdateConfiguration, "rm_id config policy_group extra_config of_file"),
    Kept(StateEntry, "at_ns state"),
    Kept(OperatorDrain, "by at_ns"),
    Kept(EngineOptions, "reservation_delay_ns reservation_percent ended"),
    Kept(RegisteredManager, "rm_id version policy_group build_info registered_ns"),
    Kept(TopologyLevel, "name attribute"),
    Kept(TopologyRequest, "wish level slice_size flaw"),
    Kept(DeviceSpec, "device_id type memory link"),
    Kept(DeviceRequest, "number share memory linked types given flaw"),
)
"""Values that shims and operators sent."""

CONFIGURATIONS: Final = (
    Kept(AccessList, "text everybody users groups"),
    Kept(
        QueueProperties,
        "sort_policy sort_by_priority priority_policy priority_offset preemption_policy"
        " preemption_delay_ns preempt_within preempt_within_gap quota_preemption_delay_ns quota_preemption_timer"
        " quota_preemption_miss"
        " unschedulable_backoff unschedulable_backoff_delay_ns reservation_timeout_ns gang_gather_ns"
        " gang_grace_ns originator_max user_factor user_minimum min_runtime_ns min_runtime_most_ns max_wait_ns",
        defaults={
            "min_runtime_ns": 0,
            "min_runtime_most_ns": 0,
            "max_wait_ns": 0,
            "originator_max": None,
            "user_factor": None,
            "user_minimum": 100,
            "preempt_within": PreemptWithin.NONE,
            "preempt_within_gap": 1,
        },
    ),
    Kept(FilterConfig, "deny users groups"),
    Kept(PlacementRuleConfig, "name create value parent filter"),
    Kept(Budget, "victims lost"),
    Kept(VictimBound, "ask interval"),
    Kept(
        GovernorSettings, "victims window_ns cluster queue application cooldown_ns loop_window_ns loop_returns shadow"
    ),
    Kept(LimitConfig, "description users groups max_applications max_resources"),
    Kept(ChildTemplate, "max_applications properties guaranteed max"),
    Kept(
        QueueConfig,
        "name parent guaranteed max max_applications properties effective effective_raw"
        " dynamic_parent dynamic_leaf submit_acl admin_acl child_template dynamic_template limits"
        " children",
    ),
    Kept(
        PreemptionConfig,
        "enabled quota_enabled guarantee_mode coexist policies cycle_interval_ns cycle_limit"
        " cycle_batch cost sections governor victim_timeout_ns",
    ),
    Kept(NodeSortConfig, "policy weights"),
    Kept(PartitionConfig, "name root placement_rules preemption node_sort resolver topology gang_scheduling"),
    Kept(Configuration, "partitions checksum warnings"),
    Kept(Problem, "severity line column path message expected"),
    Kept(DynamicTerms, "parent_properties leaf_properties guaranteed max max_applications"),
    Kept(Limit, "max max_applications"),
    Kept(QueueLimits, "users groups"),
    Kept(Fraction, "_numerator _denominator"),
    Kept(
        MonitorSettings,
        "interval_ns max_wait_ns per_round dead_zone natural_factor originator_reserve observe_only"
        " balance reserved_first conservative queue_priority queue_priority_wait_ns contract",
    ),
)
"""Configurations, and the settings that are made from them."""

EFFECTS: Final = (
    Kept(NodeAccepted, "node_id"),
    Kept(NodeRejected, "node_id reason partition"),
    Kept(ApplicationAccepted, "application_id partition queue user"),
    Kept(ApplicationRejected, "application_id reason partition queue user"),
    Kept(ApplicationUpdated, "application_id state at_ns message partition queue user submitted_ns"),
    Kept(ApplicationRemoved, "application_id state at_ns partition queue user submitted_ns"),
    Kept(Allocated, "spec node_id resources tags"),
    Kept(Released, "partition application_id key termination message instance"),
    Kept(AskReleased, "partition application_id key termination message"),
    Kept(AllocationRejected, "key application_id reason legacy partition"),
    Kept(VictimRecord, "key application_id queue node_id resources adjusted_priority"),
    Kept(
        PreemptionDecided,
        "at_ns partition kind key application_id queue outcome detail node_id victims gang_plan",
        defaults={"gang_plan": 0},
    ),
    Kept(PlacementKey, "partition key node_id"),
    Kept(PredicatesAsked, "question partition application_id key node_ids allocate dependent after"),
    Kept(PlacementVoid, "partition key"),
    Kept(PreemptionPredicatesAsked, "question partition application_id key node_id victims start_index"),
    Kept(SchedulingFailed, "application_id key reason"),
    Kept(AsksRecorded, "at_ns values"),
    Kept(PlacementsRecorded, "at_ns values"),
    Kept(RemovalsRecorded, "at_ns values"),
    Kept(EventRecorded, "type object_id reference_id change detail at_ns resources message"),
    Kept(PreemptionNotice, "notice partition application_id round strict at_risk need deadline_ns kind reason"),
    Kept(PreemptionNoticeWithdrawn, "notice partition application_id keys"),
)
"""Effects that have not been handed over."""

_OF_ACCOUNTS: Final = (
    "applications claimants claimed held_back holders kind limit max_applications name parked queue saved saving used"
)

MODEL: Final = (
    Kept(NodeRefusal, "reason times of_start least_ns until_ns node changes moves", defaults={"moves": 0}),
    Kept(
        Allocation,
        "application arrival bound_ns created_ns extras failures key missed node place refused"
        " reservation scale_up shape spec standing triggered version where",
    ),
    Kept(
        Reservation,
        "ask by_age clock comes_last least made_ns node pairs parked_at",
        defaults={"clock": None, "least": None},
    ),
    Kept(LimitClaim, "ask clock limits made_ns pairs"),
    Kept(ClaimClock, "_looked_ns _missing stalled_ns"),
    Kept(
        AskGroup,
        "_due_sorted _heap _mixed _oldest_ns application due key lent number parked_at scale_ups shape size waits_for",
        defaults={"_mixed": True},
    ),
    Kept(UnitId, "application task_group"),
    Kept(
        GangUnit,
        "_due_sorted _heap _mixed _oldest_ns application due key lent number parked_at scale_ups shape size waits_for"
        " amounts id lacks refusal",
        defaults={"_mixed": True},
    ),
    Kept(
        Application,
        "_equals _group_numbers _lower accounts allocating allocations application_id asks asks_in_turn"
        " backoff_room backoff_until_ns entered groups held_at held_count held_groups leaves_whole"
        " limit_group members missing offered_by order peak pending placeholder placeholder_count"
        " placeholder_deadline_ns preempted_count priority queue rank real recorded_held_by_queue"
        " recorded_held_by_quota rooms savers set_back spec spent started_ns state submitted_ns task_groups"
        " timer_ns unschedulable user whole_ns",
        derived={"settled": _is_settled},
        defaults={"missing": 0, "whole_ns": 0},
    ),
    Kept(
        Inquiry,
        "ask awaited decide decide_victims drop judged_after moves node_ids number partition",
        defaults={"moves": 0},
    ),
    Kept(LinedUp, "inquiry put"),
    Kept(
        Callbacks,
        "_number awaits_placements deadlines dependent_asked dependent_depth dependent_moves dependent_placements"
        " events line now_ns open predicates preemption_notices preemption_predicates recording scheduling_states"
        " owed_by_ns settled_by_ns silent timeout_ns unsettled unsettled_in",
        under_way="asks_recorded placements_recorded removals_recorded",
        defaults={"dependent_moves": 0, "owed_by_ns": 0, "silent": False},
    ),
    Kept(Claims, "_owners _parts by_age held leaving needed reservations unowned victims"),
    Kept(Failure, "message times last_ns"),
    Kept(GroupOrder, "_entries groups"),
    Kept(
        WaitingRoom,
        "_key_of at_once awake branches chances groups last_chance_ns set_back shape",
        derived={"line": lambda _: None},
        defaults={"set_back": {}},
    ),
    Kept(Branch, "_key_of groups orders ranks withheld", defaults={"withheld": {}}),
    Kept(KeyedHeap, "_entries _key_of _left marked members"),
    Kept(Counted, "capacity free held"),
    Kept(Domain, "below capacity free held level nodes path", derived={"counted_rooms": _no_map}),
    Kept(Topology, "domains levels"),
    Kept(Device, "free holders kept leaving spec"),
    Kept(NodeDevices, "devices"),
    Kept(NodeGroup, "bound loose nodes places refused"),
    Kept(NodeOrder, "_groups _home _lasts _score _width"),
    Kept(ForeignLoad, "spec shape since_ns"),
    Kept(
        Node,
        "allocated allocations attributes capacity changes claims counted departures devices domains"
        " drained_by_shim foreign foreign_loads free held instance_type node_id occupied open operator_drain"
        " schedulable score version",
    ),
    Kept(
        Queue,
        "_guaranteed_below _lineage _priorities _ranks accounts active_users admin_acl allocating applications"
        " ceilings"
        " children claimants claimed claims counted depth draining dynamic_terms fair_max fair_terms guaranteed"
        " held_back leaf limits managed max max_applications name newcomers order parent parked path pending"
        " preempted_count preempted_total preempting priority properties rank rooms running saved saving set_back"
        " siblings starting submit_acl turns used waiting wasted",
        derived={"in_line": _line_up, "with_due": _find_due},
        defaults={"active_users": 0, "set_back": False, "turns": {}, "wasted": {}},
    ),
    Kept(RecordedEvents, "bounded_ns no_victim_ns over_queue_quota over_user_quota refused_ns"),
    Kept(GroupMembers, "gather_until_ns in_turn most running short"),
    Kept(TaskGroup, "asks count free lost name replaced shape stated_minimum timed_out topology"),
    Kept(Account, _OF_ACCOUNTS),
    Kept(OriginatorAccount, _OF_ACCOUNTS),
    Kept(ShareAccount, f"{_OF_ACCOUNTS} asks"),
    Kept(FreedSlot, "account"),
    Kept(MoreShares, "leaf"),
    Kept(
        Shape,
        "devices has_holder no_room others pairs resources",
        derived={"_lack": _no_text, "_written": _no_text, "amounts": _by_type, "size": estimate_size},
    ),
    Kept(
        ResourceTypes,
        "_asked _free _indexes _other _shapes kept_bytes made_bytes names",
        derived={"_named": _no_map},
        wiring="_on_growth _is_wanted",
        defaults={"kept_bytes": 0, "made_bytes": 0},
    ),
    Kept(NotPlaced, "reason queue account"),
)
"""Nodes, queues, applications, asks and what they wait for."""

PARTITIONS: Final = (
    Kept(
        PartitionState,
        "name types preemption created_ns config resolver queues root nodes operator_drains"
        " node_order applications past recent_victims requests instances sharing_count foreign"
        " reservations effects callbacks recording allocation_count too_large holders"
        " no_room awake gained waiting_for_node topology waiting_for_domain sharing waiting_for_turn autoscaling"
        " held_count refused reserved_ready reserving gangs fair_terms_stale timers attempts_due"
        " _number records notices changes rules stuck ignored unreported enforcement"
        " governor nodes_removed law_checks law_violations preemption_attempts search_cost"
        " preemptions progress nothing_held",
        defaults={"progress": ()},
        derived={
            "placement_rules": _compile_rules,
            "events": _make_recorder,
            "victim_index": _no_victims_ranked,
        },
        under_way="fair_terms_steps cleaning",
    ),
    Kept(GangRoom, "_places demand totals waiters"),
    Kept(Vetting, "nodes passed unanswered"),
    Kept(
        GangRecord,
        "as_units attempts below broken called_off gathering holds leaving lost placed planned proposed rooms"
        " timed_out to_match totals vetting waiting_for_turn without_room",
        defaults={"planned": 0},
    ),
    Kept(
        GangHold,
        "clock evicted freed kind lost made_ns members mended number refusal relied_on wait_from_ns",
        defaults={"clock": None, "lost": (), "number": 0, "refusal": None},
    ),
    Kept(EndedGroup, "name made resources replaced timed_out"),
    Kept(
        EndedApplication,
        "spec queue user state submitted_ns started_ns ended_ns states most_used groups spent reason removed",
    ),
    Kept(Past, "most looks_ns _finished _rejected"),
    Kept(RecentVictim, "record decided"),
    Kept(RecentVictims, "_victims"),
    Kept(
        ReservingRecord,
        "aged asked at_limits candidates choose_at_ns choose_not_before_ns delay_ns due_ns lapsed left"
        " not_before_ns percent review_after_ns reviewed saved short",
        defaults={"asked": (0, 0, False)},
        derived={"dues": _no_dues, "looked_at": _no_map, "owing": _no_map, "shares": _no_missing_shares},
        under_way="line",
    ),
    Kept(NodeScore, "_binpacking _weights"),
    Kept(Members, "pairs number required_node refused together devices"),
)
"""The records of a partition."""

PREEMPTION: Final = (
    Kept(GovernorBooks, "lately interval _preempted _turns paused denied waiting held_ns wakes_ns woke_ns"),
    Kept(Scope, "kind name"),
    Kept(Taken, "at_ns scopes amounts"),
    Kept(Window, "taken totals"),
    Kept(Turn, "last_ns preemptor"),
    Kept(
        GuaranteeRecord,
        "attempts_left gate pass_began_ns prospects protected put_off settled_at",
        defaults={"protected": {}, "settled_at": None},
    ),
    Kept(RefusedQuestion, "asks doubtful pause_ns refusal standing tried_ns version"),
    Kept(LastLook, "_amounts _marks _versions rules"),
    Kept(QuestionGate, "_known _last _seen _not_before_ns _later_ns _wakes_ns"),
    Kept(WatchedNodes, "slots nodes look _versions _free _changed_at", derived={"offers": _no_map}),
    Kept(Band, "cost slots is_sorted"),
    Kept(Rules, "highest adjusted declared bounded"),
    Kept(KnownProspects, "_by_question _doubted _outlooks _watched behind"),
    Kept(
        KeptBounds,
        "_demand _unowed _watched _outlook _seen _stale _doubted _leaves _blocked _stages _unrefined"
        " _bands _costs _band_of _places _roomy",
    ),
    Kept(Outlook, "_watched _seen _stale _counted", derived={"glimpses": _no_map, "in_order": _no_list}),
    Kept(Dialogue, "_answers _ask _now_ns _open _refused _state rounds"),
    Kept(Adjustment, "fixed offset"),
    Kept(GangAttempt, "restarts dialogue", under_way="search"),
    Kept(GangDialogue, "_open _passed _rounds _state _unit_id"),
    Kept(GangProposal, "plan"),
    Kept(GangPlan, "kind application places fence mends cut_short"),
    Kept(
        PreemptionPlan,
        "kind ask node victims fence needs adjusted extended weighed devices spared",
        defaults={"devices": (), "spared": NOBODY_SPARED},
    ),
    Kept(Spared, "applications nodes queues"),
    Kept(
        Refusal,
        "outcome detail retry_ns anywhere cut_short protected by_law_3",
        defaults={"protected": False, "by_law_3": False},
    ),
    Kept(Entry, "allocation deadline_ns first_round notice notified_ns times wait_ns"),
    Kept(Notice, "accepted application deadline_ns entries number round"),
    Kept(notices.Taken, "at_ns held futile served", name="TakenByMonitor"),
    Kept(
        Notices,
        "checkpoints entries generation held lacking left_out_ns now_ns observed of_application offered open"
        " places rounds settings slices taken",
        under_way="steps consultation",
        defaults={"left_out_ns": None},
    ),
    Kept(Place, "ask node victims"),
    Kept(Remainder, "look_ns numbers pause_ns protected unmet"),
    Kept(
        Overuse,
        "began_again due_ns reached rest since_ns",
        defaults={"began_again": False, "due_ns": 0},
        name="Standing",
    ),
    Kept(Enforcement, "above armed due postponed replacing served ticking", under_way="run"),
    Kept(Protection, "reason t amount queue of guaranteed held smallest until_ns", defaults={"until_ns": 0}),
    Kept(Terms, "max delay_ns"),
)
"""The records of preemption."""

ROWS: Final = (*VALUES_OF_SHIMS, *CONFIGURATIONS, *EFFECTS, *MODEL, *PARTITIONS, *PREEMPTION)

OF_KINDS: Final = tuple(
    Kept(cls, " ".join(vars(cls)["__slots__"]))
    for kind in KINDS
    for cls in kind.records
    if all(cls is not row.cls for row in ROWS)
)
"""The records of kinds that have no row above: each of their slots is stored."""

SCHEMA: Final = Schema(
    VERSION,
    (*ROWS, *OF_KINDS),
    MEMBERS,
    MAPS,
    CONSTANTS,
    FUNCTIONS,
)
