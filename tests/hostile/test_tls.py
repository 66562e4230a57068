"""What TLS agrees to."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest

from tests.e2e.security.site import HOST, Authority
from tests.hostile.attacked import AttackedCore, attacked_core


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AttackedCore, ssl.SSLContext]]:
    """A core over TLS, and a client's side of it."""
    folder = tmp_path_factory.mktemp("tls")
    ca = Authority(folder)
    pair = ca.issue("core", file="server")
    with attacked_core(
        folder, "--tls-cert", str(pair.certificate), "--tls-key", str(pair.key), open_=False
    ) as attacked:
        yield attacked, ssl.create_default_context(cafile=ca.file)


@pytest.mark.parametrize("port", ["HTTP", "gRPC"])
@pytest.mark.parametrize("suites", ["AES128-SHA256:AES256-SHA", "ECDHE-RSA-AES128-SHA256:ECDHE-RSA-AES256-SHA", "kRSA"])
def test_suites_that_are_not_good_enough(secured: tuple[AttackedCore, ssl.SSLContext], port: str, suites: str) -> None:
    """With CBC, or without forward secrecy."""
    core, good = secured
    client = ssl.create_default_context()
    client.load_verify_locations(cadata="".join(ssl.DER_cert_to_PEM_cert(der) for der in good.get_ca_certs(True)))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(f"{suites}:@SECLEVEL=0")
    client.set_alpn_protocols(["h2"] if port == "gRPC" else ["http/1.1"])
    host, _, number = (core.address if port == "gRPC" else core.http).rpartition(":")
    with socket.create_connection((host, int(number)), timeout=5) as plain, pytest.raises((ssl.SSLError, OSError)):
        client.wrap_socket(plain, server_hostname=HOST)
