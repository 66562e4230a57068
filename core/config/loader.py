"""Reads the text of a configuration into a :class:`~kornel.core.config.model.Configuration`, or reports all its
problems.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from kornel.core.config.checks.idle_keys import warn_of_idle_keys
from kornel.core.config.checks.likely_mistakes import warn_of_likely_mistakes
from kornel.core.config.checks.limit_rules import check_limits
from kornel.core.config.checks.placement_rules import check_expressions, check_rules
from kornel.core.config.checks.priority_rules import check_priorities
from kornel.core.config.checks.resource_rules import check_resources, check_types
from kornel.core.config.checks.yunikorn_meanings import warn_of_differences
from kornel.core.config.keys import properties
from kornel.core.config.keys.declared import (
    Amounts,
    DeclaredLimit,
    DeclaredPartition,
    DeclaredQueue,
    DeclaredRule,
    DeclaredTemplate,
    read_partitions,
)
from kornel.core.config.model import (
    ChildTemplate,
    Configuration,
    LimitConfig,
    PartitionConfig,
    QueueConfig,
)
from kornel.core.config.text.fields import Field
from kornel.core.config.text.problems import ProblemLog
from kornel.core.config.text.yaml_reader import Document, MappingNode, ScalarNode, collections_of, read, shorten_text
from kornel.core.config.tree import build_tree
from kornel.core.domain.names import LONGEST_MANAGER, length_flaw, manager_name_flaw
from kornel.core.domain.settings import PlacementRuleConfig
from kornel.shared.default_configuration import DEFAULT_CONFIGURATION

_CHECKSUM_KEY: Final = "checksum: "
_CHECKSUM_LENGTH: Final = 64


def load(text: str, *, unavailable_resolvers: Mapping[str, str] = MappingProxyType({})) -> Configuration:
    """Returns *text* as a configuration; empty text stands for ``DEFAULT_CONFIGURATION``.

    *unavailable_resolvers*: types of resolver that are refused because they do not work on this machine, with the
    reason. A replay of recorded calls needs no resolver, so the engine refuses none.

    Raises only ConfigError, whatever the text is; the error has every problem found. Warnings alone do not cause it;
    they are in the result.
    """
    text = text or DEFAULT_CONFIGURATION
    log = ProblemLog()
    reading = interpret_document(text, read(text, log), log, unavailable_resolvers)
    let_go(reading)
    return reading.configuration


@dataclass(slots=True)
class Reading:
    """A configuration, and everything from which it was made."""

    configuration: Configuration
    top: Field
    roots: list[DeclaredQueue]


def let_go(reading: Reading, queues: list[DeclaredQueue] | None = None) -> None:
    """Free what a configuration was made from. *queues*: the queues that nothing else refers to, if these are not all.

    Parents come before their children. Freeing a large tree in one step would block every other thread until all of it
    is gone.
    """
    pieces: list[object] = []
    if queues is None:
        pieces += [queue for root in reading.roots for queue in root.walk_queues()]
        pieces += collections_of(reading.top.node)
    else:
        pieces += queues
        pieces += [queue.at.node for queue in queues]
        queues.clear()
    reading.roots.clear()
    reading.top.node = None
    for at in range(len(pieces)):
        pieces[at] = None


def interpret_document(
    text: str, document: Document, log: ProblemLog, unavailable_resolvers: Mapping[str, str]
) -> Reading:
    """Returns the configuration in *document*, read from *text* with *log*. Raises ConfigError."""
    top = Field(document.root, 1, 1, log)
    try:
        return _interpret_root(text, top, log, unavailable_resolvers)
    finally:
        # Remarks refer to their fields, and fields to the log. Such a cycle would never be freed
        # (core/service/machine/garbage.py).
        log.remarks.clear()


def _interpret_root(text: str, top: Field, log: ProblemLog, unavailable_resolvers: Mapping[str, str]) -> Reading:
    kind = top.entries().get("kind") if isinstance(top.node, MappingNode) else None
    if kind is not None and isinstance(kind.node, ScalarNode) and kind.node.text == "ConfigMap":
        kind.error("this is a whole ConfigMap", "only the text in it: what is under data, queues.yaml")
        log.raise_if_errors()
    declared = read_partitions(top, unavailable_resolvers)
    if not declared and not log.has_errors:
        top.error("no partition is configured", "partitions: a list of at least one partition")
    _check_partition_names(declared)
    trees = [(partition, build_tree(partition)) for partition in declared]
    for partition, root in trees:
        check_limits(root)
        check_resources(root, owed=partition.preemption.enabled)
        check_types(partition, root)
        check_priorities(root)
        check_rules(partition.rules, root)
        warn_of_idle_keys(partition, root)
        warn_of_likely_mistakes(root)
        warn_of_differences(partition, root)
    check_expressions(rule for partition in declared for rule in partition.rules)
    log.raise_if_errors()
    partitions = tuple(_make_partition(partition, root) for partition, root in trees)
    configuration = Configuration(partitions, checksum_of(text), log.in_order())
    return Reading(configuration, top, [root for _, root in trees])


def checksum_of(text: str) -> str:
    """Returns the SHA-256 of *text* in upper-case hex, computed without a checksum that the text contains (rest.md
    4.9).

    It leaves out the first ``checksum: `` and up to 64 characters after it, as far as the next ``checksum: `` or the
    newlines at the end of the text.
    """
    start = text.find(_CHECKSUM_KEY)
    if start >= 0:
        value = start + len(_CHECKSUM_KEY)
        following = text.find(_CHECKSUM_KEY, value)
        end = following if following >= 0 else len(text)
        carried = text[value:end].rstrip("\n")[:_CHECKSUM_LENGTH]
        text = text[:start] + text[value + len(carried) :]
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest().upper()


def _check_partition_names(partitions: list[DeclaredPartition]) -> None:
    seen: dict[str, int] = {}
    for partition in partitions:
        if len(partition.name) > LONGEST_MANAGER:
            flaw = length_flaw("a partition's name", len(partition.name), LONGEST_MANAGER)
            partition.name_field.error(flaw, "a shorter one")
        elif flaw := manager_name_flaw("a partition's name", partition.name):
            partition.name_field.error(flaw, "another name")
        key = partition.name.lower()
        if key in seen:
            partition.name_field.error(
                f"partition {shorten_text(partition.name)} exists already, on line {seen[key]}", "a name of its own"
            )
        seen.setdefault(key, partition.name_field.line)


def _make_partition(declared: DeclaredPartition, root: DeclaredQueue) -> PartitionConfig:
    node_sort = declared.node_sort
    return PartitionConfig(
        name=declared.name,
        root=_make_queue(root, None, properties.Resolver()),
        placement_rules=tuple(_make_rule(rule) for rule in declared.rules),
        preemption=declared.preemption,
        node_sort=replace(node_sort, weights=MappingProxyType(dict(node_sort.weights))),
        resolver=declared.resolver,
        topology=declared.topology,
        gang_scheduling=declared.gang_scheduling,
    )


def _make_queue(
    declared: DeclaredQueue, template_above: ChildTemplate | None, resolve: properties.Resolver
) -> QueueConfig:
    if declared.made is not None:
        effective, template, queue = declared.made
        if effective == declared.effective and template == template_above:
            return queue
    queue = _new_queue(declared, template_above, resolve)
    declared.made = declared.effective, template_above, queue
    return queue


def _new_queue(
    declared: DeclaredQueue, template_above: ChildTemplate | None, resolve: properties.Resolver
) -> QueueConfig:
    own_template = _make_template(declared.template) if declared.template is not None and declared.parent else None
    template = own_template or template_above
    passed_on = properties.inherited_properties(declared.effective)
    # Dynamic queues never enforce their max by preemption (preemption.md D.1).
    passed_on.pop(properties.QUOTA_DELAY, None)
    made_with = {**passed_on, **(template.properties if template is not None else {})}
    return QueueConfig(
        name=declared.name,
        parent=declared.parent,
        guaranteed=_guaranteed_of(declared.guaranteed),
        max=_max_of(declared.max),
        max_applications=declared.max_applications,
        properties=MappingProxyType(declared.properties),
        effective=resolve(declared.effective, leaf=not declared.parent),
        effective_raw=MappingProxyType(declared.effective),
        dynamic_parent=resolve(passed_on, leaf=False),
        dynamic_leaf=resolve(made_with, leaf=True),
        submit_acl=declared.submit_acl,
        admin_acl=declared.admin_acl,
        child_template=own_template,
        dynamic_template=template,
        limits=tuple(_make_limit(limit) for limit in declared.limits),
        children=tuple(_make_queue(child, template, resolve) for child in declared.children),
    )


def _make_template(declared: DeclaredTemplate) -> ChildTemplate:
    return ChildTemplate(
        max_applications=declared.max_applications,
        properties=MappingProxyType(declared.properties),
        guaranteed=_guaranteed_of(declared.guaranteed),
        max=_max_of(declared.max),
    )


def _make_limit(declared: DeclaredLimit) -> LimitConfig:
    return LimitConfig(
        description=declared.description,
        users=tuple(name for name, _ in declared.users),
        groups=tuple(name for name, _ in declared.groups),
        max_applications=declared.max_applications,
        max_resources=_max_of(declared.max_resources),
    )


def _make_rule(declared: DeclaredRule) -> PlacementRuleConfig:
    return PlacementRuleConfig(
        name=declared.name,
        create=declared.create,
        value=declared.value,
        parent=_make_rule(declared.parent) if declared.parent is not None else None,
        filter=declared.filter,
    )


def _guaranteed_of(amounts: Amounts | None) -> Mapping[str, int] | None:
    """Returns the guarantee that is written, without types of 0, which count as not guaranteed (preemption.md 0.1)."""
    above_zero = {} if amounts is None else {name: amount for name, amount in amounts.values.items() if amount}
    return MappingProxyType(above_zero) if above_zero else None


def _max_of(amounts: Amounts | None) -> Mapping[str, int] | None:
    """Returns the max that is written. A max of 0 is kept: the type is not available (B14). An empty mapping limits
    nothing."""
    return MappingProxyType(dict(amounts.values)) if amounts is not None and amounts.values else None
