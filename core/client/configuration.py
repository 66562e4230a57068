"""The command line's side of ``kornel.v1.ConfigurationService``."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from kornel.v1 import configuration_pb2 as pb
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub

from core.client.calls import unreachable
from core.client.channels import open_channel
from core.service.limits import MESSAGE_LIMIT

ResponseT = TypeVar("ResponseT", bound=Message)


class ConfigurationClient:
    """One connection. Every call raises :class:`core.client.calls.CoreUnreachable` when it fails."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        options = [("grpc.max_receive_message_length", MESSAGE_LIMIT), ("grpc.max_send_message_length", MESSAGE_LIMIT)]
        self._channel = open_channel(address, options)
        self._stub = ConfigurationServiceStub(self._channel)

    def __enter__(self) -> ConfigurationClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._channel.close()

    def preview(self, text: str) -> pb.PreviewConfigurationResponse:
        return self._call(self._stub.PreviewConfiguration, pb.PreviewConfigurationRequest(config=text))

    def history(self) -> pb.GetConfigurationHistoryResponse:
        return self._call(self._stub.GetConfigurationHistory, pb.GetConfigurationHistoryRequest())

    def get(self, version: int) -> pb.GetConfigurationResponse:
        """*version* 0: the one in force."""
        return self._call(self._stub.GetConfiguration, pb.GetConfigurationRequest(version=version))

    def rollback(self, version: int) -> pb.RollbackConfigurationResponse:
        return self._call(self._stub.RollbackConfiguration, pb.RollbackConfigurationRequest(version=version))

    def _call(self, method: Callable[..., ResponseT], request: Any) -> ResponseT:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise unreachable(self._address, error) from error
