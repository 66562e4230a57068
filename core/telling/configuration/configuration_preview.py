"""Previews a configuration by the real update, applied to a copy that is not used for scheduling.

The copy has the queues with their amounts, what placement and limits need of each application
(:mod:`kornel.core.telling.configuration.partition_moment`), and the tasks of queues whose lowered max is to be
enforced. Which queues these are is only known once the update was applied to a copy: ``Impact.untried`` names them, and
the preview is to be made again with their tasks. The copy shares no mutable value with the partition, so the
preview may be computed while the partition changes, even in another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kornel.core.config.model import Configuration, PartitionConfig, QueueConfig
from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.effects import Effect
from kornel.core.domain.names import full_partition_name
from kornel.core.engine.configuration import configure
from kornel.core.model.queues import Queue
from kornel.core.policies.placement.applicant import applicant_of
from kornel.core.policies.placement.decide import Unplaced, place_applicant
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.configuration import enforcement_trial, limit_usage, setting_changes
from kornel.core.telling.configuration.impact import (
    Impact,
    LimitExcess,
    PartitionChange,
    QueueChange,
    QuotaEnforcement,
    QuotaExcess,
    UnplacedApplication,
)
from kornel.core.telling.configuration.partition_moment import PartitionMoment, QueueMoment, restore_partition

_NOT_TRIED: Final = "there are too many tasks to tell who would leave"


class _Copy(NamedTuple):
    """The copy of one partition. ``state`` has queues but neither nodes nor applications of its own."""

    state: PartitionState
    moment: PartitionMoment


class ConfigurationPreview:
    """The copies of all partitions at one moment. *configuration*: the one in force then; ``None``: no manager was
    registered."""

    def __init__(self, rm_id: str, configuration: Configuration | None, moments: Mapping[str, PartitionMoment]) -> None:
        self.rm_id = rm_id
        self.configuration = configuration
        self.moments = moments

    def impact_of(self, configuration: Configuration) -> Impact:
        """Returns what *configuration* would change. Repeated calls give the same result."""
        copies: dict[str, _Copy] = {}
        if self.configuration is not None:
            if configuration.checksum == self.configuration.checksum:
                return Impact(changed=False, checksum=configuration.checksum)
            in_force = {full_partition_name(self.rm_id, p.name): p for p in self.configuration.partitions}
            copies = {
                name: _Copy(restore_partition(moment, in_force[name]), moment) for name, moment in self.moments.items()
            }
        listed = {full_partition_name(self.rm_id, p.name): p for p in configuration.partitions}
        refused = tuple(
            obstacle
            for name, config in listed.items()
            if name in copies
            for obstacle in configure.find_obstacles(copies[name].state, config)
        )
        if refused:
            return Impact(changed=True, checksum=configuration.checksum, refused=refused)
        found = _Findings()
        for name, copy in copies.items():
            if name in listed:
                _change_copy(name, copy, listed[name], found)
            else:
                found.partitions.append(PartitionChange(name, False, True, len(copy.moment.subjects), ()))
        for name, config in listed.items():
            if name not in copies:
                found.partitions.append(PartitionChange(name, True, False, 0, ()))
                effects: list[Effect] = []
                fresh = configure.build_partition(name, config, 0, effects)
                found.queues += setting_changes.added_queues(name, fresh.queues)
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
            found.untried,
        )


class _Findings:
    def __init__(self) -> None:
        self.partitions: list[PartitionChange] = []
        self.queues: list[QueueChange] = []
        self.quota_excesses: list[QuotaExcess] = []
        self.limit_excesses: list[LimitExcess] = []
        self.unplaced: list[UnplacedApplication] = []
        self.enforcements: list[QuotaEnforcement] = []
        self.untried: dict[str, Sequence[str]] = {}


def _change_copy(name: str, copy: _Copy, config: PartitionConfig, found: _Findings) -> None:
    state, old = copy.state, copy.state.config
    assert old is not None, "a partition follows a configuration from the start"
    before = {queue.path: queue for queue in copy.moment.queues}
    placed = {
        subject.spec.application_id for subject in copy.moment.subjects if _find_refusal(state, subject.spec) is None
    }
    armed = dict(state.enforcement.armed)
    configure.update(state, config, copy.moment.at_ns)
    settings = setting_changes.partition_settings(old, config)
    if settings:
        found.partitions.append(PartitionChange(name, False, False, len(copy.moment.subjects), settings))
    found.queues += setting_changes.queue_changes(
        state, before, _queues_by_path(old.root), _queues_by_path(config.root)
    )
    found.quota_excesses += _quota_excesses(state, before)
    found.limit_excesses += limit_usage.find_excesses(name, copy.moment.holders, old.root, config.root)
    found.unplaced += _find_unplaced(state, copy, placed)
    _try_enforcements(copy, armed, found)


def _quota_excesses(state: PartitionState, before: Mapping[str, QueueMoment]) -> Iterator[QuotaExcess]:
    for path, queue in state.queues.items():
        for t, most in queue.max.items():
            used = queue.used[t]
            if used > most and queue.parent is not None:
                was = before[path].max.get(t) if path in before else None
                already = was is not None and used > was
                yield QuotaExcess(state.name, path, state.types.names[t], used, most, already)


def _find_unplaced(state: PartitionState, copy: _Copy, placed: set[str]) -> Iterator[UnplacedApplication]:
    for spec, queue, _ in copy.moment.subjects:
        if spec.application_id in placed:
            reason = _find_refusal(state, spec)
            if reason is not None:
                yield UnplacedApplication(state.name, spec.application_id, queue, reason)


def _find_refusal(state: PartitionState, spec: ApplicationSpec) -> str | None:
    """Returns why placement would refuse *spec* now; ``None``: it would not."""
    found = place_applicant(state.placement_rules, state.queues, applicant_of(spec))
    return "; ".join(found.outcomes) if isinstance(found, Unplaced) else None


def _try_enforcements(copy: _Copy, armed: Mapping[Queue, int], found: _Findings) -> None:
    """Adds to *found* what becomes of the queues whose timers differ from those *armed* before, and of those of which a
    remainder is tried again (preemption.md D.4, D.5)."""
    state, moment = copy
    to_try, now_ns = enforcement_trial.queues_to_try(state), moment.at_ns
    starts = {queue: at_ns for queue, at_ns in state.enforcement.armed.items() if armed.get(queue) != at_ns}
    if not to_try:
        return
    if not moment.watched.complete or not moment.watched.paths_include(queue.path for queue in to_try):
        if moment.watched.complete:
            found.untried[state.name] = [queue.path for queue in to_try]
        for queue, at_ns in starts.items():
            amounts = state.types.to_resources(queue.above_max())
            found.enforcements.append(
                QuotaEnforcement(state.name, queue.path, amounts, at_ns - now_ns, unmet=amounts, reasons=(_NOT_TRIED,))
            )
        return
    for queue, enforced in enforcement_trial.try_enforcement(state, now_ns):
        if queue in starts or (enforced.victims and queue not in armed):
            found.enforcements.append(enforced._replace(delay_ns=max(0, starts.get(queue, now_ns) - now_ns)))


def _queues_by_path(root: QueueConfig) -> dict[str, QueueConfig]:
    return dict(configure.walk_queues(root, "root"))
