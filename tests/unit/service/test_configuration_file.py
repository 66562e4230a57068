"""Following a file: whichever way it is replaced, bad ones change nothing, and half of one is never read."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kornel.core.domain.commands import RegisterManager, UpdateConfiguration
from kornel.core.engine.engine import Engine
from kornel.core.service.configuration.configuration_file import ConfigurationFile
from kornel.core.service.configuration.configuration_history import Origin
from kornel.core.service.configuration.configuring import Configurator
from kornel.core.service.configuration.judging import Judge
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.runner.journal_port import OpenGate
from kornel.core.service.runner.runner import PartitionRunner
from kornel.core.service.streams.streams import Switchboard
from kornel.core.service.wire.status_codes import JournalFull
from tests.reading import status_of


def text(*names: str) -> str:
    """A configuration with these queues below the root."""
    queues = [{"name": name} for name in names]
    return json.dumps({"partitions": [{"queues": [{"name": "root", "submitacl": "*", "queues": queues}]}]})


class ClosableGate(OpenGate):
    """A gate whose journal has no room while it is ``shut``."""

    shut = False

    def check_intake(self) -> None:
        if self.shut:
            raise JournalFull("journal: no room")


class Desk:
    """A running core that follows a file, and the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.write_text(text("a"), encoding="utf-8")
        self.clock = ManualClock()
        self.log = io.StringIO()
        self.problems: list[str] = []
        logger = build_logger(LogFormat.JSON, LogLevel.INFO, self.log)
        metrics = ServiceMetrics()
        garbage = GarbageKeeper(enabled=False)
        self.engine = Engine()
        self.gate = ClosableGate()
        self.runner = PartitionRunner(
            self.engine,
            Switchboard(metrics),
            clock=self.clock,
            metrics=metrics,
            logger=logger,
            garbage=garbage,
            gate=self.gate,
        )
        self.configurator = Configurator(
            self.runner,
            clock=self.clock,
            logger=logger,
            garbage=garbage,
            judge=Judge({}, logger=logger),
            default=text("a"),
            on_problem=self.problems.append,
        )
        self.file = ConfigurationFile(path, text("a"), self.configurator, logger=logger)
        self.running = asyncio.create_task(self.runner.run())

    async def looks(self, times: int = 2) -> None:
        """What the watcher does within so many seconds."""
        for _ in range(times):
            await self.file.follow_changes()

    async def register(self, config: str = "") -> None:
        await self.configurator.register(RegisterManager("rm", config))

    async def update(self, config: str) -> None:
        await self.configurator.update(UpdateConfiguration("rm", config, extra_config=(("k", "v"),)))

    def queues(self) -> list[str]:
        """Active queues below the root."""
        found = status_of(self.engine).partitions[0].queues
        return [queue.path.removeprefix("root.") for queue in found[1:] if not queue.draining]

    def origins(self) -> list[tuple[Origin, bool]]:
        return [(version.origin, version.applied) for version in self.configurator.history.kept_versions()]

    async def close(self) -> None:
        self.runner.stop()
        await self.running


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path / "queues.yaml")
    yield desk
    await desk.close()


def write(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def rename_over(path: Path, content: str) -> None:
    scratch = path.with_suffix(".new")
    write(scratch, content)
    scratch.replace(path)


@pytest.mark.parametrize("replace", [write, rename_over])
async def test_a_changed_file_is_applied(desk: Desk, replace: Any) -> None:
    """Written in place or renamed over, once it has been the same for two looks."""
    await desk.register()
    await desk.looks()
    replace(desk.path, text("a", "bb"))
    await desk.looks(1)
    assert desk.queues() == ["a"], "it may still be being written"
    await desk.looks(1)
    assert desk.queues() == ["a", "bb"]
    assert desk.origins() == [(Origin.REGISTRATION, True), (Origin.FILE, True)]


async def test_a_mounted_configmap(tmp_path: Path) -> None:
    """The path leads through a link to a directory that is replaced as a whole."""
    first, second = tmp_path / "..2026_01", tmp_path / "..2026_02"
    for directory in (first, second):
        directory.mkdir()
    (tmp_path / "..data").symlink_to(first.name)
    write(first / "queues.yaml", text("a"))
    write(second / "queues.yaml", text("b"))
    (tmp_path / "queues.yaml").symlink_to(Path("..data") / "queues.yaml")
    desk = Desk(tmp_path / "queues.yaml")
    await desk.register()
    await desk.looks()
    link = tmp_path / "..data_tmp"
    link.symlink_to(second.name)
    link.replace(tmp_path / "..data")
    (first / "queues.yaml").unlink()
    await desk.looks(2)
    assert desk.queues() == ["b"]
    await desk.close()


@pytest.mark.parametrize("bad", ["partitions: 7\n", "", "  \n", "\x00", "a: [\n"])
async def test_a_bad_file_leaves_everything_as_it_was(desk: Desk, bad: str) -> None:
    """It is said once, in the log and to whoever listens, until a good file comes."""
    await desk.register()
    await desk.looks()
    checksum = desk.engine.checksum
    write(desk.path, bad)
    await desk.looks(2)
    assert bool(desk.configurator.problem)
    await desk.looks(3)
    assert desk.engine.checksum == checksum
    assert desk.problems == [desk.configurator.problem]
    assert desk.log.getvalue().count("configuration file not applied") == 1
    await desk.register()
    assert desk.engine.checksum == checksum, "a shim without configuration gets the last good file"
    write(desk.path, text("a", "c"))
    await desk.looks(2)
    assert desk.queues() == ["a", "c"]
    assert desk.problems[1:] == [""]


async def test_the_file_as_it_was_before_mends_it_too(desk: Desk) -> None:
    """Nothing is applied then, and the problem is over."""
    await desk.register()
    await desk.looks()
    write(desk.path, "partitions: 7\n")
    await desk.looks(2)
    assert bool(desk.configurator.problem)
    write(desk.path, text("a"))
    await desk.looks(2)
    assert not desk.configurator.problem
    assert desk.origins() == [(Origin.REGISTRATION, True), (Origin.FILE, False)]


async def test_a_file_that_is_gone_and_comes_back(desk: Desk) -> None:
    """Missing for one look is how some editors write; for two it is a problem."""
    await desk.register()
    await desk.looks()
    desk.path.unlink()
    await desk.looks(1)
    assert not desk.configurator.problem
    await desk.looks(1)
    assert "No such file" in desk.configurator.problem
    write(desk.path, text("a"))
    await desk.looks(2)
    assert not desk.configurator.problem
    assert desk.queues() == ["a"]


async def test_a_file_that_is_no_text(desk: Desk) -> None:
    """Bytes that are not UTF-8 are refused, and so is a directory."""
    await desk.register()
    desk.path.write_bytes(b"\xff\xfe")
    await desk.file.reload()
    assert "not UTF-8" in desk.configurator.problem
    desk.path.unlink()
    desk.path.mkdir()
    await desk.file.reload()
    assert "directory" in desk.configurator.problem
    assert desk.queues() == ["a"]


async def test_a_shim_with_a_configuration_of_its_own(desk: Desk) -> None:
    """The file is read and checked, and holds for the next shim that sends none."""
    await desk.register(text("mine"))
    write(desk.path, text("b"))
    await desk.file.reload()
    assert desk.queues() == ["mine"]
    assert desk.configurator.problem == ""
    write(desk.path, "partitions: 7\n")
    await desk.file.reload()
    assert desk.configurator.problem
    await desk.register()
    assert desk.queues() == ["b"]


async def test_after_an_update_the_text_of_the_shim_holds(desk: Desk) -> None:
    """An update with a text takes over from the file, an empty one gives back to it."""
    await desk.register()
    await desk.update(text("mine"))
    write(desk.path, text("b"))
    await desk.file.reload()
    assert desk.queues() == ["mine"]
    await desk.update("")
    assert desk.queues() == ["b"]
    write(desk.path, text("c"))
    await desk.file.reload()
    assert desk.queues() == ["c"]
    assert desk.engine.extra_config == {"k": "v"}, "a file replaces queues, not the other settings"


async def test_reading_again_does_not_undo_a_rollback(desk: Desk) -> None:
    """SIGHUP is sent for new certificates too. A file that says something else does end it."""
    await desk.register()
    await desk.looks()
    write(desk.path, text("b"))
    await desk.looks(2)
    assert desk.queues() == ["b"]
    outcome = await desk.configurator.rollback(1)
    assert (outcome.changed, outcome.version) == (True, 3)
    assert desk.queues() == ["a"]
    await desk.looks(3)
    assert desk.queues() == ["a"]
    await desk.file.reload()
    assert desk.queues() == ["a"]
    assert "was brought before it and is not applied" in desk.log.getvalue()
    await desk.register()
    assert desk.queues() == ["a"], "nor does a shim that leaves it to the file"
    write(desk.path, text("c"))
    await desk.looks(2)
    assert desk.queues() == ["c"]
    assert desk.configurator.rollback_held is None
    last = desk.configurator.history.kept_versions()[-1]
    assert (last.origin, last.principal) == (Origin.FILE, "file")
    assert "ended: the text that came is another one" in last.note


async def test_a_file_that_does_not_hold_does_not_end_a_rollback(desk: Desk) -> None:
    """The manager brought the text that was rolled back from: a new file only counts once it brings none."""
    await desk.register(text("x"))
    await desk.register(text("y"))
    await desk.configurator.rollback(1)
    write(desk.path, text("b"))
    await desk.file.reload()
    assert desk.queues() == ["x"]
    await desk.register(text("y"))
    assert desk.queues() == ["x"]
    await desk.register()
    assert desk.queues() == ["b"]


async def test_nobody_is_registered(desk: Desk) -> None:
    """The file is checked and kept for the first shim."""
    write(desk.path, text("b"))
    await desk.file.reload()
    assert desk.configurator.history.kept_versions() == ()
    await desk.register()
    assert desk.queues() == ["b"]


async def test_a_file_that_cannot_be_applied_for_now_is_applied_later(desk: Desk) -> None:
    """A journal without room refuses the change; the file is reported and applied once there is room again."""
    await desk.register()
    await desk.looks()
    desk.gate.shut = True
    write(desk.path, text("a", "bb"))
    await desk.looks(3)
    assert desk.queues() == ["a"]
    assert "no room" in desk.problems[-1]
    desk.gate.shut = False
    await desk.looks()
    assert desk.queues() == ["a", "bb"]
    assert desk.problems[-1] == ""
