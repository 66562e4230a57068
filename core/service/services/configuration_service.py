"""Serves ``kornel.v1.ConfigurationService``, which reads queue configurations and puts them into force (protocol.md
5.4)."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.domain.secrets import text_without_secrets
from kornel.core.service.calls.rpc import Encoded, Service
from kornel.core.service.configuration.configuration_wire import version_message
from kornel.core.service.managers.managers import Managers
from kornel.core.service.wire.scheduler_wire import sorted_items
from kornel.core.service.wire.status_codes import InvalidRequest
from kornel.core.telling.encoding.kornel_v1 import encode_problem
from kornel.v1 import configuration_pb2 as pb


class ConfigurationService(Service):
    """Serves calls about configurations, which the configurator of the manager carries out."""

    described = pb.DESCRIPTOR.services_by_name["ConfigurationService"]

    def __init__(self, managers: Managers, *, logger: FilteringBoundLogger) -> None:
        super().__init__(logger)
        self._managers = managers

    async def _update_configuration(self, request: pb.UpdateConfigurationRequest) -> pb.UpdateConfigurationResponse:
        configurator = self._managers.place_for(request.rm_id).configurator
        with configurator.judge.changes.take_room() as add_bytes:
            add_bytes(len(request.config))
            outcome = await configurator.update(
                UpdateConfiguration(
                    rm_id=request.rm_id,
                    config=request.config,
                    policy_group=request.policy_group,
                    extra_config=sorted_items(request.extra_config),
                )
            )
        return pb.UpdateConfigurationResponse(
            changed=outcome.changed,
            checksum=outcome.checksum,
            warnings=[encode_problem(warning) for warning in outcome.warnings],
            version=outcome.version,
        )

    async def _validate_configuration(
        self, request: pb.ValidateConfigurationRequest
    ) -> pb.ValidateConfigurationResponse:
        try:
            configurator = self._managers.leader.configurator
            with configurator.judge.rooms.take_room() as add_bytes:
                add_bytes(len(request.config))
                judgement = await configurator.judge_text(request.config)
        except ConfigError as error:
            return pb.ValidateConfigurationResponse(
                valid=False, problems=[encode_problem(problem) for problem in error.problems]
            )
        return pb.ValidateConfigurationResponse(
            valid=True,
            checksum=judgement.checksum,
            problems=[encode_problem(warning) for warning in judgement.warnings],
        )

    async def _preview_configuration(self, request: pb.PreviewConfigurationRequest) -> Encoded:
        return Encoded(await self._managers.choose(request.rm_id).configurator.preview(request.config))

    async def _get_configuration_history(
        self, request: pb.GetConfigurationHistoryRequest
    ) -> pb.GetConfigurationHistoryResponse:
        configurator = self._managers.choose(request.rm_id).configurator
        in_force = configurator.in_force
        return pb.GetConfigurationHistoryResponse(
            versions=[version_message(version, in_force) for version in configurator.history.kept_versions()]
        )

    async def _get_configuration(self, request: pb.GetConfigurationRequest) -> pb.GetConfigurationResponse:
        configurator = self._managers.choose(request.rm_id).configurator
        version = configurator.version(request.version)
        shown = text_without_secrets(version.text)
        return pb.GetConfigurationResponse(
            version=version_message(version, configurator.in_force),
            config=shown,
            has_hidden=shown != version.text,
        )

    async def _rollback_configuration(
        self, request: pb.RollbackConfigurationRequest
    ) -> pb.RollbackConfigurationResponse:
        if request.undo and request.version:
            raise InvalidRequest("give either a version to roll back to or undo, not both")
        configurator = self._managers.choose(request.rm_id).configurator
        if request.undo:
            outcome = await configurator.undo_rollback()
        else:
            outcome = await configurator.rollback(request.version)
        return pb.RollbackConfigurationResponse(
            changed=outcome.changed,
            checksum=outcome.checksum,
            version=outcome.version,
            holds=configurator.rollback_held is not None,
        )
