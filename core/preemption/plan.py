"""The result of planning a preemption: who goes for whom and where, or why nobody goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue

PreemptionPredicate = Callable[[Allocation, Node, tuple[Allocation, ...], int], int | None]
"""(ask, node, victims in order, start index) -> index of the last victim that must go, or ``None`` for never
(preemption.md B.6). Absent predicate: the start index is enough. No victims on the node: called with ``()`` and -1,
the ordinary check of the node as it is; any index means yes."""


class AnswerPending(Exception):
    """Raised by a predicate whose answer is still to come: plan again when it is there."""


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Hold what *ask* needs on *node* and mark *victims*, in order; none, where enough is leaving *node* already."""

    kind: str
    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]
    fence: Queue
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

    *retry_ns*: there is no use in trying again before then; ``None``: as usual. *anywhere*: victims would not have to
    be on the node that the ask is to use. *cut_short*: not everything was tried, so that even fewer victims might do.
    """

    outcome: Outcome
    detail: str = ""
    retry_ns: int | None = None
    anywhere: bool = False
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Spared:
    """Who is not to lose anything just now although the laws would allow it: leaves by path, others by ID."""

    queues: frozenset[str] = frozenset()
    applications: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


NOBODY_SPARED = Spared()


class ProtectedBy(StrEnum):
    """What keeps work in a queue above its max."""

    GUARANTEE = "guarantee"
    REQUIRED_NODE = "required-node"
    """Tasks bound to their node are never victims."""
    ENDING = "ending"
    """Tasks that somebody ends already for another reason."""


@dataclass(frozen=True, slots=True)
class Protection:
    """Why *amount* of type index *t* stays in a queue above its max.

    For a guarantee: of *queue*, for type index *of* (the tasks may hold that too), which it holds *held* of.
    *smallest*: the least that one of these tasks holds of it.
    """

    reason: ProtectedBy
    t: int
    amount: int
    queue: Queue
    of: int = 0
    guaranteed: int = 0
    held: int = 0
    smallest: int = 0


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """Mark *victims* so that *queue* comes down towards its max (preemption.md D). Amounts by type index.

    ceilings   the max that is enforced
    target     what the queue holds above it, each > 0, whatever protects that; empty: nothing is to be done
    unmet      what of it the victims leave; types with nothing left over are left out
    staying    what victims in flight hold that will not leave, as far as anybody knows
    protected  what keeps there what is unmet
    """

    kind: ClassVar = "quota"

    queue: Queue
    ceilings: Mapping[int, int]
    target: Mapping[int, int]
    victims: tuple[Allocation, ...]
    unmet: Mapping[int, int]
    outcome: Outcome
    staying: Mapping[int, int] = field(default_factory=dict)
    protected: tuple[Protection, ...] = ()
