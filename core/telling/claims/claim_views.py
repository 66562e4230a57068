"""Shows the claims of a partition: the room that is kept for asks which are not placed yet (preemption.md B.7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.engine.scheduling import lapsing
from kornel.core.model.allocations import Allocation, LimitClaim, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.users import Account, AccountKind
from kornel.core.state.asks.limit_claims import find_lacking
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.encoding.values import write_second
from kornel.shared.readable_amounts import format_count

STALLED_NS: Final = 600 * 10**9
"""The time without progress after which a claim is reported as stalled."""

OFTEN: Final = 3
"""The number of times that an ask loses the room for which others left before that is reported."""


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


CLAIM_SORTS: Final = (
    (ClaimKind.FIRM, ClaimReason.ASKED),
    (ClaimKind.FIRM, ClaimReason.GANG),
    (ClaimKind.FIRM, ClaimReason.REQUIRED_NODE),
    (ClaimKind.FIRM, ClaimReason.PREEMPTION),
    (ClaimKind.SAVED, ClaimReason.REQUIRED_NODE),
    (ClaimKind.SAVED, ClaimReason.AGE),
)
"""The kinds and reasons that occur together."""


class PlaceKind(StrEnum):
    """Says on what amounts are kept: on a node, or below the limit of a queue, a user or a group."""

    NODE = "node"
    QUEUE = "queue"
    USER = "user"
    GROUP = "group"


class ClaimView(NamedTuple):
    """One claim. ``place``: the name of what it is on, which ``place_kind`` says: of a node, the path of a queue, or
    ``NAME in PATH`` for a user or a group. A claim on several limits is shown once for each of them.

    task_group  the task group of the ask; empty: it has none
    held        the amounts kept; below a limit, those of its types for which the ask, or its whole gang, asks
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

    @property
    def sort_key(self) -> str:
        """The key by which claims are sorted, which no two of them share: that of the ask, then the place."""
        # The character that joins the parts sorts before all others.
        return f"{self.key}\0{self.place_kind}\0{self.place}"

    @property
    def where(self) -> str:
        """The place in words: a node without its kind."""
        return self.place if self.place_kind is PlaceKind.NODE else f"{self.place_kind} {self.place}"


def claim_views(state: PartitionState, now_ns: int) -> Iterator[ClaimView]:
    """Shows all claims of the partition at *now_ns*, by their sort keys. The cost is linear in claims, and in nodes
    while the shim is being asked about an ask."""
    asked = [ask for node in state.nodes.values() for ask in node.held.values()] if state.held_count else []
    waiters = {ask.key: ask for ask in asked} | {key: claim.ask for key, claim in state.reservations.items()}
    waiters |= {claim.ask.key: claim.ask for claim in state.reserving.at_limits}
    for key in sorted(waiters):
        yield from sorted(_show_all(state, waiters[key], now_ns), key=_sort_key)


def find_losers(state: PartitionState) -> list[tuple[str, int]]:
    """Returns the keys of the asks that wait although somebody left for them lately, and that have lost the room
    :data:`OFTEN` times or more, each with the number of times; by key."""
    found = (state.requests.get(key) for key in sorted(state.recent_victims.list_preemptors()))
    return [(ask.spec.key, ask.rearms) for ask in found if ask is not None and ask.pending and ask.rearms >= OFTEN]


class ClaimProgress(NamedTuple):
    """The kind and reason of a claim, and how long it has made no progress, as in :class:`ClaimView`."""

    kind: ClaimKind
    reason: ClaimReason
    idle_ns: int


def claims_progress(state: PartitionState, now_ns: int) -> Iterator[ClaimProgress]:
    """Yields the progress of all claims but those about which the shim is being asked. A claim on several limits counts
    once. The cost is linear in claims, and small for each."""
    claims: list[Reservation | LimitClaim] = [*state.reservations.values(), *state.reserving.at_limits]
    for claim in claims:
        if claim.ask.held_on is None or isinstance(claim, LimitClaim):
            yield ClaimProgress(_kind_of(claim), reason_of(state, claim), _find_idle(state, claim, now_ns))


class UnknownClaimKind(ValueError):
    """Somebody asks for claims of a kind that there is not; the text says so in a sentence."""


def select_claims(
    claims: Iterable[ClaimView], kind: str, *, node_id: str = "", application_id: str = ""
) -> Iterator[ClaimView]:
    """Returns those of *claims* that are of *kind*, in upper or lower case, on the node and of the application; empty:
    any. Raises :class:`UnknownClaimKind`."""
    wanted = kind.lower()
    if wanted not in ("", *ClaimKind):
        raise UnknownClaimKind(f"{kind!r} is no kind of claim: they are {' and '.join(ClaimKind)}")
    return (
        claim
        for claim in claims
        if wanted in ("", claim.kind)
        and (not node_id or (claim.place_kind is PlaceKind.NODE and claim.place == node_id))
        and application_id in ("", claim.application_id)
    )


def _sort_key(view: ClaimView) -> str:
    return view.sort_key


def _show_all(state: PartitionState, ask: Allocation, now_ns: int) -> Iterator[ClaimView]:
    if ask.held_on is not None:
        yield _show_asked(state, ask, ask.held_on)
    elif ask.reservation is not None:
        yield show_claim(state, ask.reservation, now_ns)
    if ask.limit_claim is not None:
        yield from _show_at_limits(state, ask.limit_claim, now_ns)


def show_claim(state: PartitionState, claim: Reservation, now_ns: int) -> ClaimView:
    """Shows *claim* at *now_ns*."""
    ask = claim.ask
    return ClaimView(
        *_describe_ask(ask),
        _kind_of(claim),
        reason_of(state, claim),
        PlaceKind.NODE,
        claim.node.node_id,
        state.types.to_resources(dict(claim.pairs)),
        state.types.to_resources(claim.node.find_missing(claim)),
        _count_victims(state, ask),
        claim.made_ns,
        _find_idle(state, claim, now_ns),
        lapsing.find_lapse(state, claim),
    )


def _show_at_limits(state: PartitionState, claim: LimitClaim, now_ns: int) -> Iterator[ClaimView]:
    idle_ns, lapses_ns = _find_idle(state, claim, now_ns), lapsing.find_lapse(state, claim)
    for limit in claim.limits:
        kind, place = _name_limit(limit)
        lacking = find_lacking(limit, claim.pairs)
        yield ClaimView(
            *_describe_ask(claim.ask),
            _kind_of(claim),
            reason_of(state, claim),
            kind,
            place,
            state.types.to_resources({t: amount for t, amount in claim.pairs if t in lacking}),
            state.types.to_resources({t: amount for t, amount in lacking.items() if amount}),
            0,
            claim.made_ns,
            idle_ns,
            lapses_ns,
        )


def _show_asked(state: PartitionState, ask: Allocation, node: Node) -> ClaimView:
    return ClaimView(
        *_describe_ask(ask),
        ClaimKind.FIRM,
        ClaimReason.ASKED,
        PlaceKind.NODE,
        node.node_id,
        state.types.to_resources(ask.shape.amounts),
        Resources(),
        0,
        ask.created_ns,
        0,
        None,
    )


def _describe_ask(ask: Allocation) -> tuple[str, str, str, str]:
    """Returns the first four fields of a view of a claim of *ask*."""
    return ask.spec.key, ask.application.application_id, ask.queue.path, ask.spec.task_group


def _name_limit(limit: Queue | Account) -> tuple[PlaceKind, str]:
    """Returns the kind and the name of *limit*. Those that follow from the properties of a leaf are shown as limits of
    the leaf, and of its user."""
    if isinstance(limit, Queue):
        return PlaceKind.QUEUE, limit.path
    if limit.kind is AccountKind.ORIGINATORS:
        return PlaceKind.QUEUE, limit.queue.path
    kind = PlaceKind.GROUP if limit.kind is AccountKind.GROUP else PlaceKind.USER
    return kind, f"{limit.name} in {limit.queue.path}"


def _kind_of(claim: Reservation | LimitClaim) -> ClaimKind:
    return ClaimKind.SAVED if isinstance(claim, LimitClaim) or claim.comes_last else ClaimKind.FIRM


def _find_idle(state: PartitionState, claim: Reservation | LimitClaim, now_ns: int) -> int:
    """Returns how long *claim* has made no progress, in nanoseconds."""
    clock = lapsing.clock_of(state, claim)
    return max(0, now_ns - claim.made_ns) if clock is None else clock.stalled_ns


def reason_of(state: PartitionState, claim: Reservation | LimitClaim) -> ClaimReason:
    """Returns why *claim* was made."""
    if isinstance(claim, LimitClaim) or claim.by_age:
        return ClaimReason.AGE
    if claim.ask.spec.required_node:
        return ClaimReason.REQUIRED_NODE
    return ClaimReason.GANG if state.gangs.hold_of(claim.ask) is not None else ClaimReason.PREEMPTION


def describe_claim(state: PartitionState, claim: Reservation | LimitClaim) -> str:
    """Says for whom *claim* keeps room, since when, why and until when."""
    ask, since = claim.ask, write_second(claim.made_ns)
    held = f"has been held for {ask.spec.key} since {since}"
    match reason_of(state, claim):
        case ClaimReason.AGE:
            return f"{held}, because it has waited long; {_describe_lapse(state, claim)}"
        case ClaimReason.REQUIRED_NODE:
            return f"{held}, because it must run there, until it is placed or withdrawn"
        case ClaimReason.GANG:
            return f"{held}, until there is room for its whole gang"
    left = _count_victims(state, ask)
    return f"{held}, until it is placed; {format_count(left, 'victim has', 'victims have')} yet to leave for it"


def describe_own_claim(state: PartitionState, claim: Reservation | LimitClaim) -> str:
    """Says since when *claim* collects room, and when it lapses."""
    return f"room has been collected there since {write_second(claim.made_ns)}; {_describe_lapse(state, claim)}"


def _describe_lapse(state: PartitionState, claim: Reservation | LimitClaim) -> str:
    lapses_ns = lapsing.find_lapse(state, claim)
    if lapses_ns is None:
        return "the claim does not lapse"
    return f"the claim lapses at {write_second(lapses_ns)} at the earliest"


def _count_victims(state: PartitionState, ask: Allocation) -> int:
    hold = state.gangs.hold_of(ask)
    return len(ask.victims) if hold is None else sum(len(member.victims) for member in hold.members)
