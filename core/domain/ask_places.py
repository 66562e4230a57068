"""Defines the life of an ask as a table: the places where it can be, and the moves between them.

An ask waits with equal asks or, while its task group still has placeholders, in that group for one of them. The cycle
puts it on a node. If the shim answers predicates, the ask is held there until the answer comes; if it is refused on
every node with room, it waits for another node. An ask that has preempted, requires a node or has waited long may have
a reservation on a node, by which it waits. An ask that is to take the place of a placeholder is replacing it until the
shim confirms.

Between two places an ask is nowhere, never for longer than one command or slice. In that time its amounts are booked,
and other asks may be woken before it waits again.

An allocation that is asked to leave, as a victim or as a placeholder, is in a place of its own until it has left.
Whether an ask has preempted (``Allocation.triggered``) is not a place: its claim stays with it wherever it is.

Rules: scheduling.md 6 to 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final


class AskPlace(IntEnum):
    """The places where an ask can be."""

    NOWHERE = 0
    """The ask is new, or between two other places."""
    WAITING = 1
    """The ask waits with equal asks, which either are tried by the next cycle or are parked until they have what they
    lack."""
    POOLED = 2
    """The ask waits in its task group for a placeholder whose place it can take."""
    RESERVED = 3
    """Room is held for it on a node, and it waits by that reservation."""
    HELD = 4
    """The ask is charged on a node while the shim is asked whether it may run there."""
    REFUSED = 5
    """The shim refused it on every node with room: it waits for another node, or for the end of its pause."""
    REPLACING = 6
    """The ask takes the place of a placeholder, which was asked to leave, once the shim confirms."""
    PLACED = 7
    """The ask is an allocation, and its end has not been requested."""
    PREEMPTED = 8
    """The allocation is a victim: its release was asked for, and it stays booked until its exit is confirmed."""
    RELEASED = 9
    """The placeholder was asked to leave, for the ask that takes its place or because it waited too long."""
    GONE = 10
    """The ask was withdrawn or has ended, and its key is free."""


class WaitsFor(StrEnum):
    """The things that a group of equal asks can lack while it is parked; it is woken when it may have what it lacks."""

    QUOTA = "quota"
    """Room under the max of a queue."""
    USER_LIMIT = "user-limit"
    """Room under the limit of its user or group."""
    APPLICATION_SLOT = "application-slot"
    """A queue, user or group that lets one more application start."""
    ROOM = "room"
    """Room on any node."""
    REQUIRED_NODE = "required-node"
    """The node that it requires, which is unknown or too small now."""
    DOMAIN = "domain"
    """Room in a domain of the topology, for all members of its group or for those that are missing."""
    BACK_OFF = "back-off"
    """The end of its application's back-off, or the exit of its gang, which is being preempted as a whole."""
    TURN = "turn"
    """A turn among asks that depend on other placements, about which the shim is asked one at a time."""
    GANG = "gang"
    """The other members of its gang: not all of them have been asked for, or the shim is asked about them."""
    ROOM_FOR_GANG = "room-for-gang"
    """Room for all members of its gang at once."""


class AskMove(IntEnum):
    """The moves of an ask from one place to the next."""

    WAIT = 0
    """The ask is put with its equals."""
    POOL = 1
    """The ask is put in its task group, which still has placeholders."""
    RESERVE = 2
    """Room is held for it on a node, or it waits by the reservation that it had."""
    HOLD = 3
    """A node was found, and the shim is asked."""
    REFUSE = 4
    """The shim has refused every node with room."""
    REPLACE = 5
    """The ask is linked to a placeholder, which is asked to leave."""
    PLACE = 6
    """The ask runs: a node was found, the shim agreed or confirmed, or reported it as running."""
    STEP_OUT = 7
    """The ask leaves its place to wait elsewhere, because it changed its size, or its task group opened or closed."""
    GIVE_BACK = 8
    """The room that was held for it is given back."""
    DISAGREE = 9
    """The shim refuses the node on which it is held, or is no longer asked."""
    FORGIVE = 10
    """The nodes that the shim refused are forgotten, or another node has room."""
    UNDO = 11
    """The placeholder of the ask, or the node it was to run on, is gone before the shim confirmed."""
    RETURN = 12
    """The shim could not start it: it is an ask again."""
    END = 13
    """The ask is withdrawn, released, or ends with its node or application."""
    PREEMPT = 14
    """The allocation is chosen as a victim, and the shim is asked to end it."""
    RELEASE = 15
    """The shim is asked to end the placeholder, but not for preemption."""
    GATHER = 16
    """The placeholder is put with the others of its gang, because all of them are placed together."""


MOVES: Final[Mapping[AskMove, Mapping[AskPlace, AskPlace]]] = MappingProxyType(
    {
        AskMove.WAIT: {AskPlace.NOWHERE: AskPlace.WAITING},
        AskMove.POOL: {AskPlace.NOWHERE: AskPlace.POOLED},
        AskMove.RESERVE: {
            AskPlace.NOWHERE: AskPlace.RESERVED,
            AskPlace.WAITING: AskPlace.RESERVED,
            AskPlace.REFUSED: AskPlace.RESERVED,
        },
        AskMove.HOLD: {
            AskPlace.WAITING: AskPlace.HELD,
            AskPlace.RESERVED: AskPlace.HELD,
            AskPlace.REFUSED: AskPlace.HELD,
        },
        AskMove.REFUSE: {
            AskPlace.WAITING: AskPlace.REFUSED,
            AskPlace.RESERVED: AskPlace.REFUSED,
            AskPlace.REFUSED: AskPlace.REFUSED,
        },
        AskMove.REPLACE: {AskPlace.POOLED: AskPlace.REPLACING},
        AskMove.PLACE: {
            AskPlace.NOWHERE: AskPlace.PLACED,
            AskPlace.WAITING: AskPlace.PLACED,
            AskPlace.POOLED: AskPlace.PLACED,
            AskPlace.REFUSED: AskPlace.PLACED,
            AskPlace.HELD: AskPlace.PLACED,
            AskPlace.REPLACING: AskPlace.PLACED,
        },
        AskMove.STEP_OUT: {AskPlace.WAITING: AskPlace.NOWHERE, AskPlace.POOLED: AskPlace.NOWHERE},
        AskMove.GIVE_BACK: {AskPlace.RESERVED: AskPlace.NOWHERE},
        AskMove.DISAGREE: {AskPlace.HELD: AskPlace.NOWHERE},
        AskMove.FORGIVE: {AskPlace.REFUSED: AskPlace.NOWHERE},
        AskMove.UNDO: {AskPlace.REPLACING: AskPlace.NOWHERE},
        AskMove.RETURN: {AskPlace.PLACED: AskPlace.NOWHERE},
        AskMove.END: {
            AskPlace.NOWHERE: AskPlace.GONE,
            AskPlace.WAITING: AskPlace.GONE,
            AskPlace.POOLED: AskPlace.GONE,
            AskPlace.PLACED: AskPlace.GONE,
            AskPlace.PREEMPTED: AskPlace.GONE,
            AskPlace.RELEASED: AskPlace.GONE,
        },
        AskMove.PREEMPT: {AskPlace.PLACED: AskPlace.PREEMPTED},
        AskMove.RELEASE: {AskPlace.PLACED: AskPlace.RELEASED},
        AskMove.GATHER: {AskPlace.NOWHERE: AskPlace.WAITING},
    }
)
"""The next place by move and present place; a move applies to no other place."""


class IllegalMove(ValueError):
    """A move that does not apply in the place of the ask, which is a bug of the core."""
