"""Holds all records of one partition and the indexes over them. All code that decides reads it, but only one owner
changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappush
from typing import TYPE_CHECKING, Final

from kornel.core.domain.drains import OperatorDrain
from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.domain.preemption_kinds import GUARANTEE, WITHIN
from kornel.core.domain.reasons import Ignored
from kornel.core.domain.settings import (
    GuaranteeMode,
    NodeSortPolicy,
    PreemptionPolicyKind,
    PreemptWithin,
    QueueProperties,
    SortPolicy,
)
from kornel.core.model.allocations import SEPARATOR, Allocation, AskGroup, Reservation, Room
from kornel.core.model.applications import Application
from kornel.core.model.callbacks import Callbacks
from kornel.core.model.domains import Topology
from kornel.core.model.leaf_accounts import MoreShares
from kornel.core.model.nodes import Node
from kornel.core.model.orders.keyed_heap import KeyedHeap
from kornel.core.model.orders.node_order import NodeOrder
from kornel.core.model.orders.waiting_rooms import WaitingRoom
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, ResourceTypes, Shape, Vector, widen_vector
from kornel.core.model.task_groups import TaskGroup
from kornel.core.model.users import Account, FreedSlot
from kornel.core.policies.application_order import application_turn_key, newcomer_key
from kornel.core.policies.claim_order import Dues, find_lent, place_in_line
from kornel.core.policies.node_score import NodeScore
from kornel.core.policies.placement.rules import Rule, compile_rules
from kornel.core.policies.queue_order import queue_turn_key
from kornel.core.state.history.event_log import EventLog
from kornel.core.state.history.events import Recorder
from kornel.core.state.history.past import Past
from kornel.core.state.history.recent_victims import RecentVictims
from kornel.core.state.options import EngineOptions
from kornel.core.state.records.enforcement import Enforcement
from kornel.core.state.records.gang_record import GangRecord
from kornel.core.state.records.governor_books import GovernorBooks
from kornel.core.state.records.kind_records import KindRecords
from kornel.core.state.records.notices import Notices
from kornel.core.state.records.reserving_record import ReservingRecord
from kornel.core.state.records.victim_index import VictimIndex

if TYPE_CHECKING:
    from kornel.core.config.model import PartitionConfig, PreemptionConfig


class PartitionState:
    """One partition: its queue tree, nodes, applications and reservations, and the effects that were not handed over
    yet.

    ``effects`` collects what was decided, in order, until the engine hands it over.
    """

    def __init__(
        self,
        name: str,
        root_properties: QueueProperties,
        preemption: PreemptionConfig,
        effects: list[Effect],
        callbacks: Callbacks | None = None,
    ) -> None:
        self.name: Final = name
        self.types: Final = ResourceTypes(self._widen_amounts, self._is_wanted)
        self.preemption = preemption
        self.created_ns = 0
        self.config: PartitionConfig | None = None
        """The configuration that the queues and switches follow; ``None``: none yet."""
        self.placement_rules: tuple[Rule, ...] = compile_rules(())
        """The rules by which applications are assigned to queues, in order."""
        self.resolver = ""
        """The name of the resolver that is asked for the groups of a user before an application is submitted here;
        empty: none."""
        self.queues: Final[dict[str, Queue]] = {}
        self.root: Final = self.new_queue("root", None, leaf=False, properties=root_properties)
        self.nodes: Final[dict[str, Node]] = {}
        self.operator_drains: dict[str, OperatorDrain] = {}
        """The drains of nodes by operators, by ID of the node, whether it is registered or not. A later partition of
        the same name shares them."""
        self.node_order: Final = NodeOrder(NodeScore(NodeSortPolicy.FAIR, {}))
        self.applications: Final[dict[str, Application]] = {}
        self.nothing_held: Final[Vector] = []
        """A zero for each resource type, which all applications that have held nothing yet share."""
        self.past: Final = Past()
        """Applications that have ended, as they last were."""
        self.recent_victims: Final = RecentVictims()
        """The latest victims."""
        self.requests: Final[dict[str, Allocation]] = {}
        """Every ask and allocation of the partition by its key, or by the name that stands for it
        (:func:`identity`)."""
        self.instances: Final[dict[str, dict[int, Allocation]]] = {}
        """The requests of each key that several share, by instance (protocol.md 3.4)."""
        self.sharing_count = 0
        """The number of requests that share the key of another one, that is, whose instance is not 0."""
        self.foreign: Final[dict[str, Node]] = {}
        """The nodes on which the load of other schedulers runs, by its key."""
        self.reservations: Final[dict[str, Reservation]] = {}
        self.effects: Final = effects
        self.callbacks: Final = callbacks or Callbacks()
        self.recording = self.callbacks.recording
        """Tells whether the event history is wanted; it is tested before anything is passed to ``events``."""
        self.events: Final = Recorder(EventLog(effects, self.callbacks), self.types)
        self.allocation_count = 0

        self.too_large: Final[dict[Shape, None]] = {}
        """Demands that no open node could hold even if it were empty. The entries are made when they are looked up, and
        corrected as nodes come and go."""
        self.holders: Final[dict[Node, dict[Shape, None]]] = {}
        """For each of the other demands that wait or have waited for room, one open node that could hold it, by
        node."""
        self.no_room: Final[dict[Shape, WaitingRoom]] = {}
        """Shapes that no node had room for when an ask of them was tried last, each with the asks that wait for a
        node."""
        self.awake: Final[dict[WaitingRoom, Queue | Account | None]] = {}
        """The waiting rooms of which the first are tried, each with the limit below which they wait for room, or
        ``None`` if they wait for a node. Some may have gone to sleep again."""
        self.gained: Final[list[Node | Queue | Account | FreedSlot | MoreShares]] = []
        """The gains that the ledger has noted since waiters were last woken; empty between two commands or
        decisions."""
        self.waiting_for_node: Final[dict[str, Room]] = {}
        """Groups that wait for room on the one node they require."""
        self.topology: Topology | None = None
        """The domains that the nodes stand in; ``None``: the configuration names no levels."""
        self.waiting_for_domain: Final[Room] = {}
        """Groups of asks that wait for room in a domain where they may be placed."""
        self.sharing: Final[dict[Node, int]] = {}
        """The nodes with a device of which a part is held and a part is free, each with its largest such free part, in
        thousandths."""
        self.waiting_for_turn: Final[Room] = {}
        """Groups of asks that depend on other placements and wait until the line of such asks is shorter."""
        self.autoscaling = False
        """Tells whether the asks that wait for a node are reported every second."""
        self.held_count = 0
        """The number of asks that are held on a node while the shim is asked about them."""
        self.refused: Final[dict[Shape, dict[frozenset[str], dict[Allocation, None]]]] = {}
        """Asks that the shim refused on every node with room, by these nodes; each is tried again after a pause."""
        self.reserved_ready: Final[dict[Reservation, None]] = {}
        """Reservations whose ask may be placed now because something has changed."""
        self.reserving: Final = ReservingRecord()
        """The nodes that are kept free for asks that have waited for long."""

        self.gangs: Final = GangRecord()
        """The gangs that something has to be done about."""

        self.fair_terms_stale = True
        """Set when the size of the cluster has changed since the fair shares of queues were last computed."""
        self.fair_terms_steps: Iterator[Queue] | None = None
        """The computation of fair shares that is under way, some queues in each slice; ``None``: none is."""
        self.cleaning: Iterator[None] | None = None
        """The search for queues to remove that is under way, some in each slice; ``None``: none is."""

        self.timers: Final[list[tuple[int, int, Callable[[int], None]]]] = []
        """A heap of (time, number, function that is called with the current time)."""
        self.attempts_due: Final[list[tuple[int, int, Allocation]]] = []
        """A heap of (time, number, ask that may then try to preempt)."""
        self._number = 0

        self.records: Final = KindRecords()
        """The records that kinds of preemption keep for themselves."""
        self.victim_index: Final = VictimIndex()
        self.notices: Final = Notices()
        """The notices that the periodic policy has sent to applications, and its round under way."""
        self.changes = 0
        """A number that grows with every change that may let a refused attempt succeed."""
        self.rules = 0
        """A number that grows when the bounds of queues or the rules for victims change."""
        self.stuck: Final[dict[Allocation, Allocation | Queue]] = {}
        """Victims that have not left in time, each with the ask that waited for it, or the queue above its max."""
        self.ignored: Final[dict[Ignored, int]] = {}
        """The number of request entries without effect, by cause."""
        self.unreported: Final[list[tuple[Ignored, str]]] = []
        """The entries of the command under way that had no effect, each with the ID that it named."""
        self.enforcement: Final = Enforcement()
        """The lowered maxima that preemption enforces now or later."""
        self.governor: Final = GovernorBooks()
        """The record of what preemption took lately, which limits what it may take next, and of the asks that wait
        until it may take more."""
        self.progress: tuple[int, ...] = ()
        """The slices in a row that have decided nothing, although there was more to do: their turns, the work left
        after the latest one, and numbers that differ if the books have changed. Empty: the latest slice was not one of
        them."""
        self.nodes_removed = 0
        self.law_checks = 0
        self.law_violations = 0
        self.preemption_attempts = 0
        self.search_cost = 0
        """The cost of all searches for victims, in decisions."""
        self.preemptions = 0

    @property
    def in_line(self) -> KeyedHeap[AskGroup]:
        """The groups that no node has room for, in the line in which room is saved."""
        line = self.root.in_line
        assert line is not None, "it is kept at the root"
        return line

    @property
    def guarantee_mode(self) -> GuaranteeMode:
        """Says whether preemption ends when a queue reaches its guarantee, or strictly below it."""
        return self.preemption.guarantee_mode

    @property
    def guarantee_preemption(self) -> bool:
        """Tells whether asks may preempt for their guarantees, by either policy."""
        return self.lists_guarantees and self.has_rounds

    def preempts_within(self, leaf: Queue) -> bool:
        """Tells whether asks of *leaf* may preempt tasks of other applications there (preemption.md M)."""
        settings = leaf.properties
        return (
            settings.preempt_within is not PreemptWithin.NONE
            and settings.sort_by_priority
            and settings.preemption_policy is not PreemptionPolicyKind.DISABLED
            and WITHIN.name in self.preemption.policies
        )

    @property
    def lists_guarantees(self) -> bool:
        """Tells whether the configuration lists the policy by which asks preempt for their guarantees (preemption.md
        F2)."""
        return GUARANTEE.name in self.preemption.policies

    @property
    def has_rounds(self) -> bool:
        """Tells whether the preemption cycle runs; beside the periodic policy, it runs only if so configured
        (preemption.md H)."""
        return self.preemption.enabled and (self.preemption.coexist or not self.has_periodic_policy)

    @property
    def has_periodic_policy(self) -> bool:
        """Tells whether the periodic policy is on, and does more than observe."""
        settings = self.notices.settings
        return settings is not None and not settings.observe_only

    @property
    def now_ns(self) -> int:
        """The time of the command, slice or round under way."""
        return self.callbacks.now_ns

    @property
    def given_up(self) -> Mapping[Allocation, object]:
        """The victims that have not left in time."""
        return self.stuck

    @property
    def victim_order(self) -> str:
        """Names the order in which victims are looked for."""
        return self.preemption.cost

    @property
    def checkpoints(self) -> Mapping[str, int]:
        """Returns when allocations last saved their work, by key."""
        return self.notices.checkpoints

    def next_number(self) -> int:
        """Returns a number larger than all before, to break ties by arrival."""
        self._number += 1
        return self._number

    @property
    def marks(self) -> tuple[int, ...]:
        """Numbers of which one is different after each change of what is used or kept."""
        return self.changes, len(self.reservations), self.held_count, len(self.reserving.saved)

    @property
    def dues(self) -> Dues:
        """Finds who is owed a guarantee now; what it has found holds until something is booked, in one slice."""
        if self.reserving.dues is None or self.reserving.dues.marks != self.marks:
            self.reserving.dues = Dues(self.guarantee_mode, self.marks)
        return self.reserving.dues

    def find_lent(self, ask: Allocation, pairs: Pairs | None = None) -> dict[Node, list[Reservation]]:
        """Finds the saved claims of others whose room *ask*, or its gang, may use in a plan, by node."""
        return find_lent(ask, self.reserving.saved, self.dues, pairs) if self.reserving.saved else {}

    def report_decision(self, decided: PreemptionDecided) -> None:
        """Appends *decided* to the effects; events that are recorded from now on come after it."""
        self.callbacks.end_recording()
        self.effects.append(decided)

    def rules_changed(self) -> None:
        """Notes that the bounds of queues or the rules for victims have changed, so that any refused attempt may
        succeed now."""
        self.changes += 1
        self.rules += 1

    def ignore_entry(self, cause: Ignored, item: str) -> None:
        """Counts a request entry that named *item*, had no effect and is not answered (protocol.md 15)."""
        self.ignored[cause] = self.ignored.get(cause, 0) + 1
        self.unreported.append((cause, item.replace(SEPARATOR, "-")))

    def note_pairs(self, application: Application, task_group: TaskGroup) -> None:
        """Makes the next cycle check whether an ask and a placeholder of *task_group* match, because one is new or has
        changed."""
        if task_group.asks and task_group.free:
            self.gangs.to_match[application] = None

    def follow_options(self, options: EngineOptions) -> None:
        """Follows the *options* of the engine from now on."""
        self.reserving.delay_ns = options.reservation_delay_ns
        self.reserving.percent = options.reservation_percent
        self.past.most = options.ended

    def run_at(self, when_ns: int, action: Callable[[int], None]) -> None:
        """Runs *action* in the first cycle at or after *when_ns*. An action checks by itself whether it still
        applies."""
        heappush(self.timers, (when_ns, self.next_number(), action))

    def run_slice_at(self, when_ns: int) -> None:
        """Has a slice run at or after *when_ns*, in which a step of the cycle is due."""
        self.run_at(when_ns, _do_nothing)

    def new_queue(self, name: str, parent: Queue | None, *, leaf: bool, properties: QueueProperties) -> Queue:
        """Returns a new queue of this partition, added below *parent* and to the index by path."""
        queue = Queue(
            name,
            parent,
            leaf=leaf,
            properties=properties,
            width=len(self.types.names),
            order_key=application_turn_key if leaf else queue_turn_key,
        )
        if leaf and properties.sort_policy is SortPolicy.STATE_AWARE:
            queue.newcomers = KeyedHeap(newcomer_key)
        if parent is not None:
            parent.children[name] = queue
        else:
            queue.in_line = KeyedHeap(place_in_line)
        self.queues[queue.path] = queue
        return queue

    def follow_types(self) -> None:
        """Makes the amounts here grow with the resource types, and those in line stand in order, after all of it was
        read from a snapshot."""
        self.types.be_followed(self._widen_amounts, self._is_wanted)
        self.in_line.sort_marked()

    def _is_wanted(self, t: int) -> bool:
        """Tells whether an ask or an allocation names type *t*. The totals of the root show that, because pending and
        used amounts are booked up to it."""
        return self.root.pending[t] > 0 or self.root.used[t] > 0

    def _widen_amounts(self, width: int) -> None:
        # Domains come before nodes, because nodes report their amounts to their domains.
        if self.topology is not None:
            self.topology.widen_amounts(width)
        for queue in self.queues.values():
            queue.widen_amounts(width)
        for node in self.nodes.values():
            node.widen_amounts(width)
        widen_vector(self.nothing_held, width)
        for application in self.applications.values():
            application.widen_amounts(width)
        self.node_order.widen_amounts(width)


def _do_nothing(_now_ns: int) -> None:
    """Stands for the slice that a timer brings about."""
