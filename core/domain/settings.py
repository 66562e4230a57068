"""The choices of an administrator. Policies compare against these members; ``kornel.core.config`` fills them in.

Rules: config.md 2.6 to 2.8 and 6.1, preemption.md 0.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from kornel.core.domain.resources import Resources

DEFAULT_PREEMPTION_DELAY_NS: Final = 30 * 10**9
DEFAULT_BACKOFF_DELAY_NS: Final = 30 * 10**9
DEFAULT_GANG_GATHER_NS: Final = 10 * 10**9
DEFAULT_RESERVATION_TIMEOUT_NS: Final = 7_200 * 10**9


class SortPolicy(StrEnum):
    """Order of the applications of a leaf queue. Parents always share fairly between their children.

    STATE_AWARE is FIFO among the running applications and the first one that does not run yet.
    """

    FIFO = "fifo"
    FAIR = "fair"
    STATE_AWARE = "stateaware"


class PriorityPolicy(StrEnum):
    """The priority that a queue shows its parent: the highest below it plus its offset, or (FENCE) its offset alone."""

    DEFAULT = "default"
    FENCE = "fence"


class PreemptionPolicyKind(StrEnum):
    """The part that a queue has in preemption. FENCE: asks from below take nothing from outside. DISABLED: tasks of the
    leaf are no victims."""

    DEFAULT = "default"
    FENCE = "fence"
    DISABLED = "disabled"


class QuotaTimer(StrEnum):
    """The effect of a further change on an armed quota timer: start the delay again, or shift the first start."""

    RESET = "reset"
    ADJUST = "adjust"


class GuaranteeMode(StrEnum):
    """The level to which preemption may raise a queue: until it reaches its guarantee (REACH), or never above it
    (STRICT) (law 4)."""

    REACH = "reach"
    STRICT = "strict"


class MonitorContract(StrEnum):
    """Tells whether an application that got a notice may offer other victims (preemption.md E.7)."""

    NEGOTIABLE = "negotiable"
    STRICT = "strict"


class GangScheduling(StrEnum):
    """The ways in which the placeholders of a gang are placed."""

    UNITS = "units"
    """Places the minimum of a gang in one decision or not at all."""
    UPSTREAM = "upstream"
    """Places each placeholder by itself, as YuniKorn does."""


class NodeSortPolicy(StrEnum):
    """The order of nodes: the least used (fair) or the fullest (binpacking) first."""

    FAIR = "fair"
    BINPACKING = "binpacking"


class PreemptWithin(StrEnum):
    """Tells for whom tasks of a leaf may have to leave in favour of other applications of the same leaf."""

    NONE = "none"
    """Lets nobody leave."""
    PRIORITY = "priority"
    """Lets tasks of lower priority leave."""


@dataclass(frozen=True, slots=True)
class QueueProperties:
    """The properties in force for one queue, after inheritance. Delays in nanoseconds; 0 means off where allowed.

    preempt_within_gap  by how much the priority of a victim in the same leaf has to be lower than that of the ask
    min_runtime     how long tasks run before preemption may take them
    min_runtime_most  the longest such time that a tag may ask for, never below ``min_runtime``; 0: tasks have none
    max_wait        after how long such a time keeps nobody's victims back any more; 0: it always does
    originator_max  what originators in a leaf may hold: a part of its max, or amounts; ``None``: not limited
    user_factor     how often a user may hold the capacity of a leaf; ``None``: not limited
    user_minimum    the least percentage of the capacity of a leaf that several users leave to each; 100: users do not
                    share it
    """

    sort_policy: SortPolicy = SortPolicy.FIFO
    sort_by_priority: bool = True
    priority_policy: PriorityPolicy = PriorityPolicy.DEFAULT
    priority_offset: int = 0
    preemption_policy: PreemptionPolicyKind = PreemptionPolicyKind.DEFAULT
    preemption_delay_ns: int = DEFAULT_PREEMPTION_DELAY_NS
    preempt_within: PreemptWithin = PreemptWithin.NONE
    preempt_within_gap: int = 1
    min_runtime_ns: int = 0
    min_runtime_most_ns: int = 0
    max_wait_ns: int = 0
    quota_preemption_delay_ns: int = 0
    quota_preemption_timer: QuotaTimer = QuotaTimer.RESET
    quota_preemption_miss: int = 0
    unschedulable_backoff: int = 0
    unschedulable_backoff_delay_ns: int = DEFAULT_BACKOFF_DELAY_NS
    reservation_timeout_ns: int = DEFAULT_RESERVATION_TIMEOUT_NS
    gang_gather_ns: int = DEFAULT_GANG_GATHER_NS
    gang_grace_ns: int = 0
    originator_max: Fraction | Resources | None = None
    user_factor: Fraction | None = None
    user_minimum: int = 100

    @property
    def limits_users(self) -> bool:
        """Tells whether the users of a leaf have shares of its capacity."""
        return self.user_factor is not None or self.user_minimum < 100


@dataclass(frozen=True, slots=True)
class FilterConfig:
    """The users and groups that a placement rule serves (config.md 8.3). A single entry may be a regular expression."""

    deny: bool = False
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementRuleConfig:
    """A placement rule of the configuration. ``name`` and ``value`` in lower case; ``parent`` is evaluated first and
    names the queue above."""

    name: str
    create: bool = False
    value: str = ""
    parent: PlacementRuleConfig | None = None
    filter: FilterConfig = FilterConfig()


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that preemption may take within a window, from one queue, from one application, or altogether.

    victims  number of allocations; 0: any number
    lost     by type, resource-seconds in base units that may be lost; an absent type is not limited
    """

    victims: int = 0
    lost: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class VictimBound:
    """The most victims that one kind of preemption may take; 0: any number.

    ask       in one attempt for one ask
    interval  within any window as long as the interval of the preemption cycle
    """

    ask: int = 0
    interval: int = 0


UNBOUNDED: Final = VictimBound()


@dataclass(frozen=True, slots=True)
class GovernorSettings:
    """Bounds against storms of preemption (preemption.md 0.2, K13). Times in nanoseconds.

    victims         how many may go for one ask, and within one interval of the cycle, by kind; any number if missing
    window_ns       over which the three budgets are counted, sliding
    cluster, queue, application  budgets of the partition, of each leaf and of each application that loses something
    cooldown_ns     how long a leaf is spared after a decision that preempted from it; 0: no pause
    loop_window_ns  over which queues that preempt each other in turns are watched; 0: never
    loop_returns    how often the direction may change within it
    shadow          kinds of preemption that are decided and recorded, but not carried out
    """

    victims: Mapping[str, VictimBound] = field(default_factory=lambda: MappingProxyType({}))
    window_ns: int = 600 * 10**9
    cluster: Budget = Budget(victims=20_000)
    queue: Budget = Budget(victims=10_000)
    application: Budget = Budget(victims=4_000)
    cooldown_ns: int = 0
    loop_window_ns: int = 300 * 10**9
    loop_returns: int = 3
    shadow: frozenset[str] = frozenset()

    @property
    def budgets(self) -> dict[str, Budget]:
        """The budgets by kind of scope."""
        return {"cluster": self.cluster, "queue": self.queue, "application": self.application}

    def bound_of(self, kind: str) -> VictimBound:
        """Returns how many victims the *kind* of preemption may take (preemption.md F7)."""
        return self.victims.get(kind, UNBOUNDED)


DEFAULT_GOVERNOR: Final = GovernorSettings()
