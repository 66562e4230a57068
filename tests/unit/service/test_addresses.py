"""Addresses that only processes of this machine can reach."""

from __future__ import annotations

import pytest

from kornel.shared.addresses import stays_on_this_machine


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:0", True),
        ("127.8.9.1:50051", True),
        ("localhost:0", True),
        ("[::1]:50051", True),
        ("ipv4:127.0.0.1:1", True),
        ("ipv6:[::1]:1", True),
        ("unix:/run/kornel.sock", True),
        ("unix-abstract:kornel", True),
        ("0.0.0.0:0", False),
        ("[::]:0", False),
        ("192.168.1.4:50051", False),
        ("core.example.org:50051", False),
        ("localhost.example.org:50051", False),
        ("127.0.0.1.example.org:1", False),
        (":50051", False),
        ("", False),
    ],
)
def test_loopback_and_sockets_stay_on_this_machine(address: str, local: bool) -> None:
    """Whatever is not certainly local counts as open to others."""
    assert stays_on_this_machine(address) is local
