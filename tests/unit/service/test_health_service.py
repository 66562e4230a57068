"""Health as callers see it: told at once, whoever else does not read, and bounded whoever asks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb

from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.services import health_service
from kornel.core.service.services.health_service import LONGEST_NAME, HealthService

SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING


class Peer:
    """The server's side of a watch whose client reads when :attr:`reads` is set."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.reads = asyncio.Event()
        self.heard: list[int] = []
        self.code: Any = None
        self._host = host

    def peer(self) -> str:
        return f"ipv6:%5B{self._host}%5D:4711" if ":" in self._host else f"ipv4:{self._host}:4711"

    async def write(self, raw: bytes) -> None:
        await self.reads.wait()
        self.heard.append(pb.HealthCheckResponse.FromString(raw).status)

    async def abort(self, code: Any, details: str, trailing: Any) -> None:
        self.code = code
        raise asyncio.CancelledError


class Watched:
    """A health service, and watches of it."""

    def __init__(self) -> None:
        self.health = HealthService(build_logger(LogFormat.CONSOLE, LogLevel.ERROR))
        self.health.set_serving("", True)
        self.tasks: list[asyncio.Task[None]] = []

    async def watch(self, peer: Peer, service: str = "") -> None:
        raw = pb.HealthCheckRequest(service=service).SerializeToString()
        self.tasks.append(asyncio.ensure_future(self.health._watch(raw, peer)))  # type: ignore[arg-type]
        await turns()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                await task


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_does_not_read_holds_up_nobody() -> None:
    """Others hear each change at once; whoever reads again hears what holds now, and not what lay between."""
    watched, slow, quick = Watched(), Peer(), Peer()
    quick.reads.set()
    await watched.watch(slow)
    await watched.watch(quick)
    for serving in (False, True, False):
        watched.health.set_serving("", serving)
        await turns()
    assert quick.heard == [SERVING, NOT_SERVING, SERVING, NOT_SERVING]
    slow.reads.set()
    await turns()
    assert slow.heard == [SERVING, NOT_SERVING]
    await watched.close()


async def test_a_service_that_nobody_serves_may_appear_later() -> None:
    watched, peer = Watched(), Peer()
    peer.reads.set()
    await watched.watch(peer, "later")
    watched.health.set_serving("later", True)
    await turns()
    assert peer.heard == [pb.HealthCheckResponse.SERVICE_UNKNOWN, SERVING]
    await watched.close()


async def test_nothing_serves_any_more_once_it_leaves() -> None:
    watched, peer = Watched(), Peer()
    peer.reads.set()
    await watched.watch(peer)
    watched.health.stop_serving()
    watched.health.set_serving("", True)
    await turns()
    assert peer.heard == [SERVING, NOT_SERVING]
    await watched.close()


async def test_names_and_watches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long name is refused, and so is a watch too many, of one host or of all; an ended one makes room."""
    monkeypatch.setattr(health_service, "MOST_WATCHERS", 3)
    monkeypatch.setattr(health_service, "MOST_OF_ONE_HOST", 2)
    watched, long = Watched(), Peer()
    await watched.watch(long, "x" * (LONGEST_NAME + 1))
    assert long.code is grpc.StatusCode.INVALID_ARGUMENT
    peers = [Peer("10.0.0.1"), Peer("10.0.0.1"), Peer("10.0.0.1"), Peer("10.0.0.2"), Peer("10.0.0.3")]
    for peer in peers:
        await watched.watch(peer)
    assert [peer.code for peer in peers] == [
        None,
        None,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        None,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ]
    assert watched.health.watchers == 3
    await watched.close()
    assert watched.health.watchers == 0


async def test_a_block_of_ipv6_has_the_watches_of_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_service, "MOST_OF_ONE_HOST", 2)
    watched = Watched()
    peers = [Peer(host) for host in ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1")]
    for peer in peers:
        await watched.watch(peer)
    assert [peer.code for peer in peers] == [None, None, grpc.StatusCode.RESOURCE_EXHAUSTED, None]
    await watched.close()


async def test_a_core_that_leads_again_serves_again() -> None:
    """Who asks while another core may lead hears that nothing serves; that is true of that moment only."""
    lapsed = True
    health = HealthService(build_logger(LogFormat.CONSOLE, LogLevel.ERROR), lambda: lapsed)
    health.set_serving("", True)

    async def ask_all() -> set[int]:
        checked = await health._check(pb.HealthCheckRequest())
        listed = await health._list_services(None)
        return {checked.status, *(answer.status for answer in listed.statuses.values())}

    assert await ask_all() == {NOT_SERVING}
    lapsed = False
    assert await ask_all() == {SERVING}
