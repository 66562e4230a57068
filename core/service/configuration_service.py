"""``kornel.v1.ConfigurationService``: reads queue configurations, and puts them into force (protocol.md 5.4)."""

from __future__ import annotations

from kornel.v1 import configuration_pb2 as pb
from structlog.typing import FilteringBoundLogger

from core.config.problems import ConfigError
from core.domain.commands import UpdateConfiguration
from core.service.logs import log_warnings
from core.service.rpc import Handler, unary
from core.service.runner import PartitionRunner
from core.service.status_codes import problem_message
from core.service.wire import sorted_items


class ConfigurationService:
    """``default_config``: what an empty text stands for, itself empty for the built-in default."""

    def __init__(self, runner: PartitionRunner, *, logger: FilteringBoundLogger, default_config: str = "") -> None:
        self._runner = runner
        self._logger = logger
        self._default_config = default_config

    def handlers(self) -> dict[str, Handler]:
        """The calls by method name."""
        return {
            "UpdateConfiguration": unary(pb.UpdateConfigurationRequest, self._update, self._logger),
            "ValidateConfiguration": unary(pb.ValidateConfigurationRequest, self._validate, self._logger),
        }

    async def _update(self, request: pb.UpdateConfigurationRequest) -> pb.UpdateConfigurationResponse:
        text = request.config or self._default_config
        change = await self._runner.call(
            UpdateConfiguration(
                rm_id=request.rm_id,
                config=text,
                policy_group=request.policy_group,
                extra_config=sorted_items(request.extra_config),
            )
        )
        self._logger.info(
            "configuration updated", rm_id=request.rm_id, changed=change.changed, checksum=change.checksum
        )
        warnings = self._runner.read_configuration(text).warnings
        log_warnings(self._logger, warnings)
        return pb.UpdateConfigurationResponse(
            changed=change.changed,
            checksum=change.checksum,
            warnings=[problem_message(warning) for warning in warnings],
        )

    async def _validate(self, request: pb.ValidateConfigurationRequest) -> pb.ValidateConfigurationResponse:
        try:
            configuration = self._runner.read_configuration(request.config or self._default_config)
        except ConfigError as error:
            return pb.ValidateConfigurationResponse(
                valid=False, problems=[problem_message(problem) for problem in error.problems]
            )
        return pb.ValidateConfigurationResponse(
            valid=True,
            checksum=configuration.checksum,
            problems=[problem_message(warning) for warning in configuration.warnings],
        )
