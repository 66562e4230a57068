"""Which connections are cut when there are too many, by sockets of the test's own."""

from __future__ import annotations

import pytest
import structlog

from kornel.core.service.connections import connections
from kornel.core.service.connections.connections import Cause, ConnectionKeeper, ConnectionLimits
from kornel.core.service.machine.own_sockets import Peer


class Sockets:
    """Connections that the kernel would show: by name, with their descriptors."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[int, Peer]] = {}
        self.cut: list[str] = []

    def connect(self, *names: str) -> None:
        for name in names:
            descriptor = 1_000 + len(self.open) + len(self.cut)
            self.open[name] = (descriptor, Peer(name, name.rpartition(":")[0], counted=True))

    def connections(self) -> list[tuple[int, Peer]]:
        return list(self.open.values())

    def hang_up(self, _descriptor: int, peer: Peer) -> bool:
        self.cut.append(peer.name)
        return True

    def close_cut(self) -> None:
        for name in self.cut:
            self.open.pop(name, None)


class Times:
    """Stands in for the module of time, and goes on by a second whenever a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def tick(self) -> None:
        self.now_s += 1.0


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    times = Times()
    monkeypatch.setattr(connections, "time", times)
    monkeypatch.setattr(connections, "received_bytes", lambda _descriptor: 100)
    return times


def keeper_of(sockets: Sockets, **limits: int) -> ConnectionKeeper:
    keeper = ConnectionKeeper(ConnectionLimits(**limits), structlog.get_logger())
    keeper._sockets = sockets  # type: ignore[assignment]
    return keeper


def test_who_is_idle_for_longest_gives_way(times: Times) -> None:
    """Those that never had a call first, then strangers that have one; a resource manager stays."""
    sockets = Sockets()
    keeper = keeper_of(sockets, connections=5)
    for name in ("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"):
        sockets.connect(name)
        times.tick()
        keeper._check_connections()
    manager, _, used = (keeper.begin_call(f"10.0.0.{number}:1") for number in (1, 2, 3))
    manager.manager = True
    manager.calls = used.calls = 0
    left = ["10.0.0.4:1", "10.0.0.5:1", "10.0.0.3:1"]
    for number in range(6, 9):
        times.tick()
        name = f"10.0.0.{number}:1"
        sockets.connect(name)
        keeper.begin_call(name)
        keeper._check_connections()
        assert sockets.cut == left[: number - 5]
        keeper._check_connections()
        assert sockets.cut == left[: number - 5], "what was cut does not count any more, open or not"
        sockets.close_cut()
    times.tick()
    sockets.connect("10.0.0.9:1")
    keeper.begin_call("10.0.0.9:1")
    keeper._check_connections()
    assert sockets.cut == [*left, "10.0.0.2:1"], "all others are in use, and this one for longest"
    assert keeper.cuts == {Cause.MANY: 4}


def test_one_address_makes_room_by_its_own_connections(times: Times) -> None:
    sockets = Sockets()
    keeper = keeper_of(sockets, host_connections=2, connections=3)
    for name in ("10.0.0.1:1", "10.0.0.2:1", "10.0.0.2:2", "10.0.0.2:3"):
        sockets.connect(name)
        times.tick()
        keeper._check_connections()
    assert sockets.cut == ["10.0.0.2:1"]


def test_addresses_of_one_block_count_together(times: Times) -> None:
    """Whoever has an address of IPv6 has 2^64 of them."""
    sockets = Sockets()
    keeper = keeper_of(sockets, host_connections=2)
    sockets.connect("2001:db8::1:4001", "2001:db8:0:1::1:4001")
    keeper._check_connections()
    times.tick()
    sockets.connect("2001:db8::2:4001", "2001:db8:0:0:7::3:4001")
    keeper._check_connections()
    assert sockets.cut == ["2001:db8::1:4001"]


def test_a_condemned_connection_is_forgotten_once_it_is_closed(times: Times) -> None:
    """Whether the keeper ever saw it or not; until then it is condemned only once."""
    sockets = Sockets()
    keeper = keeper_of(sockets)
    sockets.connect("10.0.0.1:1")
    keeper._check_connections()
    for _ in range(2):
        keeper.cut_connection("10.0.0.1:1")
        keeper.cut_connection("10.0.0.2:1")
    assert sockets.cut == ["10.0.0.1:1"]
    for _ in range(3):
        times.tick()
        keeper._check_connections()
    assert set(keeper._condemned) == {"10.0.0.1:1"}
    sockets.close_cut()
    times.tick()
    keeper._check_connections()
    assert not keeper._condemned


class Memory:
    """The memory of a process, as a test sets it."""

    counts_used = True

    def __init__(self) -> None:
        self.mib = 100

    def used_bytes(self) -> int:
        return self.mib << 20


class Unfolding:
    """A keeper that sees one new connection, which is ahead, and the memory of the process."""

    def __init__(self, times: Times) -> None:
        self.building = False
        self.memory = Memory()
        self.sockets = Sockets()
        self.sockets.connect("10.0.0.1:1")
        self.keeper = ConnectionKeeper(ConnectionLimits(), structlog.get_logger(), lambda: self.building)
        self.keeper._sockets = self.sockets  # type: ignore[assignment]
        self.keeper._memory = self.memory  # type: ignore[assignment]
        self.keeper._cut_unfolding([], 0)
        ((self.descriptor, self.peer),) = self.sockets.connections()

    def cuts(self, ahead: int) -> bool:
        """Whether the connection is cut, being *ahead* by so many bytes."""
        before = self.keeper.cut
        self.keeper._cut_unfolding([connections._Ahead(ahead, self.descriptor, self.peer, False)], ahead)
        return self.keeper.cut > before


def test_memory_that_headers_cannot_have_taken_is_nobodys_fault(times: Times) -> None:
    """A manager that registers while another one brings its cluster is not cut for the memory of that."""
    unfolding = Unfolding(times)
    unfolding.memory.mib += 100
    assert not unfolding.cuts(100_000)
    assert unfolding.cuts(1_000_000)


def test_configurations_that_are_built_may_take_memory(times: Times) -> None:
    """Of two managers that register at once, the second is not cut for what the first one's configuration takes."""
    unfolding = Unfolding(times)
    unfolding.building = True
    unfolding.memory.mib += 200
    assert not unfolding.cuts(2_000_000)
    unfolding.building = False
    assert not unfolding.cuts(2_000_000), "what was built stays"
    unfolding.memory.mib += 10
    assert not unfolding.cuts(2_000_000)
    unfolding.memory.mib += 10
    assert unfolding.cuts(2_000_000)


def test_headers_are_bounded_while_a_configuration_is_built(times: Times) -> None:
    unfolding = Unfolding(times)
    unfolding.building = True
    unfolding.memory.mib += 300
    assert unfolding.cuts(10_000_000)
