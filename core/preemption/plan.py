"""Defines the results of planning a preemption for an ask: the victims and the node, or the reason why there are
none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.shared.readable_amounts import format_quantities

PreemptionPredicate = Callable[[Allocation, Node, tuple[Allocation, ...], int], int | None]
"""A function (ask, node, victims in order, start index) -> the index of the last victim that must leave, or ``None`` if
the ask would not run even then (preemption.md B.6). Without a predicate, the start index is enough. For a plan without
victims on the node it is called with ``()`` and -1, which is the ordinary check of the node as it is; any index means
yes."""


class AnswerPending(Exception):
    """Raised by a predicate whose answer is still to come; the caller has to plan again when it has arrived."""


class Plan(Protocol):
    """The part that plans of all kinds have in common: the name of the kind, and the victims."""

    @property
    def kind(self) -> str:
        """Names the kind of preemption."""

    @property
    def victims(self) -> tuple[Allocation, ...]:
        """The allocations that leave, in order."""


class Need(StrEnum):
    """The places at which an ask can lack room, and victims can free it."""

    NODE = "node"
    QUEUE = "queue"
    LIMIT = "limit"
    GUARANTEE = "guarantee"


_PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        Need.NODE: "on the node",
        Need.QUEUE: "under the max of a queue",
        Need.LIMIT: "under a limit of its user",
        Need.GUARANTEE: "under its guarantee",
    }
)


class FreedAmounts(dict[str, dict[str, int]]):
    """The amounts that had to be freed, by :class:`Need` and type name, in base units."""

    def __str__(self) -> str:
        """Returns the amounts as a text for people, such as ``vcore=2.7 on the node, memory=4Gi under its
        guarantee``."""
        return ", ".join(f"{format_quantities(amounts)} {_PLACES.get(need, need)}" for need, amounts in self.items())


@dataclass(frozen=True, slots=True)
class Spared:
    """The queues, applications and nodes that must not lose anything now although the laws would allow it: leaves by
    path, the others by ID."""

    queues: frozenset[str] = frozenset()
    applications: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


NOBODY_SPARED = Spared()


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """The plan to hold what *ask* needs on *node* and to mark *victims*, in order. There are none if enough room is
    about to become free on *node*."""

    kind: str
    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]
    fence: Queue
    needs: FreedAmounts = field(default_factory=FreedAmounts)
    """The amounts that had to be freed."""
    adjusted: tuple[int, ...] = ()
    """The adjusted priority of each victim at the fence (preemption.md B.3)."""
    extended: bool = False
    """Tells whether the predicate asked for more victims than the resources require, so that resources alone do not
    explain each of them."""
    weighed: str = ""
    """The other nodes that were looked at, in words."""
    devices: tuple[str, ...] = ()
    """The devices of the node that the ask is to get, if it is a member of a gang that wants some."""
    spared: Spared = NOBODY_SPARED
    """The tasks that had to be spared, so that less mild ones may leave."""

    def drop_victims(self, spare: Collection[Allocation]) -> PreemptionPlan:
        """Returns this plan without the victims in *spare*."""
        kept = [(v, a) for v, a in zip(self.victims, self.adjusted, strict=True) if v not in spare]
        return replace(self, victims=tuple(v for v, _ in kept), adjusted=tuple(a for _, a in kept))


@dataclass(frozen=True, slots=True)
class GangPlan:
    """The plan, as one decision, to hold a place for every member of a gang that asks as a unit, and to mark the
    victims of all places.

    *places*: one for each member; a place without victims uses room that is free or about to become free. Each victim
    belongs to one member. *mends* tells whether other members of the gang hold their places already.
    """

    kind: str
    application: Application
    places: tuple[PreemptionPlan, ...]
    fence: Queue
    mends: bool = False
    cut_short: bool = False
    """Tells whether the search ended before all ways were tried, so that milder victims might be enough."""

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
    """The answer of a planner that finds no victims. *detail* explains the outcome with amounts, for people.

    *by_law_3* tells whether law 3 kept somebody, so that another application might have got another answer.
    *retry_ns*: the time before which another attempt is useless; ``None``: the usual one. *anywhere* tells whether
    victims need not be on the node that the ask is to use. *cut_short* tells whether the search ended before everything
    was tried, so that victims might exist. *protected* tells whether minimum run times keep somebody back.
    """

    outcome: Outcome
    detail: str = ""
    retry_ns: int | None = None
    anywhere: bool = False
    cut_short: bool = False
    protected: bool = False
    by_law_3: bool = False
