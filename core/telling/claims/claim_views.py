"""Shows the claims of a partition: the room that is kept for asks which are not placed yet (preemption.md B.7)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from kornel.core.domain.readable_amounts import format_count
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.partition.state import PartitionState

STALLED_NS: Final = 600 * 10**9
"""The time without progress after which a claim is reported as stalled."""


class ClaimKind(StrEnum):
    """Says whether somebody left or leaves for a claim, or the shim is being asked about it (firm), or it collects what
    ends (saved)."""

    FIRM = "firm"
    SAVED = "saved"


class ClaimReason(StrEnum):
    """Says why room is kept for an ask."""

    ASKED = "asked"
    """The shim is being asked whether the ask may run there."""
    GANG = "gang"
    """Victims leave, or have left, for its gang, which is placed as a whole."""
    REQUIRED_NODE = "required-node"
    """The ask must run on that node."""
    PREEMPTION = "preemption"
    """Victims leave, or have left, for it."""
    AGE = "age"
    """The ask has waited long without room."""


class PlaceKind(StrEnum):
    """Says on what amounts are kept."""

    NODE = "node"


class ClaimView(NamedTuple):
    """One claim. ``place``: the name of what it is on, which ``place_kind`` says.

    task_group  the task group of the ask; empty: it has none
    held        the amounts kept
    missing     the part of ``held`` that is not free yet; types of which nothing is missing are left out
    victims     the number of victims that have yet to leave for the ask
    since_ns    the time at which the claim was made; for a question to the shim, the time at which the ask came
    idle_ns     how long it has made no progress. Only the time in which it keeps others back counts for a claim by age;
                any other claim counts from the time at which it was made
    lapses_ns   the earliest time at which it can lapse; ``None``: it does not lapse
    """

    key: str
    application_id: str
    queue: str
    task_group: str
    kind: ClaimKind
    reason: ClaimReason
    place_kind: PlaceKind
    place: str
    held: Resources
    missing: Resources
    victims: int
    since_ns: int
    idle_ns: int
    lapses_ns: int | None


def claim_views(state: PartitionState, now_ns: int) -> Iterator[ClaimView]:
    """Shows all claims of the partition at *now_ns*, by the key of their ask. The cost is linear in claims, and in
    nodes while the shim is being asked about an ask."""
    asked = [ask for node in state.nodes.values() for ask in node.held.values()] if state.held_count else []
    waiters = {ask.key: ask for ask in asked} | {key: claim.ask for key, claim in state.reservations.items()}
    for key in sorted(waiters):
        ask = waiters[key]
        if ask.held_on is not None:
            yield _show_asked(state, ask, now_ns)
        elif ask.reservation is not None:
            yield show_claim(state, ask.reservation, now_ns)


def show_claim(state: PartitionState, claim: Reservation, now_ns: int) -> ClaimView:
    """Shows *claim* at *now_ns*."""
    ask, saved = claim.ask, claim.comes_last
    return ClaimView(
        ask.spec.key,
        ask.application.application_id,
        ask.queue.path,
        ask.spec.task_group,
        ClaimKind.SAVED if saved else ClaimKind.FIRM,
        reason_of(state, claim),
        PlaceKind.NODE,
        claim.node.node_id,
        state.types.to_resources(dict(claim.pairs)),
        state.types.to_resources(_find_missing(claim)),
        _count_victims(state, ask),
        claim.made_ns,
        claim.stalled_ns if claim.by_age else max(0, now_ns - claim.made_ns),
        lapse_of(claim),
    )


def reason_of(state: PartitionState, claim: Reservation) -> ClaimReason:
    """Returns why *claim* was made."""
    if claim.by_age:
        return ClaimReason.AGE
    if claim.ask.spec.required_node:
        return ClaimReason.REQUIRED_NODE
    return ClaimReason.GANG if state.gangs.hold_of(claim.ask) is not None else ClaimReason.PREEMPTION


def lapse_of(claim: Reservation) -> int | None:
    """Returns the earliest time at which *claim* lapses if it makes no progress; ``None``: it does not lapse."""
    if not claim.by_age:
        return None
    return claim.looked_ns + max(0, claim.ask.queue.properties.reservation_timeout_ns - claim.stalled_ns)


def describe_claim(state: PartitionState, claim: Reservation) -> str:
    """Says for whom *claim* keeps room, since when, why and until when."""
    ask, since = claim.ask, _write_time(claim.made_ns)
    held = f"has been held for {ask.spec.key} since {since}"
    match reason_of(state, claim):
        case ClaimReason.AGE:
            return f"{held}, because it has waited long, and {_describe_lapse(claim)}"
        case ClaimReason.REQUIRED_NODE:
            return f"{held}, because it must run there, until it is placed or withdrawn"
        case ClaimReason.GANG:
            return f"{held}, until there is room for its whole gang"
    left = _count_victims(state, ask)
    return f"{held}, until it is placed; {format_count(left, 'victim has', 'victims have')} yet to leave for it"


def describe_own_claim(claim: Reservation) -> str:
    """Says since when *claim*, which is by age, collects room, and when it lapses."""
    return f"room has been collected there since {_write_time(claim.made_ns)}; the claim {_describe_lapse(claim)}"


def _describe_lapse(claim: Reservation) -> str:
    lapses_ns = lapse_of(claim)
    assert lapses_ns is not None, "claims by age lapse"
    return f"lapses at {_write_time(lapses_ns)} at the earliest"


def _show_asked(state: PartitionState, ask: Allocation, now_ns: int) -> ClaimView:
    assert ask.held_on is not None, "the shim is being asked about it"
    return ClaimView(
        ask.spec.key,
        ask.application.application_id,
        ask.queue.path,
        ask.spec.task_group,
        ClaimKind.FIRM,
        ClaimReason.ASKED,
        PlaceKind.NODE,
        ask.held_on.node_id,
        state.types.to_resources(dict(ask.shape.pairs)),
        Resources(),
        0,
        ask.created_ns,
        0,
        None,
    )


def _find_missing(claim: Reservation) -> dict[int, int]:
    node, claims = claim.node, claim.node.claims
    assert claims is not None, "the node has a claim"
    room = claims.room_of(claim, node.free)
    return {t: min(amount, amount - room[t]) for t, amount in claim.pairs if amount > room[t]}


def _count_victims(state: PartitionState, ask: Allocation) -> int:
    hold = state.gangs.hold_of(ask)
    return len(ask.victims) if hold is None else sum(len(member.victims) for member in hold.members)


def _write_time(at_ns: int) -> str:
    """Returns a moment in UTC, to the second: ``2026-11-22T14:30:00Z``.

    The standard library's calendar comes with a clock, which the engine does without. Years begin in March here, so
    that a leap day is the last day of its year.
    """
    days, seconds = divmod(at_ns // 10**9, 86_400)
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    january = month >= 10
    date = f"{era * 400 + year + january:04}-{month - 9 if january else month + 3:02}-{day:02}"
    return f"{date}T{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
