"""The ways in which the scripted core admits shims: in plain text or over TLS, everybody or only with credentials."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from kornel.shim_client.credentials import NO_CREDENTIALS, Credentials, CredentialsUnusable, read_credential_file


@dataclass(frozen=True, slots=True)
class Listener:
    """The credentials of the server, and those it demands. All empty: plain text, and open.

    certificate  PEM chain, with ``key``: what shims are shown
    client_ca    PEM: who must have signed the certificate that a shim shows
    handed_out   what the shim finds in its environment; a token among it is demanded at every call
    """

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    handed_out: Credentials = NO_CREDENTIALS

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise CredentialsUnusable("--tls-cert and --tls-key belong together: one of them is missing")
        if self.client_ca is not None and self.certificate is None:
            raise CredentialsUnusable("--tls-client-ca needs --tls-cert and --tls-key")
        if self.handed_out.tls and self.certificate is None:
            raise CredentialsUnusable(
                "the shim is given TLS credentials (--ca or --cert, KORNEL_CA or KORNEL_CERT), but the scripted core"
                " would speak plain text: give --tls-cert and --tls-key, or do without them"
            )

    def make_interceptors(self) -> list[grpc.aio.ServerInterceptor]:
        """Returns the interceptors that calls have to pass. Raises CredentialsUnusable."""
        return [] if self.handed_out.token_file is None else [_TokenDemanded(self.handed_out.bearer())]

    def open_port(self, server: grpc.aio.Server, address: str) -> int:
        """Have *server* listen; returns the port. Raises CredentialsUnusable."""
        if self.certificate is None or self.key is None:
            return server.add_insecure_port(address)
        pair = (read_credential_file(self.key), read_credential_file(self.certificate))
        trusted = None if self.client_ca is None else read_credential_file(self.client_ca)
        try:
            credentials = grpc.ssl_server_credentials([pair], trusted, require_client_auth=trusted is not None)
            return server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise CredentialsUnusable(f"cannot serve with {self.certificate} and {self.key}: {error}") from error


OPEN_DOOR: Final = Listener()


class _TokenDemanded(grpc.aio.ServerInterceptor):
    def __init__(self, bearer: str) -> None:
        self._bearer = bearer.encode()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        shown = dict(details.invocation_metadata or ()).get("authorization", "")
        if hmac.compare_digest(shown.encode() if isinstance(shown, str) else shown, self._bearer):
            return await continuation(details)
        # On the wire a refusal looks the same for all kinds of call.
        return grpc.stream_stream_rpc_method_handler(_refuse_call)


async def _refuse_call(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the bearer token that the kit handed out was not shown")
    yield b""  # Never reached: it makes this a stream.
