"""A core that goes on from a journal knows whose configuration it goes on with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kornel.core.service.configuration.configuration_history import Origin
from kornel.v1 import configuration_pb2 as pb
from kornel.v1 import configuration_pb2_grpc
from tests.e2e.harness import CONFIG, Core, running_core
from tests.unit.journal.made import open_journal
from tests.waiting import until

OTHER = CONFIG.replace("name: a", "name: b")
THIRD = CONFIG.replace("name: a", "name: c")


@asynccontextmanager
async def journalling(folder: Path, file_says: str) -> AsyncIterator[Core]:
    """A core with the journal of *folder*, started with a configuration file."""
    path = folder / "queues.yaml"
    path.write_text(file_says)
    async with running_core(
        journal=open_journal(folder / "journal.db"), config_file=path, default_config=file_says
    ) as core:
        yield core


async def update(core: Core, config: str, **extra: str) -> None:
    stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
    await stub.UpdateConfiguration(pb.UpdateConfigurationRequest(rm_id="rm-1", config=config, extra_config=extra))


def in_force(core: Core) -> str:
    """The text in force; empty while the engine has another one than the latest version."""
    place = core.server.managers.first
    version = place.configurator.version(0)
    assert place.runner.configuration is not None
    return version.text if place.runner.configuration.checksum == version.checksum else ""


@pytest.mark.parametrize("by_update", [False, True])
async def test_the_managers_own_configuration_is_not_replaced_by_the_file(tmp_path: Path, by_update: bool) -> None:
    """Neither at the start nor when the file is read again; its extra settings stay, too."""
    async with journalling(tmp_path, OTHER) as core:
        await core.register("rm-1", CONFIG)
        if by_update:
            await update(core, CONFIG, **{"log.level": "WARN"})
    async with journalling(tmp_path, OTHER) as core:
        assert in_force(core) == CONFIG
        place = core.server.managers.first
        assert dict(place.runner.extra_config()) == ({"log.level": "WARN"} if by_update else {})
        (tmp_path / "queues.yaml").write_text(THIRD)
        core.server.reload()
        await until(lambda: place.configurator.default_text == THIRD, "the file to be read")
        assert in_force(core) == CONFIG
        await place.configurator.update_text(OTHER)
        assert in_force(core) == OTHER
        assert dict(place.runner.extra_config()) == ({"log.level": "WARN"} if by_update else {})


async def test_a_file_that_changed_between_two_cores_is_followed(tmp_path: Path) -> None:
    """As the manager brought none, and as it is at any other time."""
    async with journalling(tmp_path, CONFIG) as core:
        await core.register("rm-1", "")
    async with journalling(tmp_path, CONFIG) as core:
        assert in_force(core) == CONFIG
        assert [version.origin for version in core.server.managers.first.configurator.history.kept_versions()] == [
            Origin.REGISTRATION
        ]
    async with journalling(tmp_path, OTHER) as core:
        await until(lambda: in_force(core) == OTHER, "the file to be followed")
        (tmp_path / "queues.yaml").write_text(THIRD)
        core.server.reload()
        await until(lambda: in_force(core) == THIRD, "the file to be followed again")


async def test_what_an_operator_rolled_back_to_is_not_replaced_by_the_file(tmp_path: Path) -> None:
    """Whoever rolled back did so because of the file, and a core that ends does not change that."""
    async with journalling(tmp_path, CONFIG) as core:
        await core.register("rm-1", "")
        (tmp_path / "queues.yaml").write_text(OTHER)
        core.server.reload()
        await until(lambda: in_force(core) == OTHER, "the file to be followed")
        stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
        await stub.RollbackConfiguration(pb.RollbackConfigurationRequest(version=1))
    async with journalling(tmp_path, OTHER) as core:
        assert in_force(core) == CONFIG
        core.server.reload()
        await core.settle()
        assert in_force(core) == CONFIG


def versions(core: Core) -> list[tuple[int, str, str, bool, str]]:
    """The versions that the core shows, each with what tells it from others."""
    kept = core.server.managers.first.configurator.history.kept_versions()
    return [(each.number, str(each.origin), each.text, each.applied, each.principal) for each in kept]


async def rollback(core: Core, version: int = 0, *, undo: bool = False) -> None:
    stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
    await stub.RollbackConfiguration(pb.RollbackConfigurationRequest(version=version, undo=undo))


async def test_versions_and_what_may_be_rolled_back_to_survive(tmp_path: Path) -> None:
    """Accepted and refused ones, whoever brought them; a version of an earlier core can be rolled back to."""
    async with journalling(tmp_path, OTHER) as core:
        await core.register("rm-1", CONFIG)
        await update(core, THIRD)
        with pytest.raises(grpc.aio.AioRpcError):
            await update(core, "nonsense: [")
        seen = versions(core)
        assert [each[3] for each in seen] == [True, True, False]
    for _ in range(2):
        async with journalling(tmp_path, OTHER) as core:
            assert versions(core) == seen
            assert in_force(core) == THIRD
    async with journalling(tmp_path, OTHER) as core:
        await rollback(core, 1)
        assert in_force(core) == CONFIG
        assert [each[0] for each in versions(core)] == [1, 2, 3, 4]


async def test_a_rollback_holds_across_cores(tmp_path: Path) -> None:
    """A shim that brings again what was rolled back does not undo it; undoing it brings the shim's text back."""
    async with journalling(tmp_path, OTHER) as core:
        await core.register("rm-1", CONFIG)
        await update(core, THIRD)
        await rollback(core, 1)
        held = core.server.managers.first.configurator.rollback_held
        assert held is not None
    async with journalling(tmp_path, OTHER) as core:
        assert core.server.managers.first.configurator.rollback_held == held
        await update(core, THIRD)
        assert in_force(core) == CONFIG
    async with journalling(tmp_path, OTHER) as core:
        kept = core.server.managers.first.configurator.rollback_held
        assert kept is not None
        assert kept.kept_out == 1
        await rollback(core, undo=True)
        assert in_force(core) == THIRD
    async with journalling(tmp_path, OTHER) as core:
        assert core.server.managers.first.configurator.rollback_held is None
        assert in_force(core) == THIRD


async def test_each_manager_has_its_own_versions_and_rollback(tmp_path: Path) -> None:
    """After a restart too; a file that has changed meanwhile is in force for the manager that brought nothing."""
    async with journalling(tmp_path, CONFIG) as core:
        await core.register("rm-1", OTHER)
        await core.register("rm-2", "")
        first, second = (place.configurator for place in core.server.managers.places)
        await first.update_text(THIRD)
        await first.rollback(1)
    async with journalling(tmp_path, THIRD) as core:
        first, second = (place.configurator for place in core.server.managers.places)
        await until(lambda: second.version(0).text == THIRD, "the file to be followed")
        assert in_force(core) == OTHER
        assert (first.rollback_held is None, second.rollback_held is None) == (False, True)
        kept = [(version.rm_id, version.text) for version in second.history.kept_versions()]
        assert kept == [("rm-2", CONFIG), ("rm-2", THIRD)]
        assert {version.rm_id for version in first.history.kept_versions()} == {"rm-1"}


async def test_nothing_is_in_force_once_the_manager_was_unregistered(tmp_path: Path) -> None:
    async with journalling(tmp_path, CONFIG) as core:
        await core.register("rm-1", OTHER)
        await core.server.managers.unregister("rm-1")
    async with journalling(tmp_path, CONFIG) as core:
        assert core.server.managers.first.configurator.in_force == 0
        await core.register("rm-2", "")
        assert in_force(core) == CONFIG
