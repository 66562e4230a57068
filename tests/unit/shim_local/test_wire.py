"""The proof of a shared secret: who does not have it gets nowhere, on either side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kornel.shim_local.machine.capacity import Capacity
from kornel.shim_local.server.settings import Settings, SettingsError, split_address
from kornel.shim_local.server.wire import WireError, admit_peer, prove_token, read_message, write_message

TOKEN = "a token that both have"
Side = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]


async def converse(server: Side, client: Side) -> tuple[object, object]:
    """Returns what both sides of a connection return, or raise."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            done.set_result(await server(reader, writer))
        except WireError as error:
            done.set_result(error)
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, limit=4096)
    async with listener:
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname(), limit=4096)
        try:
            answer = await client(reader, writer)
        except WireError as error:
            answer = error
        finally:
            writer.close()
        return await done, answer


async def test_who_has_the_token_is_admitted() -> None:
    for role in ("agent", "command"):
        admitted, _ = await converse(
            lambda reader, writer: admit_peer(reader, writer, TOKEN),
            lambda reader, writer, role=role: prove_token(reader, writer, TOKEN, role),  # type: ignore[misc]
        )
        assert admitted == role


async def test_who_has_another_is_not() -> None:
    """And learns why."""
    refused, said = await converse(
        lambda reader, writer: admit_peer(reader, writer, TOKEN),
        lambda reader, writer: prove_token(reader, writer, "another", "agent"),
    )
    assert str(refused) == "a peer does not have the token"
    assert str(said) == "the token is not that of this server"


async def test_a_server_without_the_token_is_found_out() -> None:
    """An agent would run what it says."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        write_message(writer, {"nonce": "x"})
        await read_message(reader)
        write_message(writer, {"proof": "x"})

    _, said = await converse(pretend, lambda reader, writer: prove_token(reader, writer, TOKEN, "agent"))
    assert "it is not the server of this agent" in str(said)


@pytest.mark.parametrize("line", [b"no json\n", b"[1]\n", b"{" + b" " * 5000 + b"}\n"])
async def test_nonsense_is_an_error(line: bytes) -> None:
    async def write(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line)

    read, _ = await converse(lambda reader, _: read_message(reader), write)
    assert isinstance(read, WireError)


def test_others_are_not_listened_to_in_the_clear(tmp_path: Path) -> None:
    """Unless somebody insists."""
    capacity = Capacity(1, 1, 0)
    Settings(tmp_path, "n", capacity, listen="127.0.0.1:1").check()
    Settings(tmp_path, "n", capacity, listen="0.0.0.0:1", insecure_anywhere=True).check()
    with pytest.raises(SettingsError, match="nothing would be encrypted"):
        Settings(tmp_path, "n", capacity, listen="0.0.0.0:1").check()
    with pytest.raises(SettingsError, match="too long for a socket"):
        Settings(tmp_path / ("x" * 100), "n", capacity).check()
    assert split_address("[::1]:80") == ("::1", 80)
    with pytest.raises(SettingsError, match="write host:port"):
        split_address("nowhere")
