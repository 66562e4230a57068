"""Configuration history and previews as ``kornel.v1`` sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kornel.v1 import configuration_pb2 as pb

from core.config.problems import Problem
from core.domain.resources import clamp
from core.service.configuration_history import Origin, Version
from core.service.status_codes import problem_message
from core.telling.configuration.impact import Impact, QueueChangeKind, SettingChange

_ORIGINS: Final = {
    Origin.REGISTRATION: pb.ConfigurationVersion.ORIGIN_REGISTRATION,
    Origin.UPDATE: pb.ConfigurationVersion.ORIGIN_UPDATE,
    Origin.FILE: pb.ConfigurationVersion.ORIGIN_FILE,
    Origin.ROLLBACK: pb.ConfigurationVersion.ORIGIN_ROLLBACK,
}

_KINDS: Final = {
    QueueChangeKind.ADDED: pb.QueueChange.KIND_ADDED,
    QueueChangeKind.REMOVED: pb.QueueChange.KIND_REMOVED,
    QueueChangeKind.DRAINED: pb.QueueChange.KIND_DRAINED,
    QueueChangeKind.REACTIVATED: pb.QueueChange.KIND_REACTIVATED,
    QueueChangeKind.ADOPTED: pb.QueueChange.KIND_ADOPTED,
    QueueChangeKind.REPLACED: pb.QueueChange.KIND_REPLACED,
    QueueChangeKind.CHANGED: pb.QueueChange.KIND_CHANGED,
}


def version_message(version: Version, in_force: int) -> pb.ConfigurationVersion:
    """*version* without its text; *in_force*: number of the one that holds."""
    return pb.ConfigurationVersion(
        number=version.number,
        at_ns=version.at_ns,
        origin=_ORIGINS[version.origin],
        rm_id=version.rm_id,
        checksum=version.checksum,
        applied=version.applied,
        in_force=version.number == in_force,
        reason=version.reason,
        problems=[problem_message(problem) for problem in version.problems],
        length=len(version.text),
        principal=version.principal,
        note=version.note,
    )


def impact_message(impact: Impact, warnings: Sequence[Problem]) -> pb.PreviewConfigurationResponse:
    """*impact* of a configuration that was read with *warnings*."""
    return pb.PreviewConfigurationResponse(
        changed=impact.changed,
        checksum=impact.checksum,
        refusals=impact.refused,
        partitions=[
            pb.PartitionChange(
                name=found.partition,
                added=found.added,
                removed=found.removed,
                application_count=found.applications,
                settings=_settings(found.settings),
            )
            for found in impact.partitions
        ],
        queues=[
            pb.QueueChange(
                partition=found.partition,
                path=found.path,
                kind=_KINDS[found.kind],
                application_count=found.applications,
                settings=_settings(found.settings),
            )
            for found in impact.queues
        ],
        quota_excesses=[
            pb.QuotaExcess(
                partition=found.partition,
                path=found.path,
                type=found.type,
                used=clamp(found.used),
                max=found.max,
                already=found.already,
            )
            for found in impact.quota_excesses
        ],
        limit_excesses=[
            pb.LimitExcess(
                partition=found.partition,
                path=found.path,
                kind=found.kind,
                name=found.name,
                type=found.type,
                used=clamp(found.used),
                limit=found.limit,
                already=found.already,
            )
            for found in impact.limit_excesses
        ],
        unplaced_applications=[
            pb.UnplacedApplication(
                partition=found.partition,
                application_id=found.application_id,
                queue=found.queue,
                reason=found.reason,
            )
            for found in impact.unplaced
        ],
        enforcements=[
            pb.QuotaEnforcement(
                partition=found.partition,
                path=found.path,
                amounts={name: clamp(amount) for name, amount in found.amounts.items()},
                delay_ns=found.delay_ns,
            )
            for found in impact.enforcements
        ],
        warnings=[problem_message(warning) for warning in warnings],
    )


def _settings(settings: Sequence[SettingChange]) -> list[pb.SettingChange]:
    return [pb.SettingChange(name=name, before=before, after=after) for name, before, after in settings]
