"""State is private, strangers are heard briefly, and small things of a day that is not a good one."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest

from kornel.shim_local import program, submission
from kornel.shim_local.background import NotStarted, check_folder
from kornel.shim_local.machine.agent import Agent
from kornel.shim_local.machine.capacity import Capacity
from kornel.shim_local.machine.cgroups import find_cgroups
from kornel.shim_local.server.core_process import OwnCore
from kornel.shim_local.server.joined import JoinedAgent
from kornel.shim_local.server.settings import Settings, SettingsError
from kornel.shim_local.server.wire import WireError, admit_peer
from tests.patience import PATIENCE_S


class _Writer:
    def write(self, data: bytes) -> None:
        """Drop it."""


async def test_a_stranger_may_not_fill_the_memory() -> None:
    reader = asyncio.StreamReader(limit=64 * 2**20)
    reader.feed_data(b"x" * 10_000)
    with pytest.raises(WireError, match="too much"):
        await asyncio.wait_for(admit_peer(reader, _Writer(), "t" * 20), PATIENCE_S)  # type: ignore[arg-type]


async def test_a_proof_that_is_no_text_is_wrong_and_no_more() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b'{"role":"agent","nonce":"\\ud800","proof":"\\ud800"}\n')
    with pytest.raises(WireError, match="does not have the token"):
        await admit_peer(reader, _Writer(), "t" * 20)  # type: ignore[arg-type]


def test_files_of_a_server_are_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def write(_settings: Settings) -> None:
        (tmp_path / "file").write_text("secret")

    monkeypatch.setattr(program, "_run", write)
    before = os.umask(0)
    try:
        program.run_program(Settings(tmp_path, "m", Capacity(1000, 0, 0)))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o077 == 0


def test_the_option_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--agent-token"):
        JoinedAgent(Settings(tmp_path, "m", Capacity(1000, 0, 0), join="h:1"))


def test_a_user_need_not_have_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_number: int) -> Any:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", fail)
    assert submission._user_name() == str(os.getuid())


async def test_a_log_is_as_old_as_the_end_of_its_attempt(tmp_path: Path) -> None:
    agent = Agent(tmp_path, "m", Capacity(1000, 0, 0), find_cgroups("none"), lambda _message: None)
    long, old = tmp_path / "done" / "1-1", tmp_path / "done" / "2-1"
    for folder in (long, old):
        folder.mkdir(parents=True)
        (folder / "record").write_text("")
        os.utime(folder, (1000, 1000))
    os.utime(old / "record", (1000, 1000))
    agent.remove_old(time.time() - 60)
    assert long.exists()
    assert not old.exists()


async def test_a_core_that_ends_before_it_is_ready_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = OwnCore(tmp_path)
    ready = asyncio.Event()
    alive = iter([True, False])
    monkeypatch.setattr("kornel.shim_local.server.core_process.is_alive", lambda _pid, _ticks: next(alive, True))

    async def wait_until_ready(_pid: int, _ticks: int) -> bool:
        return ready.is_set()

    async def start() -> tuple[int, int]:
        ready.set()
        return 1, 1

    monkeypatch.setattr(core, "_wait_until_ready", wait_until_ready)
    monkeypatch.setattr(core, "_start", start)
    monkeypatch.setattr(core, "_wait_for_end", lambda _pid, _ticks: asyncio.Event().wait())
    keeping = asyncio.create_task(core.keep_running())
    await asyncio.wait_for(core.find_core(), PATIENCE_S)
    keeping.cancel()


def test_a_page_that_others_can_reach_is_served_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KORNEL_REST_ADDRESS", raising=False)
    for page, address in ((False, "off"), (True, "127.0.0.1:0")):
        arguments = OwnCore(tmp_path, page=page).make_arguments()
        assert arguments[arguments.index("--rest-address") + 1] == address


def test_a_state_directory_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one of somebody else; one that is not there yet is made."""
    folder = tmp_path / "state"
    check_folder(folder)
    folder.mkdir(mode=0o700)
    check_folder(folder)
    folder.chmod(0o770)
    with pytest.raises(NotStarted, match="can be written by other users"):
        check_folder(folder)
    folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(NotStarted, match="belongs to another user"):
        check_folder(folder)
