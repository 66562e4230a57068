"""Lists the kinds of preemption with their keys in ``queues.yaml``; ``core/preemption`` has a folder for each. A
new kind needs an entry in :data:`KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kornel.core.domain.settings import MonitorContract, VictimBound


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a kind's own section ``preemption.<name>``. Its values have the type of *default*.

    least    the least value of a whole number
    most     the largest value of a number with a fraction
    choices  the words that are allowed
    """

    default: bool | int | float | str
    least: int = 0
    most: float = float("inf")
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KindKeys:
    """The keys that the kind called *name* has in ``queues.yaml``, below ``preemption``.

    switch   the key that turns the kind on, in its section if it has one; empty: listing it in ``policies`` is enough
    enables  the field of ``PreemptionConfig`` that is set if the switch is on and ``policies`` lists the kind; empty:
             none
    orders   the words for its orders of victims, which ``preemption.cost`` may name
    section  the keys of ``preemption.<name>``; empty: there is no such section
    bound    the default of ``governor.victims.<name>``; ``None``: the governor does not bound the victims of the kind
    serves   tells whether victims leave for an ask, so that ``governor.victims.<name>.ask`` has a meaning
    derives  tells whether the switch gives queues without a declared guarantee a derived one
    """

    name: str
    switch: str = ""
    enables: str = ""
    orders: tuple[str, ...] = ()
    section: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    bound: VictimBound | None = None
    serves: bool = True
    derives: bool = False


REQUIRED_NODE: Final = KindKeys("required-node", bound=VictimBound(ask=128, interval=1_000))
QUOTA: Final = KindKeys(
    "quota", switch="quotapreemptionenabled", enables="quota_enabled", bound=VictimBound(interval=1_000), serves=False
)
GUARANTEE: Final = KindKeys(
    "guarantee", switch="enabled", orders=("default", "lost-work"), bound=VictimBound(ask=128, interval=1_000)
)
WITHIN: Final = KindKeys("within", bound=VictimBound(ask=128, interval=1_000))
MONITOR: Final = KindKeys(
    "monitor",
    switch="enabled",
    derives=True,
    section=MappingProxyType(
        {
            "enabled": Setting(default=False),
            "observe_only": Setting(default=False),
            "balance": Setting(default=False),
            "reserved_first": Setting(default=False),
            "conservative": Setting(default=False),
            "queue_priority": Setting(default=False),
            "interval_ms": Setting(3000, least=1),
            "max_wait_ms": Setting(15000),
            "queue_priority_wait_ms": Setting(60000),
            "dead_zone": Setting(0.1),
            "per_round": Setting(0.1, most=1),
            "natural_factor": Setting(0.2, most=1),
            "originator_reserve": Setting(0.0, most=1),
            "contract": Setting(MonitorContract.NEGOTIABLE, choices=tuple(MonitorContract)),
        }
    ),
)

KINDS: Final[tuple[KindKeys, ...]] = (
    REQUIRED_NODE,
    QUOTA,
    GUARANTEE,
    WITHIN,
    MONITOR,
)
"""The kinds in the order in which a round runs them unless the configuration says otherwise (preemption.md H)."""

NAMES: Final = tuple(kind.name for kind in KINDS)
