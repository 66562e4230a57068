"""docs/ten-questions.md: its commands are run against a real core with the cluster that it names, and say what it says.

After a change of what commands write, write the page anew: ``python -m tests.docs.test_ten_questions``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

import kornel
from kornel.v1 import status_pb2, status_pb2_grpc, test_clock_pb2, test_clock_pb2_grpc
from tests.e2e.test_terminals import run_in_terminal
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/ten-questions.md"
COLUMNS = 100
SECOND_NS = 10**9
BLOCK = re.compile(r"^```console\n\$ (kornel [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ(?: \([^)]*\))?"), "TIME"),
    (re.compile(r"\b(?:\d+(?:d|h|m|s))+\b"), "AGE"),
    (re.compile(r"(?:-|\bAGE) +AGE$", re.MULTILINE), "SOME TIME  AGE"),
    (re.compile(r"\b[0-9A-F]{12,}\b"), "CHECKSUM"),
    (re.compile(r"\b(nightly-worker|notes-kernel|shop-server)-\d+(?:\.r\d+)?"), r"\1-N"),
    (re.compile(r"\bworker-[0-3]\b"), "worker-N"),
    (re.compile(r"anonymous@\S+"), "SOMEBODY"),
    (re.compile(r"\b\d+x(?=  )"), "SOME TIMES"),
    (re.compile(r"^core \S+, ", re.MULTILINE), "core VERSION, "),
    (re.compile(r" {2,}"), "  "),
)
"""What is another time, another count of tries, another name or another width with each run, or has not begun: a claim
stalls only where it keeps somebody back."""


def environment(address: str) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("KORNEL_")}
    return variables | {
        "PYTHONPATH": ":".join([str(ROOT), *sys.path]), "KORNEL_ADDRESS": address, "KORNEL_PAGER": "cat",
        "TERM": "xterm", "LC_ALL": "C.UTF-8", "COLUMNS": str(COLUMNS), "LINES": "500",
    }  # fmt: skip


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of commands about a core with the cluster of the page, after all that the page tells of it."""
    address = f"unix:{folder}/core.sock"
    variables = environment(address)
    serve = (
        "kornel", "serve", "--grpc", address, "--test-clock", "--rest-address", "off",
        "--history", str(folder / "history.db"),
    )  # fmt: skip
    play = ("kornel.shim_mock", "run", "two-teams", "--core", address)
    with ExitStack() as running:
        _start(running, folder, variables, serve)
        _wait((folder / "core.sock").exists, "the core to serve")
        _start(running, folder, variables, play)
        with grpc.insecure_channel(address) as channel:
            _bring_about(channel, variables)
        yield variables


def _start(running: ExitStack, folder: Path, variables: dict[str, str], program: tuple[str, ...]) -> None:
    """Start *program*, which is killed with *running*."""
    log = running.enter_context((folder / f"{program[0]}.log").open("wb"))
    process = subprocess.Popen([sys.executable, "-m", *program], env=variables, stdout=log, stderr=log)
    running.callback(process.wait)
    running.callback(process.kill)


def _bring_about(channel: grpc.Channel, variables: dict[str, str]) -> None:
    """Have team a preempt its guarantee, drain a node, and let the use of the queues be stored."""
    clock = test_clock_pb2_grpc.TestClockServiceStub(channel)
    status = status_pb2_grpc.StatusServiceStub(channel)

    def move_clock(seconds: int) -> None:
        clock.AdvanceClock(test_clock_pb2.AdvanceClockRequest(by_ns=seconds * SECOND_NS), wait_for_ready=True)

    def holds(path: str, vcore: int) -> bool:
        answer = status.GetStatus(status_pb2.GetStatusRequest(), wait_for_ready=True)
        used = {queue.path: queue.used["vcore"] for each in answer.partitions for queue in each.queues}
        return used.get(path) == vcore

    def preempts() -> bool:
        move_clock(1)
        return holds("root.a", 20_000) and holds("root", 40_000)

    _wait(lambda: holds("root.b", 24_000) and holds("root.c", 6_000), "teams b and c to fill the cluster")
    _wait(preempts, "team a to preempt what it is guaranteed")
    assert "still run there" in run(variables, "kornel drain node worker-4")

    def is_stored() -> bool:
        move_clock(60)
        return "root.b used" in run(variables, "kornel history usage root.b --since 1h")

    _wait(is_stored, "the use of queues to be stored")


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def run(variables: dict[str, str], command: str) -> str:
    # A test that runs across midnight would ask for another day than the one on which everything happened.
    arguments = command.replace("--on today", "--since 1h").split()[1:]
    return run_in_terminal(COLUMNS, 500, variables, arguments)


def normalize(text: str) -> list[str]:
    """Returns the lines that stay the same from run to run, whatever the order of equal victims."""
    for pattern, instead in CHANGING:
        text = pattern.sub(instead, text)
    return sorted({line.strip() for line in text.splitlines()} - {""})


@pytest.mark.long
def test_the_answers_on_the_page_are_what_commands_write(tmp_path: Path) -> None:
    """Each question has its command, and each command writes what stands on the page, but for times and names."""
    text = PAGE.read_text(encoding="utf-8")
    asked = BLOCK.findall(text)
    assert text.count("\n## ") == 20
    assert len(asked) >= 20
    with cluster(tmp_path) as variables:
        for command, shown in asked:
            assert normalize(run(variables, command)) == normalize(shown), command


def main() -> None:
    """Write the answers of a real core into the page."""
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as variables:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            BLOCK.sub(lambda block: f"```console\n$ {block[1]}\n{run(variables, block[1])}```", text).replace(
                f"core {kornel.__version__},", f"core {kornel.RELEASE},"
            ),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
