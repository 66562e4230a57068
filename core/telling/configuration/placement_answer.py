"""The queue that an application would get, were it submitted now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kornel.core.partition.state import PartitionState
from kornel.core.policies.placement.applicant import Applicant
from kornel.core.policies.placement.decide import Unplaced, place_applicant


class PlacementAnswer(NamedTuple):
    """The queue that placement rules give an application. ``queue``: the leaf; empty: no rule finds one. ``exists``: it
    is there, else it would be made below ``above``.

    ``outcomes``: what came of each rule, and of the default queue, where there is no queue.
    """

    queue: str
    exists: bool
    above: str
    outcomes: Sequence[str]


def find_placement(
    state: PartitionState, user: str, groups: Sequence[str], queue: str, tags: Mapping[str, str]
) -> PlacementAnswer:
    """Returns where an application of *user* that names *queue* would go. Without *groups* it has one, like its user.

    Changes nothing, and asks no directory for groups.
    """
    lower = {key.lower(): value for key, value in tags.items()}
    placed = place_applicant(
        state.placement_rules, state.queues, Applicant(user, tuple(groups) or (user,), queue, lower, forced=False)
    )
    if isinstance(placed, Unplaced):
        return PlacementAnswer("", exists=False, above="", outcomes=placed.outcomes)
    return PlacementAnswer(placed.path, placed.exists, placed.above.path, ())
