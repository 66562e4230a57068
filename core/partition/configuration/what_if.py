"""A configuration tried on: the real update, done to a copy that nobody schedules with.

The copy has the queues with their amounts, and of each application what placement and limits look at. It shares no
value that anybody changes with the partition it was taken from, so it may be worked on while that one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from core.config.model import Configuration, PartitionConfig, QueueConfig
from core.domain.application_states import AppState
from core.domain.commands import ApplicationSpec
from core.domain.effects import Effect
from core.domain.impact import (
    Impact,
    LimitExcess,
    PartitionChange,
    QueueChange,
    QuotaEnforcement,
    QuotaExcess,
    UnplacedApplication,
)
from core.domain.partition_names import full_partition_name
from core.domain.resources import Resources
from core.model.queues import Queue
from core.partition.configuration import configure, limit_usage, setting_changes
from core.partition.configuration.limit_usage import Holder
from core.partition.configuration.setting_changes import Terms
from core.partition.state import PartitionState
from core.policies.owners import groups_of
from core.policies.placement.applicant import applicant_of
from core.policies.placement.decide import Unplaced, place
from core.policies.preemption import quota_shares


class _Subject(NamedTuple):
    """An application as placement sees it."""

    spec: ApplicationSpec
    queue: str


class _Copy(NamedTuple):
    """One partition. ``state`` has queues but neither nodes nor applications of its own."""

    state: PartitionState
    applications: tuple[_Subject, ...]
    holders: tuple[Holder, ...]


class WhatIf:
    """The partitions of a moment."""

    def __init__(
        self, rm_id: str, configuration: Configuration | None, partitions: Mapping[str, PartitionState]
    ) -> None:
        self._rm_id = rm_id
        self._configuration = configuration
        self._copies = {name: _copy(state) for name, state in partitions.items()}

    @property
    def configuration(self) -> Configuration | None:
        """In force at that moment; ``None``: nobody was registered."""
        return self._configuration

    def preview(self, configuration: Configuration) -> Impact:
        """What *configuration* would change. To be asked once: the copy has changed afterwards."""
        if self._configuration is not None and configuration.checksum == self._configuration.checksum:
            return Impact(changed=False, checksum=configuration.checksum)
        listed = {full_partition_name(self._rm_id, p.name): p for p in configuration.partitions}
        refused = tuple(
            obstacle
            for name, config in listed.items()
            if name in self._copies
            for obstacle in configure.obstacles(self._copies[name].state, config)
        )
        if refused:
            return Impact(changed=True, checksum=configuration.checksum, refused=refused)
        found = _Findings()
        for name, copy in self._copies.items():
            if name in listed:
                _change(name, copy, listed[name], found)
            else:
                found.partitions.append(PartitionChange(name, False, True, len(copy.applications), ()))
        for name, config in listed.items():
            if name not in self._copies:
                found.partitions.append(PartitionChange(name, True, False, 0, ()))
                effects: list[Effect] = []
                fresh = configure.build(name, config, 0, effects)
                found.queues += setting_changes.added(name, fresh.queues)
        return Impact(
            True,
            configuration.checksum,
            (),
            tuple(found.partitions),
            tuple(found.queues),
            tuple(found.quota_excesses),
            tuple(found.limit_excesses),
            tuple(found.unplaced),
            tuple(found.enforcements),
        )


class _Findings:
    def __init__(self) -> None:
        self.partitions: list[PartitionChange] = []
        self.queues: list[QueueChange] = []
        self.quota_excesses: list[QuotaExcess] = []
        self.limit_excesses: list[LimitExcess] = []
        self.unplaced: list[UnplacedApplication] = []
        self.enforcements: list[QuotaEnforcement] = []


def _change(name: str, copy: _Copy, config: PartitionConfig, found: _Findings) -> None:
    state, old = copy.state, copy.state.config
    assert old is not None, "a partition follows a configuration from the start"
    before = {path: setting_changes.terms(queue) for path, queue in state.queues.items()}
    placed = {subject.spec.application_id for subject in copy.applications if _refusal(state, subject.spec) is None}
    armed = dict(state.enforcement.armed)
    configure.update(state, config, 0)
    settings = setting_changes.partition_settings(old, config)
    if settings:
        found.partitions.append(PartitionChange(name, False, False, len(copy.applications), settings))
    found.queues += setting_changes.queue_changes(state, before, _limits(old.root), _limits(config.root))
    found.quota_excesses += _quota_excesses(state, before)
    found.limit_excesses += limit_usage.excesses(name, copy.holders, old.root, config.root)
    found.unplaced += _unplaced(state, copy, placed)
    found.enforcements += _enforcements(state, armed)


def _quota_excesses(state: PartitionState, before: Mapping[str, Terms]) -> Iterator[QuotaExcess]:
    for path, queue in state.queues.items():
        for t, most in queue.max.items():
            used = queue.used[t]
            if used > most and queue.parent is not None:
                was = before[path].max.get(t) if path in before else None
                already = was is not None and used > was
                yield QuotaExcess(state.name, path, state.types.names[t], used, most, already)


def _unplaced(state: PartitionState, copy: _Copy, placed: set[str]) -> Iterator[UnplacedApplication]:
    for spec, queue in copy.applications:
        if spec.application_id in placed:
            reason = _refusal(state, spec)
            if reason is not None:
                yield UnplacedApplication(state.name, spec.application_id, queue, reason)


def _refusal(state: PartitionState, spec: ApplicationSpec) -> str | None:
    """Why placement would turn *spec* away now; ``None``: it would not."""
    found = place(state.placement_rules, state.queues, applicant_of(spec))
    return "; ".join(found.outcomes) if isinstance(found, Unplaced) else None


def _enforcements(state: PartitionState, armed: Mapping[Queue, int]) -> Iterator[QuotaEnforcement]:
    """Queues whose timer differs from those *armed* before, with what a run would aim at now (D.4, D.6)."""
    for queue, start_ns in state.enforcement.armed.items():
        target = quota_shares.target(queue, queue.max)
        if armed.get(queue) != start_ns and target:
            delay_ns = queue.properties.quota_preemption_delay_ns
            yield QuotaEnforcement(state.name, queue.path, state.types.resources(target), delay_ns)


def _limits(root: QueueConfig) -> dict[str, QueueConfig]:
    return dict(configure.walk(root, "root"))


def _copy(state: PartitionState) -> _Copy:
    copy = PartitionState(state.name, state.root.properties, state.preemption, [])
    for name in state.types.names:
        copy.types.index(name)
    copy.placement_rules = state.placement_rules
    copy.config = state.config
    _copy_settings(state.root, copy.root)
    _copy_below(copy, state.root, copy.root)
    for queue, start_ns in state.enforcement.armed.items():
        if state.queues.get(queue.path) is queue:
            copy.enforcement.armed[copy.queues[queue.path]] = start_ns
    subjects = tuple(_Subject(app.spec, app.queue.path) for app in state.applications.values())
    holders = tuple(
        Holder(
            app.user,
            groups_of(app.spec),
            app.limit_group,
            app.state is not AppState.NEW,
            app.queue.path,
            _held(state, app.real, app.placeholder),
            bool(app.allocations),
        )
        for app in state.applications.values()
    )
    return _Copy(copy, subjects, holders)


def _held(state: PartitionState, real: list[int], placeholder: list[int]) -> Resources:
    return state.types.resources([a + b for a, b in zip(real, placeholder, strict=True)])


def _copy_below(copy: PartitionState, source: Queue, target: Queue) -> None:
    for name, child in source.children.items():
        twin = copy.new_queue(name, target, leaf=child.leaf, properties=child.properties)
        _copy_settings(child, twin)
        _copy_below(copy, child, twin)


def _copy_settings(source: Queue, target: Queue) -> None:
    target.managed = source.managed
    target.draining = source.draining
    target.submit_acl, target.admin_acl = source.submit_acl, source.admin_acl
    target.max_applications = source.max_applications
    target.limits = source.limits
    target.dynamic_terms = source.dynamic_terms
    target.set_limits(source.guaranteed, dict(source.max))
    target.used = list(source.used)
    target.pending = list(source.pending)
    target.preempting = list(source.preempting)
    target.waiting = source.waiting
    target.applications = dict(source.applications)
