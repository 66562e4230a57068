"""The result of planning a preemption: who goes for whom and where, or why nobody goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.domain.reasons import Outcome
from core.model.allocations import Allocation, Reservation
from core.model.nodes import Node
from core.model.queues import Queue

PreemptionPredicate = Callable[[Allocation, Node, tuple[Allocation, ...], int], int | None]
"""(ask, node, victims in order, start index) -> index of the last victim that must go, or ``None`` for never
(preemption.md B.6). Absent predicate: the start index is enough. No victims on the node: called with ``()`` and -1,
the ordinary check of the node as it is; any index means yes."""


class AnswerPending(Exception):
    """Raised by a predicate whose answer is still to come: plan again when it is there."""


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Reserve *node* for *ask* and mark *victims*, in order, after dropping *cancelled* reservations there."""

    kind: str
    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]
    fence: Queue
    cancelled: tuple[Reservation, ...] = ()
    needs: dict[str, dict[str, int]] = field(default_factory=dict)
    """What had to be freed, by need (``node``, ``queue``, ``guarantee``) and type name, base units."""
    adjusted: tuple[int, ...] = ()
    """Adjusted priority of each victim at the fence (preemption.md B.3)."""
    extended: bool = False
    """The predicate asked for more victims than the resources did, so resources alone do not explain each of them."""
    weighed: str = ""
    """For people: which other nodes came into question."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nobody goes. *detail* holds the numbers behind the outcome, ready to be shown.

    *retry_ns*: there is no use in trying again before then; ``None``: as usual.
    """

    outcome: Outcome
    detail: str = ""
    retry_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Spared:
    """Who is not to lose anything just now although the laws would allow it: leaves by path, applications by ID."""

    queues: frozenset[str] = frozenset()
    applications: frozenset[str] = frozenset()


NOBODY_SPARED = Spared()


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """Mark *victims* so that *queue* comes down towards its max (preemption.md D). Amounts by type index.

    ceilings  the max that is enforced
    target    what has to be freed, each > 0, as far as guarantees allow any to go; empty: nothing is to be done
    unmet     what of it the victims leave; types with nothing left over are left out
    """

    queue: Queue
    ceilings: Mapping[int, int]
    target: Mapping[int, int]
    victims: tuple[Allocation, ...]
    unmet: Mapping[int, int]
    outcome: Outcome
