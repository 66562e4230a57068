"""Finds the differences between queues before and after an update, as texts for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, Final

from kornel.core.config.keys import properties
from kornel.core.config.model import LimitConfig, PartitionConfig, QueueConfig
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import PlacementRuleConfig
from kornel.core.model.queues import DynamicTerms, Queue
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.configuration.impact import QueueChange, QueueChangeKind, SettingChange
from kornel.core.telling.configuration.partition_moment import QueueMoment

_PROPERTIES: Final[Mapping[str, str]] = {
    "sort_policy": properties.SORT_POLICY,
    "sort_by_priority": properties.SORT_BY_PRIORITY,
    "priority_policy": properties.PRIORITY_POLICY,
    "priority_offset": properties.PRIORITY_OFFSET,
    "preemption_policy": properties.PREEMPTION_POLICY,
    "min_runtime": properties.MIN_RUNTIME,
    "min_runtime_most": properties.MIN_RUNTIME_MOST,
    "max_wait": properties.MAX_WAIT,
    "preemption_delay": properties.PREEMPTION_DELAY,
    "preempt_within": properties.PREEMPT_WITHIN,
    "preempt_within_gap": properties.PREEMPT_WITHIN_GAP,
    "quota_preemption_delay": properties.QUOTA_DELAY,
    "quota_preemption_timer": properties.QUOTA_TIMER,
    "quota_preemption_miss": properties.QUOTA_MISS,
    "unschedulable_backoff": properties.BACKOFF,
    "unschedulable_backoff_delay": properties.BACKOFF_DELAY,
    "gang_gather": properties.GANG_GATHER,
    "gang_grace": properties.GANG_GRACE,
    "originator_max": properties.ORIGINATOR_MAX,
    "user_factor": properties.USER_FACTOR,
    "user_minimum": properties.USER_MINIMUM,
}
_PREEMPTION: Final[Mapping[str, str]] = {
    "quota_enabled": "quotapreemptionenabled",
    "guarantee_mode": "guaranteemode",
    "cycle_interval": "cycle.interval",
    "cycle_limit": "cycle.limit",
    "cycle_batch": "cycle.batch",
    "victim_timeout": "victim.timeout",
    "sections": "",
}
"""The keys in the text of fields with other names. The sections of kinds are at the same level as the other keys."""


def added_queues(partition: str, paths: Iterable[str]) -> list[QueueChange]:
    """Returns the changes of an update in which all of *paths* are new."""
    return [QueueChange(partition, path, QueueChangeKind.ADDED, 0, ()) for path in paths]


def queue_changes(
    state: PartitionState,
    before: Mapping[str, QueueMoment],
    old: Mapping[str, QueueConfig],
    new: Mapping[str, QueueConfig],
) -> Iterator[QueueChange]:
    """Yields the changes of every queue of *state* that differs from what it was *before*; *old* and *new*: the listed
    queues by path."""
    for path, queue in state.queues.items():
        was = before.get(path)
        if was is None:
            yield QueueChange(state.name, path, QueueChangeKind.ADDED, 0, ())
            continue
        settings = [*_find_differences(state, was, queue), *_limit_differences(old.get(path), new.get(path))]
        kind = _kind_of(was, queue)
        if kind is not QueueChangeKind.CHANGED or settings:
            yield QueueChange(state.name, path, kind, _applications(queue), tuple(settings))
    for path in before:
        if path not in state.queues:
            yield QueueChange(state.name, path, QueueChangeKind.REMOVED, 0, ())


def partition_settings(old: PartitionConfig, new: PartitionConfig) -> tuple[SettingChange, ...]:
    """Returns what differs outside the queues."""
    found = list(_compare_fields("preemption", old.preemption, new.preemption, _PREEMPTION))
    if old.placement_rules != new.placement_rules:
        before_, after_ = (" ".join(_write_rule(rule) for rule in config.placement_rules) for config in (old, new))
        found.append(SettingChange("placementrules", before_, after_))
    if old.node_sort != new.node_sort:
        before_, after_ = (f"{c.node_sort.policy} {_write_value(c.node_sort.weights)}" for c in (old, new))
        found.append(SettingChange("nodesortpolicy", before_, after_))
    if old.resolver != new.resolver:
        found.append(SettingChange("usergroupresolver", old.resolver, new.resolver))
    if old.topology != new.topology:
        before_, after_ = (" ".join(level.attribute for level in config.topology) for config in (old, new))
        found.append(SettingChange("topology", before_, after_))
    if old.gang_scheduling is not new.gang_scheduling:
        found.append(SettingChange("gang.scheduling", str(old.gang_scheduling), str(new.gang_scheduling)))
    return tuple(found)


def _kind_of(was: QueueMoment, now: Queue) -> QueueChangeKind:
    if now.draining and not was.draining:
        empty = _applications(now) == 0
        return QueueChangeKind.REMOVED if empty else QueueChangeKind.DRAINED
    if was.draining and not now.draining:
        return QueueChangeKind.REACTIVATED
    if was.leaf != now.leaf:
        return QueueChangeKind.REPLACED
    if now.managed and not was.managed:
        return QueueChangeKind.ADOPTED
    return QueueChangeKind.CHANGED


def _applications(queue: Queue) -> int:
    return len(queue.applications) + sum(_applications(child) for child in queue.children.values())


def _find_differences(state: PartitionState, was: QueueMoment, now: Queue) -> Iterator[SettingChange]:
    names = state.types.names
    for label, before, after in (("guaranteed", was.guaranteed, now.guaranteed), ("max", was.max, now.max)):
        for t in sorted(before.keys() | after.keys(), key=lambda t: names[t]):
            if before.get(t) != after.get(t):
                yield SettingChange(f"{label}.{names[t]}", _write_value(before.get(t)), _write_value(after.get(t)))
    if was.max_applications != now.max_applications:
        yield SettingChange("maxapplications", str(was.max_applications), str(now.max_applications))
    if was.submit_acl != now.submit_acl:
        yield SettingChange("submitacl", was.submit_acl.text, now.submit_acl.text)
    if was.admin_acl != now.admin_acl:
        yield SettingChange("adminacl", was.admin_acl.text, now.admin_acl.text)
    yield from _compare_fields("properties", was.properties, now.properties, _PROPERTIES)
    if was.dynamic_terms != now.dynamic_terms:
        yield SettingChange(
            "childtemplate", _write_template(state, was.dynamic_terms), _write_template(state, now.dynamic_terms)
        )


def _compare_fields(label: str, was: Any, now: Any, keys: Mapping[str, str]) -> Iterator[SettingChange]:
    """Yields the differences between two objects of the same dataclass; times, which are in nanoseconds, are shown in
    seconds."""
    for item in fields(now):
        before, after = getattr(was, item.name), getattr(now, item.name)
        name = item.name.removesuffix("_ns")
        path = f"{label}.{keys.get(name, name)}".removesuffix(".")
        if before == after:
            continue
        if is_dataclass(after):
            yield from _compare_fields(path, before, after, {})
        elif _has_entries(after) and any(map(_has_parts, (*before.values(), *after.values()))):
            yield from _compare_entries(path, before, after)
        elif name != item.name:
            yield SettingChange(path, _write_seconds(before), _write_seconds(after))
        else:
            yield SettingChange(path, _write_value(before), _write_value(after))


def _has_entries(value: Any) -> bool:
    return isinstance(value, Mapping) and not isinstance(value, Resources)


def _has_parts(value: Any) -> bool:
    return is_dataclass(value) or isinstance(value, Mapping)


def _compare_entries(label: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[SettingChange]:
    """Yields the differences between two mappings of kinds of preemption to their settings."""
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name), now.get(name)
        if is_dataclass(before) and is_dataclass(after):
            yield from _compare_fields(f"{label}.{name}", before, after, {})
        elif before != after:
            yield SettingChange(f"{label}.{name}", _write_value(before), _write_value(after))


def _limit_differences(old: QueueConfig | None, new: QueueConfig | None) -> Iterator[SettingChange]:
    before = old.limits if old is not None else ()
    after = new.limits if new is not None else ()
    if before != after:
        yield SettingChange("limits", "; ".join(map(_write_limit, before)), "; ".join(map(_write_limit, after)))


def _write_limit(limit: LimitConfig) -> str:
    parts = [f"users {','.join(limit.users)}"] if limit.users else []
    parts += [f"groups {','.join(limit.groups)}"] if limit.groups else []
    parts += [f"maxapplications {limit.max_applications}"] if limit.max_applications else []
    return " ".join([*parts, _write_value(limit.max_resources or {})]).rstrip()


def _write_rule(rule: PlacementRuleConfig) -> str:
    above = f"{_write_rule(rule.parent)}->" if rule.parent is not None else ""
    value = f"={rule.value}" if rule.value else ""
    return f"{above}{rule.name}{value}{'+create' if rule.create else ''}"


def _write_template(state: PartitionState, found: DynamicTerms | None) -> str:
    if found is None:
        return ""
    resources = state.types.to_resources
    return (
        f"maxapplications {found.max_applications} guaranteed {_write_value(resources(found.guaranteed))}"
        f" max {_write_value(resources(found.max))}"
    )


def _write_seconds(nanoseconds: int) -> str:
    whole, part = divmod(nanoseconds, 10**9)
    return f"{whole}.{part:09}".rstrip("0").rstrip(".") + "s"


def _write_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, Mapping):
        return " ".join(f"{name}={value[name]}" for name in sorted(value))
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, Fraction):
        return f"{float(value):g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
