"""Nodes that an operator took out of scheduling, which is kept apart from what their manager says of them."""

from __future__ import annotations

from typing import Final, NamedTuple

MOST_DRAINS: Final = 10_000
"""Nodes of one partition that operators may keep out at once; what they name outlives the nodes."""


class OperatorDrain(NamedTuple):
    """The removal of a node from scheduling by an operator. Holds until an operator ends it, across registrations."""

    by: str
    at_ns: int


class DrainedNode(NamedTuple):
    """A node that an operator keeps out. ``known``: its manager has registered it."""

    node_id: str
    drain: OperatorDrain
    known: bool
