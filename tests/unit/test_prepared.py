"""Programs that are forked from a prepared process behave like those that a shell starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.prepared import PATHS, find_program, kill_program, python

ENVIRONMENT = {"PYTHONPATH": PATHS, "KORNEL_HISTORY": "off", "KORNEL_REST_ADDRESS": "off"}
CHECK = ("-m", "kornel", "config", "check")
GOOD = "partitions:\n  - name: default\n    queues:\n      - name: root\n"


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.parametrize(("text", "status"), [(GOOD, 0), ("partitions: 7\n", 2)])
def test_output_directory_and_status_are_those_of_the_cold_command(tmp_path: Path, text: str, status: int) -> None:
    (tmp_path / "queues.yaml").write_text(text, encoding="utf-8")
    done = [
        subprocess.run(
            [command, *CHECK, "queues.yaml"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        for command in (python(), sys.executable)
    ]
    assert done[0].returncode == status
    assert (done[0].returncode, done[0].stdout, done[0].stderr) == (done[1].returncode, done[1].stdout, done[1].stderr)


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], tuple[str, int]]:
    """Starts a core in *folder*. Returns its command, and where it listens."""
    ready = folder / "ready"
    serve = ("serve", "--grpc", "127.0.0.1:0", "--ready-file", str(ready), "--log-level", "error")
    core = subprocess.Popen([python(), "-m", "kornel", *serve], env=ENVIRONMENT)
    wait_for(ready.exists)
    host, _, port = ready.read_text(encoding="utf-8").strip().rpartition(":")
    return core, (host, int(port))


def is_open(address: tuple[str, int]) -> bool:
    with socket.socket() as line:
        return line.connect_ex(address) == 0


def test_a_program_ends_with_its_command(tmp_path: Path) -> None:
    """Killed like it, although it is another process."""
    core, address = serve(tmp_path)
    assert is_open(address)
    core.kill()
    assert core.wait() == -signal.SIGKILL
    wait_for(lambda: not is_open(address))


def test_a_program_can_be_killed_itself(tmp_path: Path) -> None:
    """Then it has ended when its command has."""
    core, address = serve(tmp_path)
    program = find_program(core.pid)
    os.kill(program, signal.SIGKILL)
    assert core.wait(PATIENCE_S) == -signal.SIGKILL
    assert not is_open(address)
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)


def test_what_a_killed_program_held_is_free(tmp_path: Path) -> None:
    core, address = serve(tmp_path)
    kill_program(core)
    assert not is_open(address)
    kill_program(core)
    assert core.returncode == -signal.SIGKILL


IN_THE_BACKGROUND = """
import signal, socket, subprocess
from tests.prepared import PATHS, pytest_unconfigure, python
with socket.create_server(("127.0.0.1", 0)) as silent:
    address = "127.0.0.1:" + str(silent.getsockname()[1])
    health = subprocess.Popen(
        [python(), "-m", "kornel", "status", "--timeout", "3600", "--grpc", address], env={"PYTHONPATH": PATHS}
    )
    connection, _ = silent.accept()
    health.send_signal(signal.SIGINT)
    health.wait()
pytest_unconfigure()
"""


def test_ctrl_c_ends_a_program_of_tests_that_ignore_it() -> None:
    """As tests do that a shell runs in the background."""
    script = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{IN_THE_BACKGROUND}"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PATHS, env={"PYTHONPATH": PATHS}, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0


def test_signals_reach_the_program(tmp_path: Path) -> None:
    core, _ = serve(tmp_path)
    core.send_signal(signal.SIGTERM)
    assert core.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("variables", [{}, {"PYTHONPATH": "/elsewhere"}])
def test_anything_else_is_done_by_python(variables: dict[str, str]) -> None:
    """With the path that the command has, and by the process that was started."""
    command = [python(), "-c", "import os; print(os.getpid(), os.environ.get('PYTHONPATH'))"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate()
    assert said.split() == [str(process.pid), variables.get("PYTHONPATH", "None")]


def test_each_program_has_its_own_environment() -> None:
    """Nothing of the environment of the tests is left."""
    command = [python(), "-m", "kornel", "health", "--timeout", "0.2"]
    variables = ENVIRONMENT | {"KORNEL_ADDRESS": "127.0.0.1:9"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "127.0.0.1:9" in done.stderr
    assert "KORNEL_ADDRESS" not in os.environ
