"""Certificates that we make pass the strict checks of RFC 5280, which CPython makes by default from 3.13 on."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kornel.core.security.authority import Authority as SiteAuthority
from tests.e2e.security.site import HOST, Authority
from tests.unit.service.resolvers.slapd import make_certificates


class Made(NamedTuple):
    """Files: of a CA, and the certificate and key of a server, and perhaps of a client."""

    ca: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path] | None
    host: str


def by_the_command(folder: Path) -> Made:
    """``kornel security certificate``."""
    site = SiteAuthority(folder)
    server = site.issue_certificate("core", ["core.example.org", "127.0.0.1"])
    return Made(site.certificate_path, server, site.issue_certificate("shim-1"), "core.example.org")


def by_the_tests(folder: Path) -> Made:
    ca = Authority(folder)
    server, client = ca.issue("core"), ca.issue("shim-1", names=())
    return Made(ca.file, (server.certificate, server.key), (client.certificate, client.key), HOST)


def by_openssl(folder: Path) -> Made:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    make_certificates(folder)
    return Made(folder / "ca.pem", (folder / "server.pem", folder / "server.key"), None, "localhost")


@pytest.mark.parametrize("make", [by_the_command, by_the_tests, by_openssl])
def test_both_sides_accept_each_other(make: Callable[[Path], Made], tmp_path: Path) -> None:
    """In a handshake in memory, in which each side checks strictly."""
    made = make(tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made.ca)
    serving.load_cert_chain(*made.server)
    calling = ssl.create_default_context(cafile=made.ca)
    if made.client is not None:
        calling.load_cert_chain(*made.client)
        serving.verify_mode = ssl.CERT_REQUIRED
    for context in (serving, calling):
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = calling.wrap_bio(to_client, to_server, server_hostname=made.host)
    waiting = [client, server]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    assert not waiting
    assert bool(server.getpeercert()) is (made.client is not None)
