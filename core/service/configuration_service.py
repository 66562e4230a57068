"""``kornel.v1.ConfigurationService``: reads queue configurations, and puts them into force (protocol.md 5.4)."""

from __future__ import annotations

from kornel.v1 import configuration_pb2 as pb
from structlog.typing import FilteringBoundLogger

from core.config.problems import ConfigError
from core.domain.commands import UpdateConfiguration
from core.service.configuration_wire import impact_message, version_message
from core.service.configuring import Configurator
from core.service.rpc import Handler, unary
from core.service.status_codes import problem_message
from core.service.wire import sorted_items


class ConfigurationService:
    """The calls around configurations; what they do is the *configurator*'s."""

    def __init__(self, configurator: Configurator, *, logger: FilteringBoundLogger) -> None:
        self._configurator = configurator
        self._logger = logger

    def handlers(self) -> dict[str, Handler]:
        """The calls by method name."""
        return {
            "UpdateConfiguration": unary(pb.UpdateConfigurationRequest, self._update, self._logger),
            "ValidateConfiguration": unary(pb.ValidateConfigurationRequest, self._validate, self._logger),
            "PreviewConfiguration": unary(pb.PreviewConfigurationRequest, self._preview, self._logger),
            "GetConfigurationHistory": unary(pb.GetConfigurationHistoryRequest, self._history, self._logger),
            "GetConfiguration": unary(pb.GetConfigurationRequest, self._get, self._logger),
            "RollbackConfiguration": unary(pb.RollbackConfigurationRequest, self._rollback, self._logger),
        }

    async def _update(self, request: pb.UpdateConfigurationRequest) -> pb.UpdateConfigurationResponse:
        outcome = await self._configurator.update(
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
            warnings=[problem_message(warning) for warning in outcome.warnings],
            version=outcome.version,
        )

    async def _validate(self, request: pb.ValidateConfigurationRequest) -> pb.ValidateConfigurationResponse:
        try:
            configuration = await self._configurator.judge(request.config)
        except ConfigError as error:
            return pb.ValidateConfigurationResponse(
                valid=False, problems=[problem_message(problem) for problem in error.problems]
            )
        return pb.ValidateConfigurationResponse(
            valid=True,
            checksum=configuration.checksum,
            problems=[problem_message(warning) for warning in configuration.warnings],
        )

    async def _preview(self, request: pb.PreviewConfigurationRequest) -> pb.PreviewConfigurationResponse:
        impact, warnings = await self._configurator.preview(request.config)
        return impact_message(impact, warnings)

    async def _history(self, _request: pb.GetConfigurationHistoryRequest) -> pb.GetConfigurationHistoryResponse:
        in_force = self._configurator.in_force
        return pb.GetConfigurationHistoryResponse(
            versions=[version_message(version, in_force) for version in self._configurator.history.versions()]
        )

    async def _get(self, request: pb.GetConfigurationRequest) -> pb.GetConfigurationResponse:
        version = self._configurator.version(request.version)
        return pb.GetConfigurationResponse(
            version=version_message(version, self._configurator.in_force), config=version.text
        )

    async def _rollback(self, request: pb.RollbackConfigurationRequest) -> pb.RollbackConfigurationResponse:
        outcome = await self._configurator.rollback(request.version)
        return pb.RollbackConfigurationResponse(
            changed=outcome.changed, checksum=outcome.checksum, version=outcome.version
        )
