"""The context for HTTPS: who may connect, and new files under open connections."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kornel.core.security.errors import SecurityError
from kornel.core.security.tls import Tls, TlsFiles, peer_certificate
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from tests.e2e.security.site import HOST, Authority, Pair, secured
from tests.patience import PATIENCE_S


@asynccontextmanager
async def echoing(tls: Tls) -> AsyncIterator[int]:
    """A server that answers every line with the length of the client's certificate."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await writer.start_tls(tls.make_context())
        except OSError:
            writer.close()
            return
        while await reader.readline():
            certificate = peer_certificate(writer.get_extra_info("ssl_object"))
            writer.write(f"{len(certificate or b'')}\n".encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Line:
    """A TLS connection that asks line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def open(
        cls, port: int, ca: Path, pair: Pair | None = None, *, version: ssl.TLSVersion | None = None, name: str = HOST
    ) -> AsyncIterator[Line]:
        context = ssl.create_default_context(cafile=ca)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def ask(self) -> bytes:
        self._writer.write(b"who am I?\n")
        return await asyncio.wait_for(self._reader.readline(), PATIENCE_S)


async def refused(port: int, ca: Path, pair: Pair | None = None) -> bool:
    try:
        async with Line.open(port, ca, pair) as line:
            return await line.ask() == b""  # With TLS 1.3 a client learns that it was refused only when it reads.
    except (ssl.SSLError, ConnectionError):
        return True


def tls_of(pair: Pair, client_ca: Path | None = None, output: io.StringIO | None = None) -> Tls:
    logger = build_logger(LogFormat.CONSOLE, LogLevel.DEBUG, output or io.StringIO())
    return Tls(TlsFiles(pair.certificate, pair.key, client_ca), logger)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_client_certificates_are_demanded(
    ca: Authority, server_pair: Pair, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    strangers = Authority(tmp_path, "elsewhere")
    async with echoing(tls_of(server_pair, ca.file)) as port:
        async with Line.open(port, ca.file, ca.issue("ann"), version=version) as line:
            assert int(await line.ask()) > 100
        assert await refused(port, ca.file)
        assert await refused(port, ca.file, strangers.issue("ann", file="forged"))
        assert await refused(port, ca.file, ca.issue("old", first_day=-9, last_day=-1))


async def test_without_a_client_authority_none_is_asked_for(ca: Authority, server_pair: Pair) -> None:
    async with echoing(tls_of(server_pair)) as port, Line.open(port, ca.file, ca.issue("ann")) as line:
        assert await line.ask() == b"0\n"


async def test_new_files_count_for_new_connections(ca: Authority, server_pair: Pair, tmp_path: Path) -> None:
    """Certificate and client authority alike; open connections go on."""
    new = Authority(tmp_path, "new")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(ca.file.read_bytes())
    tls = tls_of(server_pair, clients)
    old_client, new_client = ca.issue("ann"), new.issue("ann", file="new-ann")
    async with echoing(tls) as port, Line.open(port, ca.file, old_client) as before:
        await before.ask()
        replacement = new.issue("core", file="replacement")
        replacement.certificate.replace(server_pair.certificate)
        replacement.key.replace(server_pair.key)
        clients.write_bytes(new.file.read_bytes())
        tls.reload()
        assert await refused(port, ca.file, old_client), "the certificate is another one"
        assert await refused(port, new.file, old_client), "its authority does not count any more"
        async with Line.open(port, new.file, new_client) as line:
            assert int(await line.ask()) > 100
        assert int(await before.ask()) > 100


async def test_old_versions_of_tls_are_refused(ca: Authority, server_pair: Pair) -> None:
    assert tls_of(server_pair).make_context().minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_files_that_cannot_be_used_are_refused_with_a_reason(
    ca: Authority, server_pair: Pair, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.pem"
    other = ca.issue("other")
    text = tmp_path / "text.pem"
    text.write_text("no PEM")
    for files, said in (
        (TlsFiles(missing, server_pair.key), "No such file"),
        (TlsFiles(server_pair.certificate, other.key), "do not match"),
        (TlsFiles(text, server_pair.key), "not usable as PEM"),
        (TlsFiles(server_pair.certificate, server_pair.key, text), "not usable as PEM"),
    ):
        with pytest.raises(SecurityError, match=said):
            Tls(files, build_logger(LogFormat.CONSOLE, LogLevel.ERROR))


def test_suites_with_cbc_are_not_offered(ca: Authority, server_pair: Pair) -> None:
    names = [suite["name"] for suite in tls_of(server_pair).make_context().get_ciphers()]
    assert names
    assert all("GCM" in name or "CHACHA20" in name or "CCM" in name for name in names), names


def test_a_key_that_everybody_can_read_is_told_of(ca: Authority, server_pair: Pair) -> None:
    output = io.StringIO()
    server_pair.key.chmod(0o640)
    tls = tls_of(server_pair, output=output)
    assert "private key" not in output.getvalue()
    server_pair.key.chmod(0o644)
    tls.reload()
    assert "can be read by everybody" in output.getvalue()
    assert str(server_pair.key) in output.getvalue()
    assert "0644" in output.getvalue()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_does_not_outlive_the_files_it_began_with(
    tmp_path: Path, ca: Authority, server_pair: Pair, version: ssl.TLSVersion
) -> None:
    """Over the served core: after the client authority was replaced, nobody resumes what the former one let in."""
    clients = tmp_path / "clients.pem"
    clients.write_bytes(ca.file.read_bytes())
    async with secured(tmp_path, ca=ca.file, server=server_pair, client_ca=clients, rest_address="127.0.0.1:0") as site:
        host, _, port = site.server.rest_address.rpartition(":")
        pair = ca.issue("ann")
        context = ssl.create_default_context(cafile=ca.file)
        context.minimum_version = context.maximum_version = version
        context.load_cert_chain(pair.certificate, pair.key)

        def get(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
            with (
                socket.create_connection((host, int(port)), PATIENCE_S) as plain,
                context.wrap_socket(plain, server_hostname=HOST, session=session) as line,
            ):
                line.sendall(b"GET /ws/v1/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return line.recv(12), line.session

        found, session = await asyncio.to_thread(get, None)
        assert found == b"HTTP/1.1 200"
        clients.write_bytes(Authority(tmp_path, "another").file.read_bytes())
        assert site.security.tls is not None
        site.security.tls.reload()
        try:
            found, _ = await asyncio.to_thread(get, session)
        except (ssl.SSLError, ConnectionError):
            found = b""
        assert found == b""
