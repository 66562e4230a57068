"""Defines a valid configuration. All values are immutable and have been checked, so readers need not check them again.

Amounts are in base units (``vcore`` in thousandths, ``memory`` in bytes), delays in nanoseconds. Rules: config.md 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kornel.core.config.text.problems import Problem
from kornel.core.domain.access import AccessList
from kornel.core.domain.settings import (
    DEFAULT_GOVERNOR,
    GangScheduling,
    GovernorSettings,
    GuaranteeMode,
    NodeSortPolicy,
    PlacementRuleConfig,
    QueueProperties,
)
from kornel.core.domain.topology import TopologyLevel


@dataclass(frozen=True, slots=True)
class LimitConfig:
    """A limit, which applies to each listed user and group by itself.

    max_applications  0: not limited
    max_resources     ``None``: not limited; an absent type is not limited, a type with 0 is not available
    """

    description: str
    users: tuple[str, ...]
    groups: tuple[str, ...]
    max_applications: int
    max_resources: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class ChildTemplate:
    """The settings that a dynamic leaf is created with. Fields as in :class:`QueueConfig`."""

    max_applications: int
    properties: Mapping[str, str]
    guaranteed: Mapping[str, int] | None
    max: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One queue of the configuration.

    name               lower case, without its parents
    parent             tells whether it holds queues (even if there are none yet) and not applications
    guaranteed         amounts above 0; an absent type has no guarantee. ``None``: no guarantee at all
    max                an absent type is unlimited, a type with 0 is not available. ``None``: unlimited. Root: ``None``
    max_applications   running at once in the subtree; 0: unlimited
    properties         as written for this queue, including a quota delay given under ``resources``
    effective_raw      ``properties`` over what the parent passes on
    effective          ``effective_raw`` as values
    dynamic_parent     the properties of a dynamic parent anywhere below this parent; not used on a leaf
    dynamic_leaf       those of a dynamic leaf, including the template's; not used on a leaf
    child_template     the queue's own; ``None`` if it has none
    dynamic_template   the template of dynamic leaves below this parent: the nearest one up the tree
    """

    name: str
    parent: bool
    guaranteed: Mapping[str, int] | None
    max: Mapping[str, int] | None
    max_applications: int
    properties: Mapping[str, str]
    effective: QueueProperties
    effective_raw: Mapping[str, str]
    dynamic_parent: QueueProperties
    dynamic_leaf: QueueProperties
    submit_acl: AccessList
    admin_acl: AccessList
    child_template: ChildTemplate | None
    dynamic_template: ChildTemplate | None
    limits: tuple[LimitConfig, ...]
    children: tuple[QueueConfig, ...]


@dataclass(frozen=True, slots=True)
class PreemptionConfig:
    """The settings of preemption in one partition (preemption.md 0.2).

    enabled         guarantee-driven preemption, in the allocation path and in its cycle; not the other kinds
    policies        names of kinds of preemption, in the order in which they run
    quota_enabled   lowered maxima are enforced: switched on, and ``policies`` lists it
    cycle_limit     the largest part of the cluster, from 0 to 1, with which preemption may serve asks within one
    interval cycle_batch     the number of asks that a round tries at a time, beginning with queues that hold least
    sections        the settings in the kinds' own sections, with defaults; a kind without a section is missing governor
    the bounds against storms; they never apply to preemption on required nodes victim_timeout_ns  how long after its
    release was asked for a victim counts as stuck (K14)
    """

    enabled: bool = True
    quota_enabled: bool = False
    guarantee_mode: GuaranteeMode = GuaranteeMode.REACH
    coexist: bool = False
    policies: tuple[str, ...] = ()
    cycle_interval_ns: int = 10**9
    cycle_limit: float = 1.0
    cycle_batch: int = 10
    cost: str = "default"
    sections: Mapping[str, Mapping[str, bool | int | float | str]] = field(default_factory=lambda: MappingProxyType({}))
    governor: GovernorSettings = DEFAULT_GOVERNOR
    victim_timeout_ns: int = 300 * 10**9


@dataclass(frozen=True, slots=True)
class NodeSortConfig:
    """The order of nodes. A type without a weight has weight 0."""

    policy: NodeSortPolicy = NodeSortPolicy.FAIR
    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"vcore": 1.0, "memory": 1.0}))


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """One partition; ``root`` is always called ``root``. Without placement rules, ``provided`` alone applies.

    topology  the levels of the topology, the outermost first; empty: there are no domains
    """

    name: str
    root: QueueConfig
    placement_rules: tuple[PlacementRuleConfig, ...] = ()
    preemption: PreemptionConfig = PreemptionConfig()
    node_sort: NodeSortConfig = NodeSortConfig()
    resolver: str = ""
    topology: tuple[TopologyLevel, ...] = ()
    gang_scheduling: GangScheduling = GangScheduling.UNITS


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration: at least one partition, in the order of the text. ``warnings``: warnings about settings whose
    effect may not be the expected one."""

    partitions: tuple[PartitionConfig, ...]
    checksum: str
    warnings: tuple[Problem, ...] = ()
