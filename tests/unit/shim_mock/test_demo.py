"""The demo: a core as child process, from its start to its orderly end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from kornel.shim_mock import demo
from kornel.shim_mock.cli import STORIES, DemoKind
from kornel.shim_mock.database import find_programs
from kornel.shim_mock.demo import CoreFailed, page_address, running_core, wait_for_interrupt
from kornel.shim_mock.failover import demonstrate_failover
from kornel.shim_mock.generate import generate_trace
from kornel.shim_mock.model.lifecycle import TaskState
from kornel.shim_mock.run import RunResult, run_scenario
from kornel.shim_mock.scenario import load_scenario, parse_scenario
from tests.prepared import python
from tests.waiting import until

SERVING = """
import pathlib, signal, sys
pathlib.Path(sys.argv[-1]).write_text("127.0.0.1:7\\n", encoding="utf-8")
signal.sigwait([signal.SIGTERM])
sys.exit({status})
"""
ROOT = Path(__file__).parents[3]
BLOCK = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"


@pytest.fixture(autouse=True)
def _cores_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores of the demo are started from a process that has imported everything."""
    monkeypatch.setattr("sys.executable", python())


def pretend(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let *script* stand in for the core."""
    monkeypatch.setattr(demo, "SERVE", ("-c", script))


async def demonstrate(*options: str) -> tuple[int | None, str]:
    """Run the demo from the command line with *options*: its exit status, and all it printed."""
    process = await asyncio.create_subprocess_exec(
        *(python(), "-m", "kornel.shim_mock", "demo", *options),
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_the_core_is_stopped_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address comes from the ready file; afterwards the core gets SIGTERM and ends with 0."""
    pretend(monkeypatch, BLOCK + SERVING.format(status=0))
    async with running_core(tmp_path / "core.log") as address:
        assert address == "127.0.0.1:7"


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        ('{"event": "starting"}\n{"event": "serving", "rest": "127.0.0.1:9"}\n{"event": "x"}', "http://127.0.0.1:9/"),
        ('not JSON\n[1]\n{"event": "serving", "rest": "[::1]:9"}', "http://[::1]:9/"),
        ('{"event": "serving", "rest": "off"}', ""),
        ("", ""),
    ],
)
def test_the_page_is_where_the_log_says(tmp_path: Path, lines: str, address: str) -> None:
    log = tmp_path / "core.log"
    log.write_text(lines, encoding="utf-8")
    assert page_address(log) == address


async def test_a_core_that_ends_badly_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that stops with another status fails the demo even if everything else went well."""
    pretend(monkeypatch, BLOCK + SERVING.format(status=4))
    with pytest.raises(CoreFailed, match="stopped with status 4"):
        async with running_core(tmp_path / "core.log"):
            pass


async def test_a_core_that_does_not_start_is_told_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that ends before it serves fails at once, naming status and log."""
    pretend(monkeypatch, "import sys; sys.exit('no port')")
    with pytest.raises(CoreFailed, match=r"status 1 before it served; see .*core\.log"):
        async with running_core(tmp_path / "core.log"):
            pass
    assert "no port" in (tmp_path / "core.log").read_text(encoding="utf-8")


async def test_a_core_that_ignores_the_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that does not stop in time is reported, and does not outlive the demo."""
    pretend(monkeypatch, BLOCK + SERVING.format(status=0).replace("SIGTERM", "SIGUSR1"))
    monkeypatch.setattr(demo, "STOP_S", 0.3)
    with pytest.raises(CoreFailed, match=r"did not stop within 0\.3 s"):
        async with running_core(tmp_path / "core.log"):
            pass


async def test_the_demo_passes_on_a_small_trace(tmp_path: Path) -> None:
    """From the command line, against the real core: latency work gets its guarantee, and the picture is drawn."""
    generate_trace(tmp_path / "trace", nodes=10, pods=100)
    status, text = await demonstrate("--trace", str(tmp_path / "trace"), "--out", str(tmp_path / "out"))
    assert status == 0, text
    assert "PASSED" in text
    assert (tmp_path / "out" / "utilisation.svg").exists()


@pytest.mark.long
async def test_the_demo_shows_a_core_that_takes_over(tmp_path: Path) -> None:
    """The leader is killed in the middle of a preemption; the second core leads within seconds, and the books agree."""
    if find_programs() is None:
        pytest.skip("PostgreSQL is not installed")
    status, text = await demonstrate("--kind", "failover", "--out", str(tmp_path))
    assert status == 0, text
    assert "leads, epoch 1" in text
    assert "stands by, " in text
    assert "4 victims are still saving their work" in text
    assert re.search(r"the second core leads after [\d.]+ s", text), text
    assert "leads, epoch 2" in text
    assert "28 tasks run, says the shim; 28 allocations, says the core" in text
    assert "0 tasks placed twice, 0 laws or books broken" in text


@pytest.mark.long
async def test_without_postgresql_the_demo_shows_a_restart(tmp_path: Path) -> None:
    """One core on a file, killed at the same moment and started again, where no other program can have taken its
    address."""
    said: list[str] = []
    await demonstrate_failover(said.append, tmp_path / "core.log", programs=None)
    text = "\n".join(said)
    assert "PostgreSQL is not installed" in text
    assert re.search(r"the core at unix:\S+/core\.sock, log in", text), text
    assert "the core started again leads after" in text
    assert "28 tasks run, says the shim; 28 allocations, says the core" in text
    assert "3 asks wait, as before" in text


@pytest.mark.long
async def test_the_demo_shows_shims_that_take_over_from_each_other(tmp_path: Path) -> None:
    """Real programs: the simulated cluster gives way to kornel-local, and that to another manager; nothing restarts."""
    status, text = await demonstrate("--kind", "swap", "--out", str(tmp_path))
    assert status == 0, text
    process = re.search(r"Job 1 runs on this machine, as process (\d+)", text)
    assert process is not None, text
    assert "superseded" in text
    assert "\\n" not in text, "lines are lines"
    assert "[annex]default: nodes 1, running 1, waiting 0" in text
    assert f"Job 1 is still process {process[1]}" in text
    served = [line for line in (tmp_path / "core.log").read_text().splitlines() if '"serving"' in line]
    assert len(served) == 1, "the core was not started again"
    with pytest.raises(ProcessLookupError):
        os.kill(int(process[1]), 0)  # The demo cleans up.


@pytest.mark.long
async def test_the_demo_shows_gangs_in_racks(tmp_path: Path) -> None:
    """Each gang stands where the text says, and the one that finds no rack waits until one has room for all of it."""
    status, text = await demonstrate("--kind", "topology", "--out", str(tmp_path))
    assert status == 0, text
    drawn = re.findall(r"rack (r\d):  (.+)", text)
    steps = [dict(drawn[first : first + 4]) for first in range(0, len(drawn), 4)]
    counted = [{rack: Counter(nodes.replace(" ", "")) for rack, nodes in step.items()} for step in steps]
    assert [step["r1"] for step in counted] == [{".": 16}, *[{"t": 12, "q": 4}] * 4]
    assert counted[1]["r2"] == {"s": 8, ".": 8}
    assert counted[2]["r3"] == {"p": 16}
    assert [counted[3][rack]["w"] for rack in ("r2", "r4")] == [2, 2]
    assert "domain-full rack b/r4: 12 of 16, 4 short; then rack a/r2 6" in text
    assert re.search(r"b/r4 +4 .* 12 of 16", text)
    assert counted[4]["r3"] == {"L": 16}


@pytest.mark.long
async def test_the_demo_shows_devices(tmp_path: Path) -> None:
    """Parts share one GPU, pairs are linked, and a gang takes no more than it needs."""
    status, text = await demonstrate("--kind", "devices", "--out", str(tmp_path))
    assert status == 0, text
    drawn = re.findall(r"m\d:  0 \[(.{4})\]=1 \[(.{4})\]   2 \[(.{4})\]=3 \[(.{4})\]", text)
    steps = [" ".join((*drawn[at], *drawn[at + 1])) for at in range(0, len(drawn), 2)]
    assert steps[1] == "sss. .... .... .... .... .... .... ...."
    assert steps[2] == "sss. .... .... .... pppp pppp pppp pppp"
    assert steps[3] == "sss. ssss .... .... pppp pppp pppp pppp"
    assert Counter(steps[4].replace(" ", "")) == {"s": 7, "p": 8, "t": 16, ".": 1}
    assert "wants 4 whole devices; 2 of 4 devices free as a whole, 1 held in part" in text


@pytest.mark.long
async def test_the_demo_shows_gangs_as_units(tmp_path: Path) -> None:
    """A gang runs as a whole or not at all, whether it asks or loses, and nobody leaves in vain."""
    status, text = await demonstrate("--kind", "gang", "--out", str(tmp_path))
    assert status == 0, text
    drawn = [Counter("".join(re.findall(r"n\d \[(.{4})\]", line))) for line in text.splitlines() if "n1 [" in line]
    assert drawn[:2] == [{"a": 10, ".": 6}, {"b": 10, ".": 6}]
    assert drawn[2] == {"c": 8, "d": 8}
    assert drawn[3] in ({"c": 8, "u": 2, ".": 6}, {"d": 8, "u": 2, ".": 6})
    assert drawn[4:] == [{"n": 16}, {"l": 12, "n": 4}]
    assert "gang-incomplete beta: 6 of 10 places" in text
    assert re.search(r"GANG_INCOMPLETE: 3 of 4 places; .* law 2 16", text)


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in DemoKind if kind not in STORIES])
async def test_the_demo_shows_each_kind(kind: DemoKind, tmp_path: Path) -> None:
    """Each kind of preemption on its own, against the real core, meets all that its scenario expects."""
    status, text = await demonstrate("--kind", kind, "--out", str(tmp_path))
    assert status == 0, text
    assert f"{kind}: PASSED" in text
    assert "NOT MET" not in text


async def test_preemption_does_not_spend_a_retry_and_a_failure_does(tmp_path: Path) -> None:
    """With one retry an application outlives five preemptions, and not one failure; real core, over gRPC."""
    scenario = load_scenario(ROOT / "shim_mock" / "scenarios" / "retry-budget.yaml")
    async with running_core(tmp_path / "core.log") as address:
        result = await run_scenario(scenario, address)
    assert result.passed, [verdict for verdict in result.verdicts if not verdict.met] or result.cluster.anomalies
    fate = result.cluster.fates["etl"]
    assert (fate.preempted, fate.failures, fate.failed) == (5, 1, True)


async def test_an_application_with_retries_left_outlives_a_failure_too(tmp_path: Path) -> None:
    """The same with a budget of two: the failed task is re-created like those that were preempted."""
    text = (ROOT / "shim_mock" / "scenarios" / "retry-budget.yaml").read_text(encoding="utf-8")
    text = text.replace("retries: 1", "retries: 2").replace("  - application etl fails\n", "")
    async with running_core(tmp_path / "core.log") as address:
        result = await run_scenario(parse_scenario(text), address)
    assert result.passed, [verdict for verdict in result.verdicts if not verdict.met] or result.cluster.anomalies
    fate = result.cluster.fates["etl"]
    assert (fate.preempted, fate.failures, fate.failed) == (5, 1, False)
    assert result.cluster.accounts.queues["root.batch"].recreated == 6


async def test_a_kind_and_a_trace_exclude_each_other(tmp_path: Path) -> None:
    """A kind brings its own cluster, so a trace beside it is refused before a core is started."""
    status, text = await demonstrate("--kind", "quota", "--trace", str(tmp_path), "--out", str(tmp_path / "out"))
    assert status == 2
    assert "either --kind or --trace" in text
    assert not (tmp_path / "out").exists()


async def test_keep_waits_for_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keep all goes on until Ctrl-C, which ends the wait and stops the core in order."""
    pretend(monkeypatch, BLOCK + SERVING.format(status=0))
    usual = signal.getsignal(signal.SIGINT)

    async def interrupt_later() -> None:
        await until(lambda: signal.getsignal(signal.SIGINT) is not usual, "the demo to wait for Ctrl-C")
        signal.raise_signal(signal.SIGINT)

    async with running_core(tmp_path / "core.log"):
        interrupting = asyncio.create_task(interrupt_later())
        await wait_for_interrupt()
    await interrupting


async def test_the_cluster_goes_on_afterwards(tmp_path: Path) -> None:
    """Tasks end and are placed again, while the core has its shim."""
    scenario = load_scenario(ROOT / "shim_mock" / "scenarios" / "guarantee.yaml")

    async def look_around(result: RunResult) -> None:
        before = len(result.cluster.tasks)
        moving = asyncio.create_task(result.cluster.keep_moving())
        await until(
            lambda: any(each.state is TaskState.RUNNING for each in list(result.cluster.tasks.values())[before:]),
            "a task that was asked for again to run",
        )
        moving.cancel()

    async with running_core(tmp_path / "core.log") as address:
        result = await run_scenario(scenario, address, afterwards=look_around)
    assert result.passed
