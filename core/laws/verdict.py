"""Names the laws, defines their violations, and holds what laws need to read queues."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kornel.core.model.queues import Queue


class Law(StrEnum):
    """The rules that a plan can break: the laws, then the invariants of A.1 that they leave open."""

    OPT_OUT_LAST = "law 1"
    """A reluctant victim is taken although a less reluctant one would be enough. The oracle of the rules tells."""
    GUARANTEE_KEPT = "law 2"
    """A queue ends below its guarantee, or further below it."""
    OTHER_APPLICATION = "law 3"
    ENTITLED = "law 4"
    """The ask's queue is not entitled to what the ask wants, and victims inside a shared guarantee do not make up for
    it."""
    OVER_GUARANTEE = "law 5"
    """A victim's queue is not over its guarantee before the plan, or has no guarantee of its own where that is
    required."""
    PRIORITY = "law 6"
    FENCE = "law 7"
    ELIGIBLE = "invariant 3"
    """A victim that no plan may have: protected, leaving already, not placed, or named twice."""
    RUN_TIME = "minimum run time"
    """A victim has not run for its minimum run time yet (preemption.md L)."""
    ON_NODE = "invariant 6"
    """A victim is on another node although the ask's node lacks room."""
    SUFFICIENT = "invariant 7"
    """The ask would not fit the node or a queue once the victims are gone."""
    WITHIN_LIMITS = "limits"
    """A limit of a user or group would keep the ask back although others leave for it (preemption.md B.7)."""
    MINIMAL = "invariant 8"
    """A victim is not needed."""
    MILDEST = "invariant 8, walk"
    """The victims, sorted worst first, are worse than those of the plain walk over the same node or leaf."""
    REQUIRED_NODE = "invariant 18"
    """A victim of an ask with a required node is on another node, or is more important than the ask."""
    WITHIN_QUOTA = "invariant 16"
    """A lowered max is enforced further than necessary."""
    NOTIFIED = "invariant 17, notice"
    """A victim of the periodic policy was not notified in time, or not selected in every round since."""
    ROUND_LIMIT = "invariant 17, limit"
    """More than its part of the cluster is selected in one round of the periodic policy."""
    GANG_WHOLE = "invariant 19"
    """A gang would be left with too few members to be of use."""
    UNIT_WHOLE = "invariant 20"
    """A gang that asks as a unit would hold places for some of its minimum only."""
    NODE_USABLE = "usable node"
    """The ask cannot use the node, because it is not schedulable, or is held for an ask that comes first."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken law, and the amounts that show it."""

    law: Law
    detail: str


def path_of(queue: Queue) -> tuple[Queue, ...]:
    """Returns *queue* and its ancestors, root last."""
    return queue.lineage()


def net_of(queue: Queue, t: int) -> int:
    """Returns what *queue* uses of type *t* once its victims have left."""
    return queue.used[t] - queue.preempting[t]
