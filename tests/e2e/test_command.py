"""The `kornel` command as a user runs it: a process of its own, real time, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.e2e.harness import CONFIG, create, node_request
from tests.patience import PATIENCE_S
from tests.prepared import kill_program, python
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def kornel(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`kornel` with *arguments* and *variables* in its environment, run to its end."""
    return subprocess.run(
        [python(), "-m", "kornel", *arguments],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def serving(tmp_path: Path, *arguments: str, command: str | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A core in a process of its own, and its address. Killed at the end if it still runs.

    *command*: the Python to start it with, if not the one that is prepared.
    """
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [
            *(command or python(), "-m", "kornel", "serve", "--grpc", "127.0.0.1:0", "--log-format", "json"),
            *("--ready-file", str(ready), *arguments),
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, "the core to serve")
        assert ready.exists(), process.communicate()
        yield process, ready.read_text(encoding="utf-8").strip()
    finally:
        kill_program(process)
        process.communicate()


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> dict[str, object]:
    """Ask *process* to stop. Returns the last line it logged; fails unless it exits 0."""
    process.send_signal(number)
    _, log = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, log
    last: dict[str, object] = json.loads(log.splitlines()[-1])
    return last


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_until_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    """A core says when it is ready, serves, and on a signal exits 0 with one summary line.

    The core is started as users start it, with nothing imported beforehand.
    """
    with serving(tmp_path, command=sys.executable) as (process, address):
        with grpc.insecure_channel(address) as channel:
            stub = si_pb2_grpc.SchedulerStub(channel)
            stub.RegisterResourceManager(
                si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), timeout=PATIENCE_S
            )
            answers = stub.UpdateNode(iter([node_request(create("n1"))]))
            assert [entry.nodeID for answer in answers for entry in answer.accepted] == ["n1"]
            health = kornel("health", "--grpc", address)
            assert (health.returncode, health.stdout) == (0, "SERVING\n")
            plain = kornel("status", "--grpc", address)
            assert plain.returncode == 0
            assert "[rm-1]default" in plain.stdout
            assert "root.a" in plain.stdout
            as_json = json.loads(kornel("status", "--grpc", address, "--json").stdout)
            assert as_json["partitions"][0]["node_count"] == "1"
            dump = json.loads(kornel("dump", "--grpc", address).stdout)
            assert dump["partitions"][0]["name"] == "[rm-1]default"
            assert list(dump["rm_diagnostics"]) == ["error"]
            stranger = kornel("ask", "show", "nobody", "--grpc", address)
            assert (stranger.returncode, stranger.stdout) == (1, "")
            assert "no ask or allocation 'nobody'" in stranger.stderr
        summary = stopped(process, number)
    assert summary["event"] == "stopped"
    assert (summary["law_checks"], summary["law_violations"], summary["engine_faults"]) == (0, 0, 0)


def test_stop_with_streams_open_ends_them_unavailable(tmp_path: Path) -> None:
    """Streams that are open when the signal comes end UNAVAILABLE, and the core still exits 0."""
    with serving(tmp_path) as (process, address), grpc.insecure_channel(address) as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), timeout=PATIENCE_S)

        def requests() -> Iterator[si.NodeRequest]:
            yield node_request(create("n1"))
            process.wait(PATIENCE_S)

        answers = stub.UpdateNode(requests())
        assert next(answers).accepted[0].nodeID == "n1"
        assert stopped(process, signal.SIGTERM)["live_streams"] == 0
        with pytest.raises(grpc.RpcError):
            next(answers)
        assert answers.code() is grpc.StatusCode.UNAVAILABLE


def test_serve_uses_the_configuration_file_for_shims_without_one(tmp_path: Path) -> None:
    """A shim that sends no configuration gets the file's; one that sends its own keeps it."""
    config = tmp_path / "queues.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    with serving(tmp_path, "--config", str(config)) as (_, address), grpc.insecure_channel(address) as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        for sent, expected in (("", "root.a"), (CONFIG.replace("name: a", "name: b"), "root.b")):
            stub.RegisterResourceManager(
                si.RegisterResourceManagerRequest(rmID="rm-1", config=sent), timeout=PATIENCE_S
            )
            assert expected in kornel("status", "--grpc", address).stdout


def test_serve_refuses_a_bad_configuration_file(tmp_path: Path) -> None:
    """Every problem is printed with its place, and the exit status is 2."""
    config = tmp_path / "queues.yaml"
    config.write_text("partitions:\n  - nmae: default\n", encoding="utf-8")
    result = kornel("serve", "--grpc", "127.0.0.1:0", "--config", str(config))
    assert result.returncode == 2
    assert f"{config}:2:" in result.stderr
    assert "nmae" in result.stderr


@pytest.mark.parametrize("command", [["serve", "--grpc", "127.0.0.1:0", "--config"], ["config", "check"]])
def test_a_missing_configuration_file(tmp_path: Path, command: list[str]) -> None:
    """A file that cannot be read is named, and the exit status is 2."""
    result = kornel(*command, str(tmp_path / "missing.yaml"))
    assert result.returncode == 2
    assert "missing.yaml" in result.stderr


def test_serve_refuses_an_address_in_use(tmp_path: Path) -> None:
    """A second core on the same address does not share its clients: it exits 1 and says why."""
    with serving(tmp_path) as (_, address):
        result = kornel("serve", "--grpc", address)
    assert result.returncode == 1
    assert address in result.stderr
    assert "Traceback" not in result.stderr


def test_serve_on_a_unix_socket(tmp_path: Path) -> None:
    """A core can listen on a socket file."""
    address = f"unix:{tmp_path / 'core.sock'}"
    with serving(tmp_path, "--grpc", address) as (_, bound):
        assert bound == address
        assert kornel("health", "--grpc", address).returncode == 0


def test_two_cores_on_one_socket_file(tmp_path: Path) -> None:
    """The second one is refused, by any way of writing the path, and takes no client of the first one."""
    (tmp_path / "other").symlink_to(tmp_path)
    address = f"unix:{tmp_path / 'core.sock'}"
    with serving(tmp_path, "--grpc", address) as (process, _):
        for again in (address, f"unix://{tmp_path / 'core.sock'}", f"unix:{tmp_path / 'other' / 'core.sock'}"):
            result = kornel("serve", "--grpc", again, "--rest-address", "off")
            assert result.returncode == 1
            assert "another core serves" in result.stderr
        (tmp_path / "core.sock.lock").unlink()
        result = kornel("serve", "--grpc", address, "--rest-address", "off")
        assert (result.returncode, "somebody answers there" in result.stderr) == (1, True), "whatever cleans up there"
        assert kornel("health", "--grpc", address).returncode == 0
        stopped(process, signal.SIGTERM)


def test_a_socket_file_that_a_killed_core_left(tmp_path: Path) -> None:
    """Socket file and lock file of a dead core hinder nobody."""
    address = f"unix:{tmp_path / 'core.sock'}"
    with serving(tmp_path, "--grpc", address) as (process, _):
        kill_program(process)
    assert (tmp_path / "core.sock").exists()
    (tmp_path / "ready").unlink()
    with serving(tmp_path, "--grpc", address):
        assert kornel("health", "--grpc", address).returncode == 0


@pytest.mark.parametrize("command", [["health"], ["status"], ["dump"], ["ask", "show", "k"]])
def test_nobody_there(command: list[str]) -> None:
    """Without a core the answer is one line and exit status 1."""
    result = kornel(*command, "--grpc", "127.0.0.1:1", "--timeout", "0.5")
    assert result.returncode == 1
    assert "127.0.0.1:1" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr.splitlines()) == 1
