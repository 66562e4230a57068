"""Finds the queue that an application would get if it were submitted now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kornel.core.policies.placement.applicant import Applicant
from kornel.core.policies.placement.decide import Unplaced, place_applicant
from kornel.core.state.partition_state import PartitionState


class PlacementAnswer(NamedTuple):
    """The queue that placement rules give an application. ``queue``: the leaf; empty: no rule finds one. ``exists``
    tells whether it exists; otherwise it would be made below ``above``.

    ``outcomes``: if there is no queue, why each rule, and the default queue, gave none.
    """

    queue: str
    exists: bool
    above: str
    outcomes: Sequence[str]


def find_placement(
    state: PartitionState, user: str, groups: Sequence[str], queue: str, tags: Mapping[str, str]
) -> PlacementAnswer:
    """Returns the queue that an application of *user* that names *queue* would get. If *groups* is empty, the user has
    one group with the same name.

    This changes nothing, and asks no directory for groups.
    """
    lower = {key.lower(): value for key, value in tags.items()}
    placed = place_applicant(
        state.placement_rules, state.queues, Applicant(user, tuple(groups) or (user,), queue, lower, forced=False)
    )
    if isinstance(placed, Unplaced):
        return PlacementAnswer("", exists=False, above="", outcomes=placed.outcomes)
    return PlacementAnswer(placed.path, placed.exists, placed.above.path, ())
