"""All records of one partition and the indexes over them. Everything that decides reads it, one owner changes it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Final

from core.domain.effects import Effect
from core.domain.reasons import Ignored
from core.domain.settings import GuaranteeMode, NodeSortPolicy, QueueProperties
from core.model.allocations import SEPARATOR, Allocation, AskGroup, Reservation
from core.model.applications import Application
from core.model.node_order import NodeOrder
from core.model.nodes import Node
from core.model.queues import Queue
from core.model.shapes import ResourceTypes, Shape
from core.policies.application_order import application_key
from core.policies.node_score import NodeScore
from core.policies.preemption.index import VictimIndex
from core.policies.queue_order import queue_key

if TYPE_CHECKING:
    from core.config.model import PreemptionConfig


class PartitionState:
    """One partition: queue tree, nodes, applications, reservations, and the answers not yet handed over.

    ``effects`` collects what was decided, in order; whoever drives the partition takes it away.
    """

    def __init__(
        self, name: str, root_properties: QueueProperties, preemption: PreemptionConfig, effects: list[Effect]
    ) -> None:
        self.name: Final = name
        self.types: Final = ResourceTypes(self._widen)
        self.preemption = preemption
        self.queues: Final[dict[str, Queue]] = {}
        self.root: Final = self.new_queue("root", None, leaf=False, properties=root_properties)
        self.nodes: Final[dict[str, Node]] = {}
        self.node_order: Final = NodeOrder(NodeScore(NodeSortPolicy.FAIR, {}))
        self.applications: Final[dict[str, Application]] = {}
        self.requests: Final[dict[str, Allocation]] = {}
        """Every ask and allocation of the partition by its key, or the name that stands for it (:func:`identity`)."""
        self.instances: Final[dict[str, dict[int, Allocation]]] = {}
        """The requests of each key that several share, by instance (protocol.md 3.4)."""
        self.foreign: Final[dict[str, Node]] = {}
        """Where the load of other schedulers sits, by its key."""
        self.reservations: Final[dict[str, Reservation]] = {}
        self.effects: Final = effects
        self.allocation_count = 0

        self.no_room: Final[dict[Shape, dict[AskGroup, None]]] = {}
        """Shapes that fit on no node as things stand, each with the groups that wait for one."""
        self.waiting_for_node: Final[dict[str, dict[AskGroup, None]]] = {}
        """Groups that wait for room on the one node they require."""
        self.stirred = False
        """Something happened that may let a reserved ask be placed."""

        self.fair_terms_stale = True

        self.timers: Final[list[tuple[int, int, Callable[[int], None]]]] = []
        """(when, number, what to do with the time it was then), a heap."""
        self.attempts_due: Final[list[tuple[int, int, Allocation]]] = []
        """(when, number, ask that may then try to preempt), a heap."""
        self._number = 0

        self.attempts_left: Final[dict[Queue, int]] = {}
        self.pass_began_ns = 0
        self.victim_index: Final = VictimIndex()
        self.ignored: Final[dict[Ignored, int]] = {}
        """How many request entries had no effect, by cause."""
        self.unreported: Final[list[tuple[Ignored, str]]] = []
        """Those of the command under way, each with the ID it named."""
        self.law_checks = 0
        self.law_violations = 0
        self.preemption_attempts = 0
        self.preemptions = 0

    @property
    def guarantee_mode(self) -> GuaranteeMode:
        return self.preemption.guarantee_mode

    def next_number(self) -> int:
        """A number larger than all before: breaks ties by arrival."""
        self._number += 1
        return self._number

    def ignore(self, cause: Ignored, item: str) -> None:
        """A request entry that named *item* had no effect and is not answered (protocol.md 15)."""
        self.ignored[cause] = self.ignored.get(cause, 0) + 1
        self.unreported.append((cause, item.replace(SEPARATOR, "-")))

    def at(self, when_ns: int, action: Callable[[int], None]) -> None:
        """Run *action* in the first cycle at or after *when_ns*; each checks itself whether it still applies."""
        heappush(self.timers, (when_ns, self.next_number(), action))

    def new_queue(self, name: str, parent: Queue | None, *, leaf: bool, properties: QueueProperties) -> Queue:
        """A queue of this partition, hung below *parent* and known by its path."""
        queue = Queue(
            name,
            parent,
            leaf=leaf,
            properties=properties,
            width=len(self.types.names),
            order_key=application_key if leaf else queue_key,
        )
        if parent is not None:
            parent.children[name] = queue
        self.queues[queue.path] = queue
        return queue

    def _widen(self, width: int) -> None:
        for queue in self.queues.values():
            queue.widen(width)
        for node in self.nodes.values():
            node.widen(width)
        for application in self.applications.values():
            application.widen(width)
        self.node_order.widen(width)
