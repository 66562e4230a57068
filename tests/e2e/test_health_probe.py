"""The plain `kornel health` that probes run every few seconds: it asks real cores without importing gRPC."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kornel.cli.client.health_probe import TlsFiles, probe_health
from kornel.cli.connection_options import OF_A_COMMAND, OF_THE_WHOLE
from kornel.cli.entry import HEALTH_OPTIONS, read_health_options
from tests.e2e.security.test_commands import succeed
from tests.e2e.test_command import environment, kornel, serving
from tests.patience import PATIENCE_S

MOST_MODULES = 80
"""With the whole command there are more than six hundred."""

REPORTING_CODE = """
import sys
from kornel.cli.entry import main
main()
print(len(sys.modules), [name for name in ("grpc", "typer", "typing", "asyncio") if name in sys.modules])
"""


def probe(*arguments: str, **variables: str) -> tuple[str, int, str]:
    """What `kornel` with *arguments* says, how many modules it imported, and which of those that take long."""
    command = [sys.executable, "-S", "-c", REPORTING_CODE, *arguments]
    done = subprocess.run(command, env=environment() | variables, capture_output=True, text=True, check=True)
    said, last = done.stdout.splitlines()
    count, _, costly = last.partition(" ")
    return said, int(count), costly


@contextmanager
def answering(status: health_pb2.HealthCheckResponse.ServingStatus) -> Iterator[str]:
    """A server of gRPC that reports *status* and does nothing else."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    servicer.set("", status)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """A server that says *answer* to whoever connects, and closes the connection."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_core_that_serves_is_found_without_grpc(tmp_path: Path) -> None:
    """Over TCP, and with the address in the variable."""
    with serving(tmp_path) as (_, address):
        for arguments, variables in (
            (["health", "--grpc", address], {}),
            (["--core", address, "health"], {}),
            (["health"], {"KORNEL_ADDRESS": address}),
        ):
            said, count, costly = probe(*arguments, **variables)
            assert (said, costly) == ("SERVING", "[]")
            assert count <= MOST_MODULES


def test_a_core_on_a_socket_file_is_found_without_grpc(tmp_path: Path) -> None:
    """By each way of writing the path."""
    path = tmp_path / "core.sock"
    with serving(tmp_path, "--grpc", f"unix:{path}"):
        for address in (f"unix:{path}", f"unix://{path}"):
            said, _, costly = probe("health", "--grpc", address)
            assert (said, costly) == ("SERVING", "[]")


def test_a_secured_core_is_found_without_grpc(tmp_path: Path) -> None:
    """With its authority and a certificate of the caller, by another name than its address too, and never without."""
    succeed("security", "certificate", "core", "--host", "localhost", "--dir", str(tmp_path))
    succeed("security", "certificate", "probe", "--dir", str(tmp_path))
    policy = tmp_path / "security.yaml"
    policy.write_text("rules: [{who: ['cn:probe'], permissions: [read]}]")
    ca, own = str(tmp_path / "ca.pem"), (str(tmp_path / "probe.pem"), str(tmp_path / "probe-key.pem"))
    tls = ("--tls-cert", f"{tmp_path}/core.pem", "--tls-key", f"{tmp_path}/core-key.pem", "--tls-client-ca", ca)
    with serving(tmp_path, *tls, "--security", str(policy)) as (_, address):
        options = (f"--ca={ca}", f"--cert={own[0]}", f"--key={own[1]}")
        said, _, costly = probe(*options, "--server-name=localhost", "health", "--grpc", address)
        assert (said, costly) == ("SERVING", "[]")
        assert probe_health(address, TlsFiles(ca, *own, "localhost"), PATIENCE_S)
        assert not probe_health(address, TlsFiles(ca, *own, "elsewhere.example.org"), PATIENCE_S)
        assert not probe_health(address, TlsFiles(ca, server_name="localhost"), PATIENCE_S)
        assert not probe_health(address, TlsFiles(), PATIENCE_S)


def test_an_unready_core_is_told_from_one_that_serves() -> None:
    """Also without gRPC, since probes ask a core that stands by as often. Of other states the whole command tells."""
    with answering(health_pb2.HealthCheckResponse.SERVING) as address:
        assert probe_health(address, TlsFiles(), PATIENCE_S) == "SERVING"
    with answering(health_pb2.HealthCheckResponse.NOT_SERVING) as address:
        assert probe_health(address, TlsFiles(), PATIENCE_S) == "NOT_SERVING"
        done = kornel("health", "--grpc", address)
        assert (done.returncode, done.stdout) == (1, "NOT_SERVING\n")
    with answering(health_pb2.HealthCheckResponse.UNKNOWN) as address:
        assert not probe_health(address, TlsFiles(), PATIENCE_S)
        done = kornel("health", "--grpc", address)
        assert (done.returncode, done.stdout) == (1, "UNKNOWN\n")


def test_an_error_of_the_server_is_no_answer() -> None:
    """A server that does not know the call answers with headers alone."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    assert not probe_health(f"127.0.0.1:{port}", TlsFiles(), PATIENCE_S)
    server.stop(None).wait()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + bytes(8),
        b"\x00\x00\x07\x00\x09\x00\x00\x00\x01\x00\x00\x00\x00\x00\x02\x08\x01"[:12],
    ],
    ids=["closed", "another protocol", "goaway", "half a frame"],
)
def test_what_is_no_grpc_is_no_answer(answer: bytes) -> None:
    with saying(answer) as address:
        assert not probe_health(address, TlsFiles(), PATIENCE_S)


def test_nobody_there_is_said_by_the_whole_command() -> None:
    done = kornel("health", "--grpc", "127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["health", "--checks"],
        ["health", "--json"],
        ["health", "--timeout", "1"],
        ["health", "--help"],
        ["health", "--grpc"],
        ["health", "health"],
        ["--token-file", "t", "health"],
        ["--cert", "c.pem", "health"],
        ["queue", "health"],
        ["--grpc", "health"],
        ["status"],
    ],
)
def test_anything_else_is_for_the_whole_command(arguments: list[str]) -> None:
    assert read_health_options(arguments, {}) is None


def test_the_quick_check_knows_every_option_about_the_connection_but_the_token() -> None:
    """An option that is new for the whole command is read by the quick check too, or named here."""
    assert HEALTH_OPTIONS.keys() == (OF_THE_WHOLE | OF_A_COMMAND) - {"--token-file"}


def test_options_win_over_variables() -> None:
    environ = {"KORNEL_ADDRESS": "a:1", "KORNEL_CA": "ca.pem", "KORNEL_SERVER_NAME": "", "HOME": "/"}
    assert read_health_options(["health", "--core=b:2"], environ) == {"KORNEL_ADDRESS": "b:2", "KORNEL_CA": "ca.pem"}
    assert read_health_options(["health"], environ | {"KORNEL_TOKEN_FILE": "t"}) is None
