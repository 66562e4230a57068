"""The result of planning a preemption for an ask: who goes and where, or why nobody goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kornel.core.domain.readable_amounts import format_quantities
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue

PreemptionPredicate = Callable[[Allocation, Node, tuple[Allocation, ...], int], int | None]
"""(ask, node, victims in order, start index) -> index of the last victim that must go, or ``None`` for never
(preemption.md B.6). Absent predicate: the start index is enough. No victims on the node: called with ``()`` and -1,
the ordinary check of the node as it is; any index means yes."""


class AnswerPending(Exception):
    """Raised by a predicate whose answer is still to come: plan again when it is there."""


class Plan(Protocol):
    """The part that plans of all kinds have in common: the name of the kind, and who leaves."""

    @property
    def kind(self) -> str:
        """Names the kind of preemption."""

    @property
    def victims(self) -> tuple[Allocation, ...]:
        """The allocations that leave, in order."""


class FreedAmounts(dict[str, dict[str, int]]):
    """Amounts that had to be freed, by need (``node``, ``queue``, ``guarantee``) and type name, base units."""

    def __str__(self) -> str:
        """Returns the same for people: ``vcore=2.7 on the node, memory=4Gi under its guarantee``."""
        places = {"node": "on the node", "queue": "under the max of a queue", "guarantee": "under its guarantee"}
        return ", ".join(f"{format_quantities(amounts)} {places.get(need, need)}" for need, amounts in self.items())


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Hold what *ask* needs on *node* and mark *victims*, in order; none, where enough is leaving *node* already."""

    kind: str
    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]
    fence: Queue
    needs: FreedAmounts = field(default_factory=FreedAmounts)
    """The amounts that had to be freed."""
    adjusted: tuple[int, ...] = ()
    """Adjusted priority of each victim at the fence (preemption.md B.3)."""
    extended: bool = False
    """The predicate asked for more victims than the resources did, so resources alone do not explain each of them."""
    weighed: str = ""
    """The other nodes that came into question, in words."""


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """Hold a place for every member of a gang that asks as a unit, and mark the victims of all places: one decision.

    *places*: one for each member; a place where nobody leaves is in room that is open or leaving already. Each victim
    stands with one member. *mends*: the other members of the gang hold their places already.
    """

    kind: str
    application: Application
    places: tuple[PreemptionPlan, ...]
    fence: Queue
    mends: bool = False
    cut_short: bool = False
    """Not all ways were tried, so that fewer victims might do."""

    @property
    def victims(self) -> tuple[Allocation, ...]:
        """Returns the victims of all places."""
        return tuple([victim for place in self.places for victim in place.victims])

    @property
    def members(self) -> tuple[Allocation, ...]:
        """Returns the asks that get a place."""
        return tuple([place.ask for place in self.places])


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer of a planner that finds no victims. *detail* holds the numbers behind the outcome, ready
    to be shown.

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
    """The queues, applications and nodes that are not to lose anything just now although the laws would allow it:
    leaves by path, others by ID."""

    queues: frozenset[str] = frozenset()
    applications: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


NOBODY_SPARED = Spared()
