"""The credentials of a shim: TLS that checks the core's certificate, a client certificate, and a bearer token.

Certificates are read when a channel is made. The token is read at every call, so when its file is replaced, the next
call uses the new token.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import grpc
import grpc.aio

from kornel.shared.addresses import stays_on_this_machine

_VARIABLES: Final = {
    "ca": "KORNEL_CA",
    "certificate": "KORNEL_CERT",
    "key": "KORNEL_KEY",
    "token_file": "KORNEL_TOKEN_FILE",
}
SERVER_NAME_VARIABLE: Final = "KORNEL_SERVER_NAME"


class CredentialsUnusable(ValueError):
    """Credentials that cannot be used. The text of the error never contains a secret."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files and names that identify a shim and its core. If all are empty, the connection is plain text without an
    identity.

    ca           PEM file of the CA that signed the core's certificate; with it, or with a certificate, TLS is used
    certificate  PEM file, with ``key``: shown to the core
    token_file   bearer token; never sent in plain text to another machine
    server_name  the name in the core's certificate; empty: it is the host of the address
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise CredentialsUnusable("a client certificate and its key belong together: one of them is missing")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Returns the credentials in ``KORNEL_CA``, ``KORNEL_CERT``, ``KORNEL_KEY``, ``KORNEL_TOKEN_FILE``,
        ``KORNEL_SERVER_NAME``."""
        files = {field: Path(found) for field, name in _VARIABLES.items() if (found := environment.get(name))}
        return cls(**files, server_name=environment.get(SERVER_NAME_VARIABLE, ""))

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that give another program the same credentials."""
        files = {name: str(path) for field, name in _VARIABLES.items() if (path := getattr(self, field)) is not None}
        return {**files, SERVER_NAME_VARIABLE: self.server_name} if self.server_name else files

    @property
    def tls(self) -> bool:
        """Tells whether TLS is used."""
        return self.ca is not None or self.certificate is not None

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """Returns a channel to *address*. Raises CredentialsUnusable if a file cannot be read, or if a token would be
        sent in plain text."""
        if not self.tls:
            if self.token_file is not None and not stays_on_this_machine(address):
                raise CredentialsUnusable(
                    f"a token is not sent to {address} in plain text: the CA of the core is missing"
                )
            channel = grpc.aio.insecure_channel(address, options=options)
        else:
            if self.server_name:
                options = [*options, ("grpc.ssl_target_name_override", self.server_name)]
            channel = grpc.aio.secure_channel(address, self._make_tls_credentials(), options=options)
        if self.token_file is None:
            return channel
        self.bearer()  # This reports a missing file now and not at the first call.
        return _TokenChannel(channel, self.bearer)

    def _make_tls_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            root_certificates=None if self.ca is None else read_credential_file(self.ca),
            private_key=None if self.key is None else read_credential_file(self.key),
            certificate_chain=None if self.certificate is None else read_credential_file(self.certificate),
        )

    def bearer(self) -> str:
        """Returns the value of the ``authorization`` header. A token has to be configured. Raises
        CredentialsUnusable."""
        assert self.token_file is not None
        return f"Bearer {read_credential_file(self.token_file).decode('ascii', 'replace').strip()}"


NO_CREDENTIALS: Final = Credentials()
"""Credentials for plain text without an identity, regardless of the environment."""


class _TokenChannel(grpc.aio.Channel):
    """A channel whose calls carry a token. It does not use interceptors, because they change how streams are
    written."""

    def __init__(self, channel: grpc.aio.Channel, bearer: Callable[[], str]) -> None:
        self._channel = channel
        self._bearer = bearer

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._channel.__aexit__(*error)

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def unary_unary(self, *arguments: Any, **named: Any) -> Any:
        return self._with_token(self._channel.unary_unary(*arguments, **named))

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        return self._with_token(self._channel.unary_stream(*arguments, **named))

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        return self._with_token(self._channel.stream_unary(*arguments, **named))

    def stream_stream(self, *arguments: Any, **named: Any) -> Any:
        return self._with_token(self._channel.stream_stream(*arguments, **named))

    def _with_token(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def start(*arguments: Any, metadata: Any = None, **named: Any) -> Any:
            said = (*(metadata or ()), ("authorization", self._bearer()))
            return call(*arguments, metadata=said, **named)

        return start


def read_credential_file(path: Path) -> bytes:
    """Returns the content of *path*. Raises CredentialsUnusable."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialsUnusable(f"{path}: {error.strerror or error}") from error
