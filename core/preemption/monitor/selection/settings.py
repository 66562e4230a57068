"""The parameters of the periodic policy (preemption.md E.1), as exact numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kornel.core.domain.settings import MonitorContract

BALANCE_WAIT_NS: Final = 300 * 10**9
"""The time from notice to kill for victims that only serve the balance between queues that have reached their
guarantees."""

_MILLISECOND_NS: Final = 10**6


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """Times in nanoseconds, shares as fractions of 1.

    per_round           part of the cluster that may be selected in one round, per type
    dead_zone           how far above its guarantee a leaf may be before something is taken from it
    natural_factor      part of the excess of a leaf that is taken within one notice period
    originator_reserve  part of a leaf's guarantee up to which its originators are spared
    queue_priority      time after which asks with a reserved node take from less important queues there
    """

    interval_ns: int = 3_000 * _MILLISECOND_NS
    max_wait_ns: int = 15_000 * _MILLISECOND_NS
    per_round: Fraction = Fraction(1, 10)
    dead_zone: Fraction = Fraction(1, 10)
    natural_factor: Fraction = Fraction(1, 5)
    originator_reserve: Fraction = Fraction(0)
    observe_only: bool = False
    balance: bool = False
    reserved_first: bool = False
    conservative: bool = False
    queue_priority: bool = False
    queue_priority_wait_ns: int = 60_000 * _MILLISECOND_NS
    contract: MonitorContract = MonitorContract.NEGOTIABLE


def settings_of(values: Mapping[str, bool | int | float | str] | None) -> MonitorSettings | None:
    """Returns *values* as configured, by key; ``None``: the policy is off."""
    if values is None or not values["enabled"]:
        return None
    return MonitorSettings(
        interval_ns=int(values["interval_ms"]) * _MILLISECOND_NS,
        max_wait_ns=int(values["max_wait_ms"]) * _MILLISECOND_NS,
        per_round=_exact_fraction(values["per_round"]),
        dead_zone=_exact_fraction(values["dead_zone"]),
        natural_factor=_exact_fraction(values["natural_factor"]),
        originator_reserve=_exact_fraction(values["originator_reserve"]),
        observe_only=bool(values["observe_only"]),
        balance=bool(values["balance"]),
        reserved_first=bool(values["reserved_first"]),
        conservative=bool(values["conservative"]),
        queue_priority=bool(values["queue_priority"]),
        queue_priority_wait_ns=int(values["queue_priority_wait_ms"]) * _MILLISECOND_NS,
        contract=MonitorContract(str(values["contract"])),
    )


def _exact_fraction(value: bool | int | float | str) -> Fraction:
    """Returns the decimal fraction that was written, not its nearest binary one: 0.2 of 5 is 1."""
    return Fraction(str(value))
