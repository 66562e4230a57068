"""The address at which a core listens is its own, whatever name it is given."""

from __future__ import annotations

import socket

import grpc
import pytest

from kornel.core.process.grpc_transport import OPTIONS, listen_at
from kornel.core.process.server_settings import AddressUnavailable

LOCAL_NAMES = [
    (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
]


async def test_a_port_that_is_taken_at_one_of_several_addresses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """``localhost`` stands for ``::1`` and ``127.0.0.1``, and gRPC would go on with ``::1`` alone."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        found = [(*entry, (place[0], port, *place[2:])) for *entry, place in LOCAL_NAMES]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
        server = grpc.aio.server(options=OPTIONS)
        with pytest.raises(AddressUnavailable, match=f"127.0.0.1 port {port} is taken"):
            listen_at(server, f"localhost:{port}", None)
        await server.stop(None)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_free_port_is_opened_again_after_its_owner_has_ended(host: str) -> None:
    server = grpc.aio.server(options=OPTIONS)
    address = listen_at(server, f"{host}:0", None)
    await server.start()
    await server.stop(None)
    another = grpc.aio.server(options=OPTIONS)
    assert listen_at(another, address, None) == address
    await another.stop(None)


async def test_a_name_that_nobody_knows_is_refused() -> None:
    server = grpc.aio.server(options=OPTIONS)
    with pytest.raises(AddressUnavailable, match=r"nowhere\.invalid"):
        listen_at(server, "nowhere.invalid:17", None)
    await server.stop(None)
