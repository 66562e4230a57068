"""Connections of the command line to a core: plain text on this machine, or TLS, with a client certificate or a
token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from kornel.core.service.addresses import stays_on_this_machine

AUTHORIZATION: Final = "authorization"


class ConnectionNotPossible(ValueError):
    """The files or options for the connection cannot be used. The text never quotes a secret."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The files and names to connect with. All empty: plain text, and no identity.

    ca           PEM file of the CA that signed the core's certificate; with it, or a certificate, TLS is spoken
    certificate  PEM file, with ``key``: shown to the core
    token_file   bearer token; never sent in plain text to another machine
    server_name  the name in the core's certificate, if not the host of the address
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConnectionNotPossible("--cert and --key belong together: one of them is missing")

    def channel(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
        """Returns a channel to *address*. Raises :class:`ConnectionNotPossible`."""
        credentials = self._make_credentials(address)
        if credentials is None:
            channel = grpc.insecure_channel(address, options)
        else:
            channel = grpc.secure_channel(address, credentials, [*options, *self._override_options()])
        if self.token_file is None:
            return channel
        return grpc.intercept_channel(channel, _Token(self._bearer_token()))

    def aio_channel(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
        """Returns a channel for asyncio, whose calls have to carry :meth:`metadata`. Raises
        :class:`ConnectionNotPossible`."""
        credentials = self._make_credentials(address)
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, credentials, options=[*options, *self._override_options()])

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the caller's token as metadata, for calls on :meth:`aio_channel`."""
        return () if self.token_file is None else ((AUTHORIZATION, self._bearer_token()),)

    def _make_credentials(self, address: str) -> grpc.ChannelCredentials | None:
        """Returns the credentials of a channel to *address*; ``None``: plain text."""
        if self.ca is None and self.certificate is None:
            if self.token_file is not None and not stays_on_this_machine(address):
                raise ConnectionNotPossible(f"a token is not sent to {address} in plain text: give --ca FILE")
            return None
        return grpc.ssl_channel_credentials(_bytes_of(self.ca), _bytes_of(self.key), _bytes_of(self.certificate))

    def _override_options(self) -> list[tuple[str, Any]]:
        return [("grpc.ssl_target_name_override", self.server_name)] if self.server_name else []

    def _bearer_token(self) -> str:
        token = _bytes_of(self.token_file)
        assert token is not None
        return f"Bearer {token.decode('ascii', 'replace').strip()}"


CONNECTION: Final[ContextVar[Connection]] = ContextVar("connection")


def open_channel(address: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
    """Returns a channel with the connection options of the command line. Raises :class:`ConnectionNotPossible`."""
    return CONNECTION.get(Connection()).channel(address, options)


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: Any


class _Token(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, bearer: str) -> None:
        self._said = (AUTHORIZATION, bearer)

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def _with_token(self, details: Any) -> _Details:
        return _Details(
            details.method,
            details.timeout,
            [*(details.metadata or ()), self._said],
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )


def _bytes_of(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConnectionNotPossible(f"{path}: {error.strerror or error}") from error
