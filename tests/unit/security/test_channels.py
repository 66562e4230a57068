"""Every client of the command line connects as it was told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.cli.client.channels import make_channel
from kornel.cli.client.connection import Connection, ConnectionNotPossible

ROOT = Path(__file__).parents[3]


def test_channels_are_opened_in_one_place() -> None:
    """Another place would know neither certificates nor tokens."""
    opening = [
        path.relative_to(ROOT).as_posix()
        for folder in ("core", "cli")
        for path in (ROOT / folder).rglob("*.py")
        if any(call in path.read_text() for call in ("insecure_channel(", "secure_channel("))
    ]
    assert opening == ["cli/client/channels.py"]


def test_tokens_stay_on_this_machine_without_tls(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    connection = Connection(token_file=token)
    for address in ("127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/tmp/x"):
        make_channel(connection, address).close()
    for address in ("core.example.org:1", "10.0.0.1:1", "127.0.0.1.example.org:1"):
        with pytest.raises(ConnectionNotPossible, match="plain text"):
            make_channel(connection, address)
