"""Defines drains by operators, which are kept apart from what a node's manager says about the node."""

from __future__ import annotations

from typing import Final, NamedTuple

MOST_DRAINS: Final = 10_000
"""The most nodes of one partition that operators may keep out at once; a drain outlives its node."""


class OperatorDrain(NamedTuple):
    """The removal of a node from scheduling by an operator. It lasts until an operator ends it, across
    registrations."""

    by: str
    at_ns: int


class DrainedNode(NamedTuple):
    """A node that an operator drains. ``known`` tells whether its manager has registered it."""

    node_id: str
    drain: OperatorDrain
    known: bool
