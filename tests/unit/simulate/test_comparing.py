"""Configurations compared on one workload: pairs, reports, interruptions, and what cannot be used."""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.core.engine.engine import CycleResult, Engine
from kornel.simulate import comparing
from kornel.simulate.comparing import Comparer, Comparison, QueueRow
from kornel.simulate.playing import Simulation
from kornel.simulate.report import describe_comparison, write_report
from kornel.simulate.simulated_core import SimulationFailed
from kornel.simulate.workloads import Generation, generate_scenario, open_workload

CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: latency, resources: {guaranteed: {vcore: 64}}, properties: {preemption.delay: 1s}}
          - {name: burstable}
          - {name: best-effort}
"""
CAPPED = CONFIG.replace("{name: burstable}", "{name: burstable, resources: {max: {vcore: 16}}}")
TINY = Generation(hours=0.5, nodes=2, load=1.0)
SCENARIO = """
name: tiny
speed: 50
queues: {partitions: [{name: default, queues: [{name: root, submitacl: "*", queues: [{name: a}]}]}]}
nodes: [{name: n, resources: {vcore: 2}}]
applications:
  - {id: app, queue: root.burstable, tasks: [{name: t, count: 3, runtime: 10s, resources: {vcore: 1}}]}
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,4000,1024,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,4000,1,0,0,,LS,Running,100,400,200\n"
    "p1,4000,1,0,0,,LS,Running,150,,\n"
)


def make_row(configuration: str, seed: int, wait_s: float) -> QueueRow:
    zeros: dict[str, Any] = {field.name: 0 for field in fields(QueueRow)}
    zeros |= {"configuration": configuration, "seed": seed, "queue": "root.a", "wait_p50_s": wait_s}
    return QueueRow(**zeros)


def run(workload: str, *files: Path, out: Path, **options: Any) -> Any:
    words = [word for path in files for word in ("--queues", str(path))]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return CliRunner().invoke(app, ["simulate", "--workload", workload, *words, "--out", str(out)])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(CONFIG)
    return path


def test_differences_are_paired_by_seed() -> None:
    """Differences of -1, -2 and -3 s: a mean of -2, and half an interval of 4.30 standard errors (1 / √3)."""
    comparison = Comparison(["a", "b"], 6)
    for seed, (before, after) in enumerate([(11.0, 10.0), (22.0, 20.0), (33.0, 30.0)], 1):
        comparison.queues += [make_row("a", seed, before), make_row("b", seed, after)]
    comparison.queues.append(make_row("a", 4, 99.0))
    (found,) = [each for each in comparison.find_differences() if each.figure == "wait_p50_s"]
    assert (found.first, found.other, found.difference, found.seeds) == (22.0, 20.0, -2.0, 3)
    assert found.margin == pytest.approx(4.30 / 3**0.5)
    assert not found.is_clear


def test_the_same_jobs_come_whatever_the_configuration() -> None:
    """The workload of a seed depends on the leaves alone; another seed has another one."""
    one, other = (generate_scenario(text, 7, TINY) for text in (CONFIG, CAPPED))
    assert one.applications == other.applications
    assert generate_scenario(CONFIG, 8, TINY).applications != one.applications
    first, last = "          - {name: burstable}\n", "          - {name: best-effort}\n"
    other_order = CONFIG.replace(first + last, last + first)
    assert other_order != CONFIG
    assert generate_scenario(other_order, 7, TINY).applications == one.applications


def test_a_clear_difference_becomes_a_sentence(tmp_path: Path) -> None:
    """A max that half of the cluster's demand does not pass makes its queue wait; the files say so, twice the same."""
    demand = Generation(hours=2.0, nodes=1, load=1.5)
    texts = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        comparer = Comparer([("now", CONFIG), ("capped", CAPPED)], open_workload("generated", demand), 2)
        comparer.run_all(lambda row: None)
        folder.mkdir()
        write_report(folder, comparer.comparison)
        texts.append({path.name: path.read_text() for path in folder.iterdir()})
    assert texts[0] == texts[1]
    assert sorted(texts[0]) == ["queues.csv", "report.json", "summary.txt"]
    rows = list(csv.DictReader(texts[0]["queues.csv"].splitlines()))
    assert {(row["configuration"], row["seed"]) for row in rows} == {
        (name, seed) for name in ("now", "capped") for seed in "12"
    }
    for row in rows:
        ended = sum(int(row[name]) for name in ("ended", "preempted", "lost_with_nodes", "running"))
        assert int(row["started"]) == ended
        assert int(row["asked"]) == int(row["started"]) + int(row["waiting"]) + int(row["given_up"])
    capped = [row for row in rows if row["configuration"] == "capped" and row["queue"] == "root.burstable"]
    assert all(float(row["utilisation"]) <= 0.25 for row in capped)
    assert json.loads(texts[0]["report.json"])["complete"] is True


def test_an_interrupted_comparison_leaves_a_report(tmp_path: Path) -> None:
    """The run that is under way is left out, and the report says that runs are missing."""
    comparer = Comparer([("now", CONFIG), ("capped", CAPPED)], open_workload("generated", TINY), 3)
    comparer.run_all(lambda row: comparer.stop())
    write_report(tmp_path, comparer.comparison)
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["complete"], len(found["runs"])) == (False, 1)
    assert describe_comparison(comparer.comparison).startswith("INTERRUPTED: 1 of 6 runs.")


def test_a_run_stops_before_its_next_event() -> None:
    """What has happened until then is counted."""
    simulation = Simulation(generate_scenario(CONFIG, 1, TINY))
    simulation.core.next_call_ns = mock.Mock(side_effect=lambda: setattr(simulation, "stopped", True))  # type: ignore[method-assign]
    simulation.play()
    assert simulation.agenda.real_s < TINY.hours * 3600


def test_a_scenario_gets_another_configuration(tmp_path: Path, config: Path) -> None:
    """Its simulated seconds are the core's: the third task waits for ten of them, whatever the speed."""
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    result = run(str(tmp_path / "tiny.yaml"), config, out=tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "root.burstable" in result.output
    (row,) = csv.DictReader((tmp_path / "out" / "queues.csv").read_text().splitlines())
    assert (row["started"], row["ended"], row["wait_p50_s"], row["wait_longest_s"]) == ("3", "3", "0.0", "10.0")
    assert row["slowdown_p95"] == "2.0"
    # 30 of the 40 core seconds until the last task ends; that nothing happens for an hour afterwards does not count.
    assert float(row["utilisation"]) == pytest.approx(0.75)


def test_a_trace_is_replayed_at_its_own_times(tmp_path: Path, config: Path) -> None:
    """The second pod waits until the first has run for 200 s, and has no end: it runs when the trace is over."""
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "node_list.csv").write_text(NODES)
    (folder / "pod_list.csv").write_text(PODS)
    result = run(str(folder), config, out=tmp_path / "out")
    assert result.exit_code == 0, result.output
    (row,) = csv.DictReader((tmp_path / "out" / "queues.csv").read_text().splitlines())
    assert (row["started"], row["ended"], row["running"], row["wait_longest_s"]) == ("2", "1", "1", "150.0")
    # From the first pod at 100 s to the last event at 400 s, a deletion, one of the two runs.
    assert float(row["utilisation"]) == pytest.approx(1.0)


def test_a_report_says_what_was_refused(tmp_path: Path, config: Path) -> None:
    """An application whose queue the configuration does not have."""
    (tmp_path / "tiny.yaml").write_text(SCENARIO.replace("root.burstable", "root.gone"))
    result = run(str(tmp_path / "tiny.yaml"), config, out=tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "1 times something was refused or made no sense, at first: application app was refused: " in result.output


def test_configurations_are_checked_before_the_first_run(tmp_path: Path, config: Path) -> None:
    """The file is named, and an older report stays."""
    out = tmp_path / "out"
    assert run("generated", config, out=out, hours=0.01, nodes=1).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (tmp_path / "refused.yaml").write_text(CONFIG.replace("vcore: 64", "vcore: many"))
    (tmp_path / "broken.yaml").write_text("partitions: [")
    (tmp_path / "latin.yaml").write_bytes(b"# \xe9\n" + CONFIG.encode())
    (tmp_path / "leafless.yaml").write_text("partitions: [{name: default, queues: [{name: root}]}]")
    for name in ("refused", "broken", "latin", "leafless"):
        result = run("generated", config, tmp_path / f"{name}.yaml", out=out, hours=0.01, nodes=1)
        assert result.exit_code == 2, result.output
        assert f"{name}.yaml: " in result.output
        assert "of 2" not in result.output
    assert run("generated", config, config, out=out).exit_code == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_other_leaves_are_pointed_out(tmp_path: Path, config: Path) -> None:
    """Their generated jobs are not those of the first configuration."""
    (tmp_path / "other.yaml").write_text(CONFIG.replace("burstable", "other"))
    result = run("generated", config, tmp_path / "other.yaml", out=tmp_path / "out", hours=0.01, nodes=1)
    assert result.exit_code == 0, result.output
    assert "different leaves" in result.output


def test_what_has_ended_is_forgotten() -> None:
    """The model keeps neither the tasks nor what its accounts would show of them."""
    simulation = Simulation(generate_scenario(CONFIG, 1, TINY))
    simulation.play()
    (figures, *_) = simulation.figures.queues.values()
    assert figures.ended
    accounts = simulation.model.accounts
    assert len(accounts.samples) == 1
    assert not any(account.latencies_s for account in accounts.queues.values())


@pytest.mark.parametrize(
    ("workload", "text", "said"),
    [
        ("generated", "partitions: [{name: default, queues: [{name: root}]}]", "no leaf queue"),
        ("generated", CONFIG.replace("vcore: 64", "vcore: many"), "invalid quantity 'many'"),
        ("nowhere.yaml", CONFIG, "nowhere.yaml"),
        ("changing.yaml", CONFIG, "changes"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, workload: str, text: str, said: str) -> None:
    """With status 2."""
    (tmp_path / "queues.yaml").write_text(text)
    config = SCENARIO.splitlines()[3]
    (tmp_path / "changing.yaml").write_text(f"{SCENARIO}changes:\n  - at: 5s\n    {config}\n")
    name = workload if workload == "generated" else str(tmp_path / workload)
    result = run(name, tmp_path / "queues.yaml", out=tmp_path / "out", hours=0.1)
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_a_bug_of_the_engine_ends_the_run_with_its_call() -> None:
    """The registration is call 1, the slice behind it call 2."""
    with (
        mock.patch.object(Engine, "cycle", side_effect=ZeroDivisionError),
        pytest.raises(SimulationFailed, match="call 2"),
    ):
        Simulation(generate_scenario(CONFIG, 1, TINY)).play()


def test_a_broken_law_ends_the_run_with_its_call() -> None:
    """As soon as the engine counts one."""
    sound = Engine.cycle

    def break_law(engine: Engine, now_ns: int, budget: int) -> CycleResult:
        for name in engine.partition_names():
            state = engine.partition(name)
            assert state is not None
            state.law_violations += 1
        return sound(engine, now_ns, budget)

    with (
        mock.patch.object(Engine, "cycle", break_law),
        pytest.raises(SimulationFailed, match="law of preemption in call 2"),
    ):
        Simulation(generate_scenario(CONFIG, 1, TINY)).play()


def test_percentiles_are_nearest_ranks() -> None:
    """The smallest value that so many do not exceed; 0 without any."""
    assert [comparing.percentile(range(1, 11), percent) for percent in (50, 95, 99, 100)] == [5, 10, 10, 10]
    assert comparing.percentile([], 50) == 0
