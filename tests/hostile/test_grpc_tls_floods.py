"""The floods of the gRPC port again, by somebody who gets through the handshake: the core demands no certificate."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.e2e import raw_http2 as h2
from tests.e2e.security.site import HOST, Authority
from tests.hostile.attacked import HEALTH_S, MEMORY_MIB, PROCESSOR_S, AttackedCore, attacked_core
from tests.hostile.test_grpc_floods import BOMBS, FLOODS, GREETING, bombs, call, pour, put_up_with

NAMED: Final = (("grpc.ssl_target_name_override", HOST),)


def _wait_for_health(check: Any) -> None:
    """Waits a minute at most until *check* is answered: among calls of an attacker at its address it may give way."""
    deadline = time.monotonic() + 60
    while True:
        try:
            check(health_pb2.HealthCheckRequest(), timeout=60)
        except grpc.RpcError:
            if time.monotonic() > deadline:
                raise
        else:
            return


class Secured:
    """A core over TLS, a client's side of it, and what an attack may cost."""

    def __init__(self, core: AttackedCore, trust: Path) -> None:
        self.core = core
        self._context = ssl.create_default_context(cafile=str(trust))
        self._context.set_alpn_protocols(["h2"])
        self._credentials = grpc.ssl_channel_credentials(trust.read_bytes())

    def connect(self) -> ssl.SSLSocket:
        host, _, port = self.core.address.rpartition(":")
        line = self._context.wrap_socket(socket.create_connection((host, int(port)), timeout=5), server_hostname=HOST)
        line.settimeout(1)
        return line

    @contextmanager
    def attack(
        self, *, memory_mib: float = MEMORY_MIB, health_s: float = HEALTH_S * 2, processor_s: float = PROCESSOR_S
    ) -> Iterator[None]:
        """Judge what happens within; health is asked for over a connection that was there before."""
        core, took, over = self.core, [0.0], threading.Event()
        with grpc.secure_channel(core.address, self._credentials, NAMED) as channel:
            check: Any = HealthStub(channel).Check  # type: ignore[attr-defined]
            check(health_pb2.HealthCheckRequest(), timeout=10)

            def ask() -> None:
                while not over.is_set():
                    began = time.monotonic()
                    with suppress(grpc.RpcError):
                        check(health_pb2.HealthCheckRequest(), timeout=10)
                    took.append(time.monotonic() - began)
                    over.wait(0.02)

            Path(f"/proc/{core.pid}/clear_refs").write_text("5", encoding="ascii")
            before, spent = core.memory_mib(), core.processor_s()
            asking = threading.Thread(target=ask)
            asking.start()
            try:
                yield
            finally:
                over.set()
                asking.join()
            _wait_for_health(check)
        status = Path(f"/proc/{core.pid}/status").read_text(encoding="ascii")
        highest = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024
        cost = (highest - before, max(took), core.processor_s() - spent)
        print(f"\n{cost[0]:.1f} MiB, {cost[1]:.3f} s, {cost[2]:.2f} s of the processor")
        assert cost[0] <= memory_mib
        assert cost[1] <= health_s
        assert cost[2] <= processor_s
        assert core.process.poll() is None


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("grpc-tls")
    ca = Authority(folder)
    pair = ca.issue("core", file="server")
    with attacked_core(
        folder, "--tls-cert", str(pair.certificate), "--tls-key", str(pair.key), open_=False
    ) as attacked:
        yield Secured(attacked, Path(ca.file))


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A core that asks who calls: a connection of it may have 256 calls instead of 32."""
    folder = tmp_path_factory.mktemp("grpc-tls-rules")
    ca = Authority(folder)
    pair = ca.issue("core", file="server")
    rules = folder / "security.yaml"
    rules.write_text('rules:\n  - who: ["cn:shim"]\n    managers: [rm-1]\n', encoding="utf-8")
    with attacked_core(
        folder,
        *("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key), "--security", str(rules)),
        open_=False,
    ) as attacked:
        yield Secured(attacked, Path(ca.file))


@pytest.mark.parametrize("name", FLOODS)
def test_floods_of_frames(secured: Secured, name: str) -> None:
    """Settings, resets, calls, headers of all kinds."""
    first, pieces = FLOODS[name]
    with secured.attack(), ExitStack() as held:
        for _ in range(1 if "headers" in name else 3):
            line = held.enter_context(secured.connect())
            with suppress(OSError):
                line.sendall(GREETING + first)
            pour(line, pieces())


def test_pings(secured: Secured) -> None:
    pings: Iterable[bytes] = itertools.repeat(h2.frame(h2.PING, 0, 0, b"x" * 8) * 2_000)
    with secured.attack(processor_s=4), secured.connect() as line:
        line.sendall(GREETING)
        pour(line, pings)


@pytest.mark.parametrize("kind", BOMBS)
def test_headers_that_unfold(secured: Secured, kind: str) -> None:
    with put_up_with(secured.attack, connections=1), secured.connect() as line:
        line.sendall(GREETING)
        assert pour(line, bombs(kind)) < 16 << 20


@pytest.mark.parametrize("kind", BOMBS)
def test_headers_that_unfold_where_everybody_is_asked_who_they_are(ruled: Secured, kind: str) -> None:
    """With eight times the calls of a connection at once, all by somebody who is nobody."""
    with put_up_with(ruled.attack, connections=1), ruled.connect() as line:
        line.sendall(GREETING)
        assert pour(line, bombs(kind)) < 16 << 20


@pytest.mark.parametrize("kind", BOMBS)
def test_headers_that_unfold_over_sixteen_connections_of_nobody(ruled: Secured, kind: str) -> None:
    def bomb() -> None:
        with suppress(OSError), ruled.connect() as line:
            line.sendall(GREETING)
            pour(line, bombs(kind))

    with put_up_with(ruled.attack, connections=16):
        bombers = [threading.Thread(target=bomb) for _ in range(16)]
        for bomber in bombers:
            bomber.start()
        for bomber in bombers:
            bomber.join()


def test_streams_that_say_nothing(secured: Secured) -> None:
    """Sixty connections with 200 streams each: of a connection 32 are let in."""
    with secured.attack(processor_s=4, health_s=1.0), ExitStack() as held:
        for _ in range(60):
            with suppress(OSError):
                line = held.enter_context(secured.connect())
                line.sendall(GREETING + b"".join(call(number) for number in range(1, 401, 2)))


def test_handshakes_that_do_not_go_on(secured: Secured) -> None:
    """Plain connections that begin a handshake, or not even that: the newest are cut beyond 64 of an address."""
    host, _, port = secured.core.address.rpartition(":")
    with secured.attack(processor_s=4), ExitStack() as held:
        for _ in range(200):
            with suppress(OSError):
                plain = held.enter_context(socket.create_connection((host, int(port)), timeout=5))
                plain.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
