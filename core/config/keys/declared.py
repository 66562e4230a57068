"""Reads the keys of a configuration, and checks each value as far as that is possible by itself.

Values keep their places in the text, for the rules that compare keys with each other. Rules: config.md 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kornel.core.config.keys import properties
from kornel.core.config.keys.access import parse_access, parse_administrators
from kornel.core.config.keys.governor import read_governor
from kornel.core.config.keys.kind_sections import SECTIONS, read_sections
from kornel.core.config.keys.topology import read_topology
from kornel.core.config.model import ChildTemplate, NodeSortConfig, PreemptionConfig, QueueConfig
from kornel.core.config.text.fields import Field
from kornel.core.config.text.problems import ProblemLog, Remark
from kornel.core.config.text.yaml_reader import FoldedNode, shorten_text
from kornel.core.domain.access import NOBODY, AccessList
from kornel.core.domain.preemption_kinds import KINDS, NAMES
from kornel.core.domain.settings import FilterConfig, GangScheduling, GuaranteeMode, NodeSortPolicy
from kornel.core.domain.topology import TopologyLevel
from kornel.shared.quantities import parse_duration, parse_quantity

_PARTITION_KEYS: Final = (
    "name", "queues", "placementrules", "limits", "preemption", "nodesortpolicy", "usergroupresolver", "gang",
    "topology",
)  # fmt: skip
_QUEUE_KEYS: Final = (
    "name", "parent", "queues", "resources", "maxapplications", "properties", "adminacl", "submitacl",
    "childtemplate", "limits",
)  # fmt: skip
_BELOW_QUEUE: Final = {
    "guaranteed": "resources",
    "max": "resources",
    **dict.fromkeys(properties.KEYS, "properties"),
}
"""The keys that are often written straight under a queue, each with the key under which it belongs."""
_PREEMPTION_KEYS: Final = (
    "enabled", "quotapreemptionenabled", "guaranteemode", *SECTIONS, "coexist", "policies", "cycle", "cost",
    "governor", "victim",
)  # fmt: skip
_VICTIM_ORDERS: Final = tuple(word for kind in KINDS for word in kind.orders)
_RESOLVERS: Final = ("os", "ldap", "test")


@dataclass(slots=True)
class Amounts:
    """Quantities by resource type, each with its place. ``complete`` tells whether all of them could be read."""

    at: Field
    values: dict[str, int]
    fields: dict[str, Field]
    complete: bool


@dataclass(slots=True)
class DeclaredLimit:
    """A limit as written. ``complete`` tells whether all of its keys could be read."""

    at: Field
    description: str
    users: list[tuple[str, Field]]
    groups: list[tuple[str, Field]]
    max_applications: int
    max_applications_field: Field
    max_resources: Amounts | None
    complete: bool

    @property
    def values(self) -> object:
        """Returns the values in which two limits must agree to be the same (V10)."""
        resources = None if self.max_resources is None else self.max_resources.values
        names = [text for text, _ in self.users], [text for text, _ in self.groups]
        return self.description, *names, self.max_applications, resources

    @property
    def label(self) -> str:
        """The limit's place for messages."""
        return f"limit {shorten_text(self.description)}" if self.description else "limit without description"


@dataclass(slots=True)
class DeclaredTemplate:
    """A child template as written."""

    at: Field
    max_applications: int
    properties: dict[str, str]
    guaranteed: Amounts | None
    max: Amounts | None


@dataclass(slots=True)
class DeclaredQueue:
    """A queue as written. ``written_name`` keeps the case of the text.

    ``path`` and ``effective`` are set when the tree is built (:mod:`kornel.core.config.tree`). ``own_delay_only`` tells
    whether its delay is written under ``resources``, so that its children do not inherit it. ``remarks`` are the
    warnings given while it was read, without those of its children. ``made`` is the configured queue last made from it,
    with the effective properties and the inherited template from which it was made.
    """

    at: Field
    name: str
    name_field: Field
    parent: bool
    written_name: str = ""
    guaranteed: Amounts | None = None
    max: Amounts | None = None
    max_applications: int = 0
    max_applications_field: Field | None = None
    properties: dict[str, str] = field(default_factory=dict)
    property_fields: dict[str, Field] = field(default_factory=dict)
    own_delay_only: bool = False
    submit_acl: AccessList = NOBODY
    admin_acl: AccessList = NOBODY
    template: DeclaredTemplate | None = None
    limits: list[DeclaredLimit] = field(default_factory=list)
    limits_field: Field | None = None
    children: list[DeclaredQueue] = field(default_factory=list)
    children_field: Field | None = None
    remarks: list[Remark] = field(default_factory=list)
    path: str = ""
    effective: dict[str, str] = field(default_factory=dict)
    made: tuple[dict[str, str], ChildTemplate | None, QueueConfig] | None = None

    @property
    def is_root(self) -> bool:
        """Tells whether the queue is the root."""
        return self.path == "root"

    def walk_queues(self) -> Iterator[DeclaredQueue]:
        """Yields this queue and all queues below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk_queues()


@dataclass(slots=True)
class DeclaredRule:
    """A placement rule as written."""

    at: Field
    name: str
    name_field: Field
    create: bool
    value: str
    value_field: Field
    parent: DeclaredRule | None
    filter: FilterConfig
    filter_type: str
    filter_type_field: Field
    filter_users: list[tuple[str, Field]]
    filter_groups: list[tuple[str, Field]]


@dataclass(slots=True)
class DeclaredPartition:
    """A partition as written."""

    at: Field
    name: str
    name_field: Field
    queues_field: Field
    queues: list[DeclaredQueue]
    rules: list[DeclaredRule]
    limits: list[DeclaredLimit]
    limits_field: Field
    preemption: PreemptionConfig
    node_sort: NodeSortConfig
    resolver: str
    topology: tuple[TopologyLevel, ...]
    gang_scheduling: GangScheduling


def read_partitions(top: Field, unavailable_resolvers: Mapping[str, str]) -> list[DeclaredPartition]:
    """Returns the partitions of a document; problems go to the log of *top*."""
    keys = top.mapping(("partitions", "checksum"))
    keys["checksum"].text()
    reader = _Reader(top.log, unavailable_resolvers)
    return [reader.partition(item) for item in keys["partitions"].items()]


class _Reader:
    def __init__(self, log: ProblemLog, unavailable_resolvers: Mapping[str, str]) -> None:
        self._log = log
        self._unavailable_resolvers = unavailable_resolvers

    def partition(self, at: Field) -> DeclaredPartition:
        keys = at.mapping(_PARTITION_KEYS)
        name = keys["name"].text() or "default"
        return DeclaredPartition(
            at=at,
            name="default" if name.lower() == "default" else name,
            name_field=keys["name"],
            queues_field=keys["queues"],
            queues=[self.queue(item) for item in keys["queues"].items()],
            rules=[self.rule(item) for item in keys["placementrules"].items()],
            limits=self.limits(keys["limits"]),
            limits_field=keys["limits"],
            preemption=self.preemption(keys["preemption"]),
            node_sort=self.node_sort(keys["nodesortpolicy"]),
            resolver=self.resolver(keys["usergroupresolver"]),
            topology=read_topology(keys["topology"]),
            gang_scheduling=self.gang_scheduling(keys["gang"]),
        )

    def queue(self, at: Field) -> DeclaredQueue:
        if not at.given:
            at.error("an empty entry", "a queue")
        keys = at.mapping(_QUEUE_KEYS, _BELOW_QUEUE)
        children = [self.child(item) for item in keys["queues"].items()]
        remarks_before = len(self._log.remarks)
        resources = keys["resources"].mapping(("guaranteed", "max", properties.QUOTA_DELAY))
        own = keys["properties"].text_map()
        own_delay_only = self.quota_delay(own, resources[properties.QUOTA_DELAY])
        properties.check_properties(own)
        name = keys["name"].text()
        max_applications = keys["maxapplications"].unsigned()
        queue = DeclaredQueue(
            at=at,
            name=name.lower(),
            written_name=name,
            name_field=keys["name"] if keys["name"].given else at,
            parent=keys["parent"].boolean() or bool(children),
            guaranteed=_read_amounts(resources["guaranteed"]),
            max=_read_amounts(resources["max"]),
            max_applications=max_applications,
            max_applications_field=keys["maxapplications"],
            properties={key: text for key, (text, _) in own.items()},
            property_fields={key: found for key, (_, found) in own.items()},
            own_delay_only=own_delay_only,
            submit_acl=parse_access(keys["submitacl"]),
            admin_acl=parse_administrators(keys["adminacl"]),
            template=self.template(keys["childtemplate"]),
            limits=self.limits(keys["limits"]),
            limits_field=keys["limits"],
            children=children,
            children_field=keys["queues"],
        )
        queue.remarks = self._log.remarks[remarks_before:]
        return queue

    def child(self, at: Field) -> DeclaredQueue:
        """Reads a queue within another one. Only such a queue may have been left out of the text, because it is known
        already."""
        if not isinstance(at.node, FoldedNode) or not isinstance(at.node.content, DeclaredQueue):
            return self.queue(at)
        queue = at.node.content
        queue.at.above, queue.at.key = at.above, at.key
        queue.at.moved = at.row - queue.at.row
        self.repeat(queue)
        return queue

    def repeat(self, queue: DeclaredQueue) -> None:
        """Repeats the warnings of *queue*, at its present place in the text, in the order of the first reading."""
        for child in queue.children:
            self.repeat(child)
        for remark in queue.remarks:
            self._log.add_remark(remark)

    def quota_delay(self, own: dict[str, tuple[str, Field]], resource: Field) -> bool:
        """Sets the property for a delay that is written under ``resources``, unless the property is given as well
        (V35). Returns whether it did.

        A delay written there belongs to the max of this queue, and concerns no other queue.
        """
        text = resource.text()
        if not resource.given:
            return False
        if properties.quota_delay_ns(text):
            resource.warning(
                "YuniKorn refuses this key under resources; here it counts as the property of that name, for this "
                "queue alone"
            )
        if properties.QUOTA_DELAY not in own:
            own[properties.QUOTA_DELAY] = (text, resource)
            return True
        other = own[properties.QUOTA_DELAY][0]
        if properties.quota_delay_ns(text) != properties.quota_delay_ns(other):
            message = (
                f"{properties.QUOTA_DELAY} is {shorten_text(text)} here and {shorten_text(other)} under properties"
            )
            resource.error(message, "one value, or the same one in both places")
        return False

    def template(self, at: Field) -> DeclaredTemplate | None:
        """Returns the child template; ``None`` if there is none or nothing is set in it."""
        if not at.given:
            return None
        keys = at.mapping(("maxapplications", "properties", "resources"))
        resources = keys["resources"].mapping(("guaranteed", "max", properties.QUOTA_DELAY))
        own = {key: found for key, found in keys["properties"].text_map().items() if key and found[0]}
        ignored = [resources[properties.QUOTA_DELAY]] if resources[properties.QUOTA_DELAY].given else []
        if properties.QUOTA_DELAY in own:
            ignored.append(own.pop(properties.QUOTA_DELAY)[1])
        for delay in ignored:
            delay.warning("ignored: quotas of dynamic queues are not enforced by preemption")
        properties.check_properties(own)
        template = DeclaredTemplate(
            at=at,
            max_applications=keys["maxapplications"].unsigned(),
            properties={key: text for key, (text, _) in own.items()},
            guaranteed=_read_amounts(resources["guaranteed"]),
            max=_read_amounts(resources["max"]),
        )
        amounts = [a for a in (template.guaranteed, template.max) if a is not None and a.values]
        return template if template.max_applications or template.properties or amounts else None

    def limits(self, at: Field) -> list[DeclaredLimit]:
        return [self.limit(item) for item in at.items()]

    def limit(self, at: Field) -> DeclaredLimit:
        keys = at.mapping(("limit", "users", "groups", "maxapplications", "maxresources"))
        return DeclaredLimit(
            at=at,
            description=keys["limit"].text(),
            users=keys["users"].texts(),
            groups=keys["groups"].texts(),
            max_applications=keys["maxapplications"].unsigned(),
            max_applications_field=keys["maxapplications"],
            max_resources=_read_amounts(keys["maxresources"]),
            complete=not any(found.unreadable for found in keys.values()),
        )

    def rule(self, at: Field) -> DeclaredRule:
        keys = at.mapping(("name", "create", "value", "parent", "filter"))
        filtered = keys["filter"].mapping(("type", "users", "groups"))
        users, groups = filtered["users"].texts(), filtered["groups"].texts()
        written = filtered["type"].text()
        kind = written.lower()
        if kind not in ("", "allow", "deny"):
            filtered["type"].error(f"filter type {shorten_text(kind)} is not known", "allow or deny")
        return DeclaredRule(
            at=at,
            name=keys["name"].text().lower(),
            name_field=keys["name"] if keys["name"].given else at,
            create=keys["create"].boolean(),
            value=keys["value"].text().lower(),
            value_field=keys["value"] if keys["value"].given else at,
            parent=self.rule(keys["parent"]) if keys["parent"].given else None,
            filter=FilterConfig(
                deny=kind == "deny",
                users=tuple(text for text, _ in users),
                groups=tuple(text for text, _ in groups),
            ),
            filter_type=written,
            filter_type_field=filtered["type"],
            filter_users=users,
            filter_groups=groups,
        )

    def preemption(self, at: Field) -> PreemptionConfig:
        keys = at.mapping(_PREEMPTION_KEYS)
        cycle = keys["cycle"].mapping(("interval_ms", "limit", "batch"))
        defaults = PreemptionConfig()
        policies = _read_policies(keys["policies"])
        sections = read_sections(keys)
        limit = cycle["limit"].number(defaults.cycle_limit, most=1)
        enabled: dict[str, bool] = {}
        for kind in KINDS:
            switch = kind.switch
            if kind.enables:
                enabled[kind.enables] = keys[switch].boolean() and kind.name in policies
            if not switch or kind.name in policies:
                continue
            found = keys[kind.name if kind.section else switch]
            switched_on = sections.get(kind.name, {}).get(switch) if kind.section else found.given and found.boolean()
            if switched_on:
                found.warning(f"no effect: preemption.policies does not list {kind.name}")
        if limit == 0:
            cycle["limit"].warning("nobody preempts for a guarantee while the limit is 0")
        return PreemptionConfig(
            enabled=keys["enabled"].boolean(default=True),
            guarantee_mode=GuaranteeMode(keys["guaranteemode"].choice(GuaranteeMode, GuaranteeMode.REACH)),
            coexist=keys["coexist"].boolean(),
            policies=policies,
            cycle_interval_ns=cycle["interval_ms"].unsigned(1000, least=1) * 10**6,
            cycle_limit=limit,
            cycle_batch=cycle["batch"].unsigned(defaults.cycle_batch, least=1),
            cost=keys["cost"].choice(_VICTIM_ORDERS, defaults.cost),
            sections=sections,
            governor=read_governor(keys["governor"]),
            victim_timeout_ns=_victim_timeout(keys["victim"], defaults.victim_timeout_ns),
            **enabled,
        )

    def node_sort(self, at: Field) -> NodeSortConfig:
        keys = at.mapping(("type", "resourceweights"))
        policy = NodeSortPolicy(keys["type"].choice(NodeSortPolicy, NodeSortPolicy.FAIR))
        weights = {name: found.number() for name, found in keys["resourceweights"].entries().items()}
        return NodeSortConfig(policy, weights) if weights else NodeSortConfig(policy)

    def gang_scheduling(self, at: Field) -> GangScheduling:
        keys = at.mapping(("scheduling",))
        return GangScheduling(keys["scheduling"].choice(GangScheduling, GangScheduling.UNITS))

    def resolver(self, at: Field) -> str:
        keys = at.mapping(("type",))
        kind = keys["type"].choice(_RESOLVERS, "")
        if kind in self._unavailable_resolvers:
            keys["type"].error(f"resolver {kind!r} does not work here: {self._unavailable_resolvers[kind]}")
        return kind


def _read_amounts(at: Field) -> Amounts | None:
    """Returns amounts by type; ``None`` if the key is absent or null, because an empty mapping has another meaning (V4,
    V18)."""
    if not at.given:
        return None
    amounts = Amounts(at, {}, {}, complete=True)
    for name, (text, found) in at.text_map().items():
        try:
            amounts.values[name] = parse_quantity(name, text)
        except ValueError as error:
            expected = "digits, then no suffix or one of k M G T P E Ki Mi Gi Ti Pi Ei"
            found.error(f"{name or 'resource'}: {error}", expected + (" m" if name == "vcore" else ""))
            amounts.complete = False
            continue
        amounts.fields[name] = found
    return amounts


def _read_policies(at: Field) -> tuple[str, ...]:
    if not at.given:
        return NAMES
    names: list[str] = []
    for name, found in at.texts():
        if name not in NAMES:
            found.error(f"preemption policy {shorten_text(name)} is not known", f"one of {', '.join(NAMES)}")
        elif name in names:
            found.error(f"preemption policy {name!r} is listed twice", "each policy once")
        else:
            names.append(name)
    return tuple(names)


def _victim_timeout(at: Field, default_ns: int) -> int:
    """Returns ``preemption.victim.timeout``, a positive duration."""
    found = at.mapping(("timeout",))["timeout"]
    if not found.given:
        return default_ns
    try:
        timeout_ns = parse_duration(found.text())
    except ValueError as error:
        found.error(str(error), "a duration such as 5m")
        return default_ns
    if timeout_ns <= 0:
        found.error(f"{shorten_text(found.text())} is not above 0", "a duration such as 5m")
        return default_ns
    return timeout_ns
