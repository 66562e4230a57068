"""A signing key that its file or its issuer no longer has is gone, for calls, remembered tokens and open streams."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kornel.core.security.files import FollowedFiles
from kornel.core.security.jwks import REFRESH_NS
from kornel.core.security.security import Security, SecurityOptions
from tests.unit.security.test_guard import Site, good
from tests.unit.security.test_jwks import quiet
from tests.unit.security.test_oidc import GOOD, HEADER, OTHER, signed
from tests.waiting import until


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def settle(site: Site) -> None:
    """Waits until no key is being read."""
    keys = site.guard._keys
    assert keys is not None
    while keys._reading is not None:
        await keys._reading


async def test_a_key_that_is_missing_in_a_file_is_gone(site: Site, tmp_path: Path) -> None:
    """The file is followed like the others. A stream that the key admitted ends, and so it is with SIGHUP."""
    followed = FollowedFiles(lambda: site.guard.paths, site.guard.reload)
    token = good(0)
    stream = await site.guard.admit_call(f"Bearer {token}", None, "10.0.0.1")
    assert await site.enter(token) == "oidc:ann", "remembered"
    site.publish(tmp_path, OTHER)
    for _ in range(2):
        followed.check_files()
    await settle(site)
    assert stream.ended.is_set()
    assert "withdrawn" in str(stream.reason)
    assert await site.enter(token) == "NotAuthenticated"
    assert await site.enter(signed(HEADER, json.dumps({**GOOD, "jti": "1"}), OTHER)) == "oidc:ann"


async def test_a_file_without_keys_admits_nobody(site: Site, tmp_path: Path) -> None:
    token = good(0)
    assert await site.enter(token) == "oidc:ann"
    (tmp_path / "keys.json").write_text('{"keys": []}')
    site.guard.reload()
    await settle(site)
    assert await site.enter(token) == "NotAuthenticated"


@pytest.mark.parametrize("text", ["", "{", None])
async def test_a_file_that_cannot_be_used_changes_nothing(site: Site, tmp_path: Path, text: str | None) -> None:
    """As with the other files, the log says so, and the former keys stay."""
    token = good(0)
    stream = await site.guard.admit_call(f"Bearer {token}", None, "10.0.0.1")
    if text is None:
        (tmp_path / "keys.json").unlink()
    else:
        (tmp_path / "keys.json").write_text(text)
    site.guard.reload()
    await settle(site)
    assert await site.enter(token) == "oidc:ann"
    assert not stream.ended.is_set()
    assert "signing keys cannot be read" in site.log.getvalue()


async def test_a_reload_during_a_reading_reads_once_more(site: Site, tmp_path: Path) -> None:
    """The one that is under way may have begun before the change."""
    token = good(0)
    assert await site.enter(token) == "oidc:ann"
    site.guard.reload()
    site.publish(tmp_path, OTHER)
    site.guard.reload()
    await settle(site)
    assert await site.enter(token) == "NotAuthenticated"


async def test_an_unchanged_key_ends_nothing(site: Site) -> None:
    stream = await site.guard.admit_call(f"Bearer {good(0)}", None, "10.0.0.1")
    site.guard.reload()
    await settle(site)
    assert not stream.ended.is_set()


async def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """The stamps are those from before the reading."""
    file = tmp_path / "file"
    file.write_text("one")
    read: list[str] = []

    def on_change() -> None:
        read.append(file.read_text())
        if len(read) == 1:
            file.write_text("the third")

    followed = FollowedFiles(lambda: [file], on_change)
    file.write_text("second")
    for _ in range(6):
        followed.check_files()
    assert read == ["second", "the third"]


async def test_files_are_followed_from_the_moment_they_are_read(tmp_path: Path) -> None:
    """A core may take long to begin to serve, while it replays its journal."""
    Site(tmp_path)
    security = Security(SecurityOptions(policy=tmp_path / "security.yaml"), clock=Site(tmp_path).clock, logger=quiet())
    (tmp_path / "tokens.yaml").write_text("tokens: []")
    following = asyncio.create_task(security.follow())
    guard = security.guard
    assert guard is not None
    await until(lambda: not guard._tokens._by_digest, "the tokens to be read again")
    following.cancel()


async def test_a_key_that_a_server_no_longer_has_ends_a_stream_that_calls_nothing(tmp_path: Path) -> None:
    """The keys are read again when they are old, whether a call comes or not."""
    site = Site(tmp_path)
    stream = await site.guard.admit_call(f"Bearer {good(0)}", None, "10.0.0.1")
    following = asyncio.create_task(site.guard.follow_keys())
    site.publish(tmp_path, OTHER)
    site.clock.advance(REFRESH_NS)
    await until(stream.ended.is_set, "the stream to end")
    following.cancel()
