"""The security of the scripted core's server: plain text or TLS, with or without credentials of the shim."""

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
    """The credentials of the server, and those that it demands. If all are empty, it serves in plain text and demands
    none.

    certificate  PEM chain, with ``key``: the certificate that shims are shown
    client_ca    PEM: the CA that must have signed the certificate of a shim
    handed_out   the credentials in the shim's environment; if they contain a token, every call must carry it
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
        """Makes *server* listen, and returns the port. Raises CredentialsUnusable."""
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
        # A refusal has the same form for all kinds of call.
        return grpc.stream_stream_rpc_method_handler(_refuse_call)


async def _refuse_call(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the bearer token that the kit handed out was not shown")
    yield b""  # Never reached: it makes this a stream.
