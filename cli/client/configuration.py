"""Calls ``kornel.v1.ConfigurationService``."""

from __future__ import annotations

from kornel.cli.client.connected import Connected
from kornel.v1 import configuration_pb2 as pb
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub


class ConfigurationClient(Connected):
    """The calls about the configurations of *manager*, which may be empty if there is only one manager."""

    def __init__(self, address: str, timeout_s: float, manager: str = "") -> None:
        super().__init__(address, timeout_s)
        self._manager = manager
        self._stub = ConfigurationServiceStub(self._channel)

    def validate(self, text: str) -> pb.ValidateConfigurationResponse:
        """Returns what is wrong with *text*. Raises :class:`CoreUnreachable`."""
        return self._call(self._stub.ValidateConfiguration, pb.ValidateConfigurationRequest(config=text))

    def preview(self, text: str) -> pb.PreviewConfigurationResponse:
        """Returns what *text* would change. Raises :class:`CoreUnreachable`."""
        return self._call(
            self._stub.PreviewConfiguration, pb.PreviewConfigurationRequest(config=text, rm_id=self._manager)
        )

    def history(self) -> pb.GetConfigurationHistoryResponse:
        """Returns all configurations that the core remembers. Raises :class:`CoreUnreachable`."""
        return self._call(self._stub.GetConfigurationHistory, pb.GetConfigurationHistoryRequest(rm_id=self._manager))

    def get(self, version: int) -> pb.GetConfigurationResponse:
        """Returns the configuration *version*; 0: the one in force."""
        return self._call(self._stub.GetConfiguration, pb.GetConfigurationRequest(version=version, rm_id=self._manager))

    def undo_rollback(self) -> pb.RollbackConfigurationResponse:
        """End a rollback, so that the latest text of the manager or the file is in force again. Raises
        :class:`CoreUnreachable`."""
        return self._call(
            self._stub.RollbackConfiguration, pb.RollbackConfigurationRequest(undo=True, rm_id=self._manager)
        )

    def rollback(self, version: int) -> pb.RollbackConfigurationResponse:
        """Put *version* into force again. Raises :class:`CoreUnreachable`."""
        return self._call(
            self._stub.RollbackConfiguration, pb.RollbackConfigurationRequest(version=version, rm_id=self._manager)
        )
