"""The command line's channels to a core: in plain text, or with TLS and a client certificate or a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.cli.client.connection import CONNECTION, Connection, ConnectionNotPossible
from kornel.shared.addresses import stays_on_this_machine

AUTHORIZATION: Final = "authorization"

MESSAGE_LIMIT: Final = 64 * 1024 * 1024
"""The most bytes of one message, which a core keeps to as well."""

SCHEDULER: Final = "si.v1.Scheduler"
"""The service whose health tells whether a core leads."""

ASKED_S: Final = 2.0
"""The time that each of several cores may take to answer."""


def open_channel(address: str) -> grpc.Channel:
    """Returns a channel with the connection options of the command line. Raises :class:`ConnectionNotPossible`.

    *address*: the address of the core, or of several cores, separated by commas; then the channel is to the one that
    leads.
    """
    connection = CONNECTION.get(Connection())
    return make_channel(connection, choose_address(connection, address))


def choose_address(connection: Connection, address: str, timeout_s: float = ASKED_S) -> str:
    """Returns the address in *address* whose core leads; if none does, the first that answers.

    Raises :class:`ConnectionNotPossible`.
    """
    addresses = [part.strip() for part in address.split(",") if part.strip()]
    if len(addresses) < 2:
        return address.strip().strip(",")
    answers: Queue[tuple[str, bool | None]] = Queue()
    with ExitStack() as channels:
        for each in addresses:
            channel = channels.enter_context(make_channel(connection, each))
            check: Any = HealthStub(channel).Check  # type: ignore[attr-defined]  # the type stubs leave it out
            future = check.future(health_pb2.HealthCheckRequest(service=SCHEDULER), timeout=timeout_s)
            future.add_done_callback(lambda done, each=each: answers.put((each, _read_leads(done))))
        found = {}
        for _ in addresses:
            each, leads = answers.get()
            if leads:
                return each
            found[each] = leads
    return next((each for each in addresses if found[each] is not None), addresses[0])


def _read_leads(answer: Any) -> bool | None:
    """Tells whether *answer* says that the core leads; ``None``: there is none."""
    if answer.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND):
        return True  # It is an older core, which has no leader.
    if answer.code() is not grpc.StatusCode.OK:
        return None
    return bool(answer.result().status == health_pb2.HealthCheckResponse.SERVING)


def make_channel(connection: Connection, address: str) -> grpc.Channel:
    """Returns a channel to *address*. Raises :class:`ConnectionNotPossible`."""
    credentials = _make_credentials(connection, address)
    options = _channel_options(connection)
    if credentials is None:
        channel = grpc.insecure_channel(address, options)
    else:
        channel = grpc.secure_channel(address, credentials, options)
    if connection.token_file is None:
        return channel
    return grpc.intercept_channel(channel, _Token(_bearer_token(connection.token_file)))


def make_aio_channel(connection: Connection, address: str) -> grpc.aio.Channel:
    """Returns a channel for asyncio, whose calls have to carry :func:`make_metadata`; of several addresses, to the core
    that leads. Raises :class:`ConnectionNotPossible`."""
    address = choose_address(connection, address)
    credentials, options = _make_credentials(connection, address), _channel_options(connection)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def make_metadata(connection: Connection) -> tuple[tuple[str, str], ...]:
    """Returns the caller's token as metadata, for calls on :func:`make_aio_channel`."""
    return () if connection.token_file is None else ((AUTHORIZATION, _bearer_token(connection.token_file)),)


def _make_credentials(connection: Connection, address: str) -> grpc.ChannelCredentials | None:
    """Returns the credentials of a channel to *address*; ``None``: plain text."""
    if connection.ca is None and connection.certificate is None:
        if connection.token_file is not None and not stays_on_this_machine(address):
            raise ConnectionNotPossible(f"a token is not sent to {address} in plain text: give --ca FILE")
        return None
    return grpc.ssl_channel_credentials(
        _read_bytes(connection.ca), _read_bytes(connection.key), _read_bytes(connection.certificate)
    )


def _channel_options(connection: Connection) -> list[tuple[str, Any]]:
    limits = [("grpc.max_receive_message_length", MESSAGE_LIMIT), ("grpc.max_send_message_length", MESSAGE_LIMIT)]
    named = [("grpc.ssl_target_name_override", connection.server_name)] if connection.server_name else []
    return [*limits, *named]


def _bearer_token(file: Path) -> str:
    token = _read_bytes(file)
    assert token is not None
    return f"Bearer {token.decode('ascii', 'replace').strip()}"


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


def _read_bytes(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConnectionNotPossible(f"{path}: {error.strerror or error}") from error
