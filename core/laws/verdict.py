"""A judgement is made of the laws by name, of violations, and of how queues are read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kornel.core.model.queues import Queue


class Law(StrEnum):
    """The rules that a plan can break: the laws, then the invariants of A.1 that they leave open."""

    OPT_OUT_LAST = "law 1"
    """Somebody unwilling goes although somebody less unwilling would do (exhaustive check only)."""
    GUARANTEE_KEPT = "law 2"
    """A queue ends below its guarantee, or further below it."""
    OTHER_APPLICATION = "law 3"
    ENTITLED = "law 4"
    """The ask's queue is not owed what the ask wants, nor do victims inside the shared guarantee make up for it."""
    OVER_GUARANTEE = "law 5"
    """A victim's queue is not over its guarantee to begin with, or has none of its own where that is required."""
    PRIORITY = "law 6"
    FENCE = "law 7"
    ELIGIBLE = "invariant 3"
    """A victim that no plan may hold: protected, leaving already, not placed, or named twice."""
    ON_NODE = "invariant 6"
    """A victim elsewhere although the node lacks room."""
    SUFFICIENT = "invariant 7"
    """The ask would not fit the node or a queue once the victims are gone."""
    MINIMAL = "invariant 8"
    """A victim too many, or victims where none is needed."""
    REQUIRED_NODE = "invariant 18"
    """A victim of an ask that must run on a certain node is elsewhere, or more important than the ask."""
    WITHIN_QUOTA = "invariant 16"
    """A lowered max is enforced beyond what it calls for."""
    NOTIFIED = "invariant 17, notice"
    """A victim of the periodic policy that was not notified in time, or not selected in every round since."""
    ROUND_LIMIT = "invariant 17, limit"
    """More than its part of the cluster is selected in one round of the periodic policy."""
    GANG_WHOLE = "invariant 19"
    """A gang would be left with fewer members than are of use."""
    APPLIED = "invariant 1"
    """The records after a plan differ from those before by something else than the plan."""
    NODE_USABLE = "usable node"
    """The node does not take this ask: not schedulable, or held for another ask that does not give way."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken law, and the numbers that show it."""

    law: Law
    detail: str


def path_of(queue: Queue) -> tuple[Queue, ...]:
    """Returns *queue* and its ancestors, root last."""
    return queue.lineage()


def net_of(queue: Queue, t: int) -> int:
    """Returns what is used once the victims in flight are gone."""
    return queue.used[t] - queue.preempting[t]
