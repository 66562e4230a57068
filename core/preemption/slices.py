"""Calls the kinds of preemption in a slice of the allocation cycle, and asks whether a round would be of use to them.
Each acts through its driver, in the order of the registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.not_placed import NotPlaced
from kornel.core.preemption.kind import Driver
from kornel.core.preemption.registry import KINDS
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangHold

_IDLE: Final = Driver()


def _with_act(occasion: str) -> tuple[Driver, ...]:
    """Returns the drivers of all kinds that act on *occasion*, in the order of the registry."""
    return tuple(kind.driver for kind in KINDS if getattr(kind.driver, occasion) is not getattr(_IDLE, occasion))


_OFFERING: Final = _with_act("offer_due")
_RESUMING: Final = _with_act("resume")
_BUSY: Final = _with_act("is_busy")
_ENDING: Final = _with_act("end_slice")
_IN_SLICES: Final = tuple(dict.fromkeys((*_BUSY, *_OFFERING, *_RESUMING, *_ENDING)))
_WORKING: Final = _with_act("work_left")
_WANTING: Final = {kind.name: kind.driver for kind in KINDS if kind.driver in _with_act("wants_round")}
_SERVING: Final = _with_act("serve_unplaced")
_TAKING_OVER: Final = _with_act("take_over")
_SERVING_UNITS: Final = _with_act("serve_unit")
_SERVING_RESERVED: Final = _with_act("serve_reserved")
_ARRIVING: Final = _with_act("note_arrival")
_AMENDING: Final = _with_act("note_amendment")


def wants_round(state: PartitionState) -> bool:
    """Tells whether a round of the preemption cycle could achieve anything in *state* now."""
    for name in state.preemption.policies:
        driver = _WANTING.get(name)
        if driver is not None and driver.wants_round(state):
            return True
    return False


def any_has_work(state: PartitionState, now_ns: int) -> bool:
    """Tells whether a slice that begins now has anything for some kind to do. Most slices of a partition where nobody
    waits have nothing."""
    books = state.governor
    if books.lately.taken or books.interval.taken:
        books.drop_expired(state.preemption.governor, state.preemption.cycle_interval_ns, now_ns)
    for driver in _IN_SLICES:
        if driver.has_work(state, now_ns):
            return True
    return False


def offer_due(state: PartitionState, now_ns: int) -> None:
    """Offer every ask whose next attempt is due, of any kind."""
    for driver in _OFFERING:
        driver.offer_due(state, now_ns)


def resume_waiting(state: PartitionState, now_ns: int) -> bool:
    """Offer the asks of one kind that had to wait for another one. Returns whether there were any."""
    # This is a list and not a generator, so that each kind has its turn, whatever those before it return.
    found = [driver.resume(state, now_ns) for driver in _RESUMING]
    return any(found)


def any_busy(state: PartitionState) -> bool:
    """Tells whether some kind has work that goes on from slice to slice."""
    for driver in _BUSY:
        if driver.is_busy(state):
            return True
    return False


def busy_drivers(state: PartitionState) -> Iterator[Driver]:
    """Yields the driver of each kind that has work under way when its turn comes."""
    for driver in _BUSY:
        if driver.is_busy(state):
            yield driver


def work_left(state: PartitionState) -> int:
    """Returns the number of steps left to the searches of all kinds that are under way."""
    return sum([driver.work_left(state) for driver in _WORKING])


def serve_unplaced(state: PartitionState, group: AskGroup, why: NotPlaced, now_ns: int) -> tuple[int, bool]:
    """Lets the kinds make room for an ask of *group*, which found no node and has due asks.

    Returns what that cost in decisions, and whether the group may stay where it is.
    """
    spent = 0
    for driver in _SERVING:
        cost, stays = driver.serve_unplaced(state, group, why, now_ns)
        spent += cost
        if stays:
            return spent, True
    return spent, False


def take_over_for_group(state: PartitionState, group: AskGroup, now_ns: int) -> Reservation | None:
    """Lets an ask of *group*, whose first ask found no node, have room that was made for a less important ask of its
    leaf. Returns what is left of the claim of that one; ``None``: there is no such room."""
    first = group.first_ask()
    heirs = [first]
    if first.refused is not None or not first.spec.allow_preempt_other:
        # An ask of the same size behind it may be allowed where the first one is not.
        allowed = [ask for ask in group.unordered_asks() if ask.refused is None and ask.spec.allow_preempt_other]
        heirs += [min(allowed, key=lambda ask: ask.order)] if allowed else []
    left = (take_over_claim(state, heir, now_ns) for heir in heirs)
    return next((claim for claim in left if claim is not None), None)


def take_over_claim(state: PartitionState, ask: Allocation, now_ns: int) -> Reservation | None:
    """Lets *ask*, which found no node, have room that was made for a less important ask of its leaf. Returns what is
    left of the claim of that one; ``None``: there is no such room."""
    left = (driver.take_over(state, ask, now_ns) for driver in _TAKING_OVER)
    return next((claim for claim in left if claim is not None), None)


def serve_unit(
    state: PartitionState, unit: GangUnit | GangHold, members: Sequence[Allocation], why: NotPlaced, now_ns: int
) -> tuple[int, bool]:
    """Lets the kinds make room for all *members* of the gang of *unit*, which found no places.

    Returns what that cost in decisions, and whether the unit may stay where it is.
    """
    spent = 0
    for driver in _SERVING_UNITS:
        cost, stays = driver.serve_unit(state, unit, members, why, now_ns)
        spent += cost
        if stays:
            return spent, True
    return spent, False


def serve_reserved(state: PartitionState, reservation: Reservation, limited: NotPlaced | None, now_ns: int) -> bool:
    """Lets the kinds make room for the ask of *reservation*, which *limited* keeps back. Returns whether one did."""
    return any(driver.serve_reserved(state, reservation, limited, now_ns) for driver in _SERVING_RESERVED)


def end_slice(state: PartitionState, now_ns: int) -> None:
    """Lets every kind note what the slice has changed."""
    for driver in _ENDING:
        driver.end_slice(state, now_ns)


def note_arrival(state: PartitionState, allocation: Allocation, now_ns: int) -> None:
    """Informs every kind that *allocation* holds an amount on a node without any check."""
    for driver in _ARRIVING:
        driver.note_arrival(state, allocation, now_ns)


def note_amendment(state: PartitionState, allocation: Allocation, now_ns: int) -> None:
    """Informs every kind that *allocation*, which runs, has got another priority, other tags or another preemption
    policy."""
    for driver in _AMENDING:
        driver.note_amendment(state, allocation, now_ns)
