"""`kornel serve` with a configuration file, and the commands around configurations, as an administrator uses them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1.status_pb2 import GetStatusRequest, GetStatusResponse
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import CONFIG
from tests.e2e.test_command import kornel, serving, stopped
from tests.patience import PATIENCE_S
from tests.waiting import wait_until

TWO = CONFIG + "          - name: b\n"
THREE = TWO + "          - name: c\n"
BAD = "partitions: 7\n"


class Running:
    """A core in a process of its own with a shim that follows the file."""

    def __init__(self, process: subprocess.Popen[str], address: str, file: Path, channel: grpc.Channel) -> None:
        self.process = process
        self.address = address
        self.file = file
        self._status = StatusServiceStub(channel)
        scheduler = si_pb2_grpc.SchedulerStub(channel)
        scheduler.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-1"), timeout=PATIENCE_S)

    def status(self) -> GetStatusResponse:
        return self._status.GetStatus(GetStatusRequest(), timeout=PATIENCE_S)

    def queues(self) -> list[str]:
        found = self.status().partitions[0].queues
        return [queue.path.removeprefix("root.") for queue in found[1:] if queue.state == "Active"]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return kornel(*arguments, "--grpc", self.address)


@contextmanager
def following(tmp_path: Path, *arguments: str, file: Path | None = None) -> Iterator[Running]:
    path = file or tmp_path / "queues.yaml"
    if file is None:
        path.write_text(CONFIG, encoding="utf-8")
    with (
        serving(tmp_path, "--config", str(path), *arguments) as (process, address),
        grpc.insecure_channel(address) as channel,
    ):
        yield Running(process, address, path, channel)


def test_sighup_reads_the_file_again(tmp_path: Path) -> None:
    """A good file is applied, a bad one leaves the old queues and says so, the next good one ends that."""
    with following(tmp_path) as core:
        assert core.queues() == ["a"]
        core.file.write_text(TWO, encoding="utf-8")
        core.process.send_signal(signal.SIGHUP)
        wait_until(lambda: core.queues() == ["a", "b"], "the new file to hold")
        core.file.write_text(BAD, encoding="utf-8")
        core.process.send_signal(signal.SIGHUP)
        wait_until(lambda: bool(core.status().configuration_problem), "the problem to be seen")
        assert core.queues() == ["a", "b"]
        assert "configuration file not applied" in core.command("status").stdout
        assert core.command("health").stdout.strip() == "SERVING"
        core.file.write_text(THREE, encoding="utf-8")
        core.process.send_signal(signal.SIGHUP)
        wait_until(lambda: core.queues() == ["a", "b", "c"], "the good file to hold")
        assert core.status().configuration_problem == ""
        stopped(core.process, signal.SIGTERM)


def test_sighup_without_a_file(tmp_path: Path) -> None:
    """It does no harm."""
    with serving(tmp_path) as (process, _):
        process.send_signal(signal.SIGHUP)
        stopped(process, signal.SIGTERM)


def test_watch_takes_a_file(tmp_path: Path) -> None:
    """There is nothing to watch without one."""
    result = kornel("serve", "--watch")
    assert result.returncode == 2
    assert "--config" in result.stderr


def test_the_commands_of_an_administrator(tmp_path: Path) -> None:
    """Preview, apply, look back, compare, go back."""
    with following(tmp_path) as core:
        new = tmp_path / "new.yaml"
        new.write_text(TWO.replace("name: a", "name: z"), encoding="utf-8")
        preview = core.command("config", "preview", str(new))
        assert preview.returncode == 0, preview.stderr
        assert "root.a" in preview.stdout
        assert "removed" in preview.stdout
        told: Any = json.loads(core.command("config", "preview", str(new), "--json").stdout)
        assert {queue["path"]: queue["kind"] for queue in told["queues"]} == {
            "root.a": "KIND_REMOVED",
            "root.b": "KIND_ADDED",
            "root.z": "KIND_ADDED",
        }
        assert core.queues() == ["a"], "a preview changes nothing"
        core.file.write_text(new.read_text(encoding="utf-8"), encoding="utf-8")
        core.process.send_signal(signal.SIGHUP)
        wait_until(lambda: core.queues() == ["b", "z"], "the new file to hold")
        history = core.command("config", "history").stdout
        assert [line.split()[0] for line in history.splitlines()[1:3]] == ["2", "1"]
        assert "registration" in history
        assert core.command("config", "show").stdout == new.read_text(encoding="utf-8")
        assert core.command("config", "show", "1").stdout == CONFIG
        difference = core.command("config", "diff", "1").stdout
        assert "-          - name: a" in difference
        assert "+          - name: z" in difference
        assert core.command("config", "rollback", "1").returncode == 0
        assert core.queues() == ["a"]
        assert "nothing to do" in core.command("config", "rollback", "1").stdout
        unknown = core.command("config", "rollback", "77")
        assert unknown.returncode == 1
        assert "no version 77" in unknown.stderr
        bad = tmp_path / "bad.yaml"
        bad.write_text(BAD, encoding="utf-8")
        refused = core.command("config", "preview", str(bad))
        assert refused.returncode == 2
        assert f"{bad}:1:" in refused.stderr
        shown = core.command("queue", "show", "root.a")
        assert shown.returncode == 0
        assert "nothing bounds this queue" in shown.stdout
        assert core.command("queue", "show", "root.nowhere").returncode == 1
        assert "neither applications nor limits" in core.command("user", "show", "ann").stderr
        stopped(core.process, signal.SIGTERM)


def test_a_rollback_holds_until_it_is_undone(tmp_path: Path) -> None:
    """It says so; SIGHUP with the file as it was changes nothing."""
    with following(tmp_path) as core:
        assert core.queues() == ["a"]
        core.file.write_text(TWO, encoding="utf-8")
        core.process.send_signal(signal.SIGHUP)
        wait_until(lambda: core.queues() == ["a", "b"], "the new file to hold")
        rolled_back = core.command("config", "rollback", "1")
        assert rolled_back.returncode == 0
        assert "It stays in force until" in rolled_back.stdout
        assert "--undo" in rolled_back.stdout
        core.process.send_signal(signal.SIGHUP)
        wait_until(lambda: core.status().rollback.kept_out == 1, "the file to be read again")
        assert core.queues() == ["a"]
        said = core.command("status").stdout
        assert "rollback to version 1 by anonymous@127.0.0.1 holds since" in said
        assert "1 text kept out" in said
        assert "the rollback is undone" in core.command("config", "rollback", "--undo").stdout
        assert core.queues() == ["a", "b"]
        assert core.command("config", "rollback", "--undo").returncode == 1
        assert core.command("config", "rollback").returncode == 2
        history = core.command("config", "history").stdout
        assert "anonymous@127.0.0.1" in history
        assert "was undone by" in history
        stopped(core.process, signal.SIGTERM)


@pytest.mark.parametrize(
    "command",
    [
        ["config", "history"],
        ["config", "show"],
        ["config", "diff", "1"],
        ["config", "rollback", "1"],
        ["queue", "show", "root"],
        ["user", "show", "ann"],
    ],
)
def test_nobody_there(command: list[str]) -> None:
    """A core that does not answer ends the command with status 1 and one line."""
    result = kornel(*command, "--grpc", "127.0.0.1:1", "--timeout", "1")
    assert result.returncode == 1
    assert "127.0.0.1:1" in result.stderr
    assert len(result.stderr.splitlines()) == 1
