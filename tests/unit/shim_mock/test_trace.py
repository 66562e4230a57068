"""Traces: strict reading, and the competition that is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.shim_client import Device, Devices
from kornel.shim_mock.documents import InputError
from kornel.shim_mock.generate import generate_trace
from kornel.shim_mock.trace import (
    BEST_EFFORT,
    LATENCY,
    MIB,
    NODE_COLUMNS,
    POD_COLUMNS,
    Inflation,
    filling_factor,
    load_trace,
    trace_scenario,
)

NODES = f"{','.join(NODE_COLUMNS)}\nn-0,8000,16384,2,T4\n"
POD = "p-0,2000,1024,1,500,,LS,Running,5,,\n"
PODS = f"{','.join(POD_COLUMNS)}\n{POD}p-1,1000,512,0,0,,BE,Pending,3,9,\n"


def write(folder: Path, nodes: str = NODES, pods: str = PODS) -> Path:
    (folder / "node_list.csv").write_text(nodes, encoding="utf-8")
    (folder / "pod_list.csv").write_text(pods, encoding="utf-8")
    return folder


def test_a_trace_is_read_in_base_units_and_in_order(tmp_path: Path) -> None:
    """Cores are thousandths, memory is bytes, GPUs are thousandths; pods come in their order of creation."""
    trace = load_trace(write(tmp_path))
    assert trace.nodes[0].resources == {"vcore": 8000, "memory": 16384 * MIB, "gpu_milli": 2000}
    assert [pod.name for pod in trace.pods] == ["p-1", "p-0"]
    assert trace.pods[0].resources == {"vcore": 1000, "memory": 512 * MIB}
    assert trace.pods[1].resources == {"vcore": 2000, "memory": 1024 * MIB, "gpu_milli": 500}
    assert [pod.queue for pod in trace.pods] == [BEST_EFFORT, LATENCY]


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "reason"),
    [
        ("name,cpu", "title,cpu", 1, "", "header"),
        ("p-0,2000", "p-0,-2000", 2, "cpu_milli", "outside"),
        ("p-0,2000", "p-0,2.5", 2, "cpu_milli", "not a whole number"),
        ("p-0,2000,1024", "p-0,2000,99999999999999", 2, "memory_mib", "outside"),
        ("p-0,2000,1024,1,500", "p-0,2000,1024,1,5000", 2, "gpu_milli", "outside"),
        ("p-0,2000,1024,1", "p-0,2000,1024,", 2, "num_gpu", "not a whole number"),
        (",LS,", ",Gold,", 2, "qos", "none of LS"),
        ("Running,5,", "Running,soon,", 2, "creation_time", "not a whole number"),
        ("Running,5,,", "Running,5,x,", 2, "deletion_time", "not a whole number"),
        ("p-1,", "p-0,", 3, "name", "appears twice"),
        ("p-1,", ",", 3, "name", "empty"),
        (POD, "p-0,0,0,0,0,,LS,Running,5,,\n", 2, "cpu_milli", "asks for nothing"),
        (POD, "p-0,2000\n", 2, "memory_mib", "2 fields instead of 11"),
        (POD, f"{POD.strip()},extra\n", 2, "", "12 fields instead of 11"),
        (POD, '"p-0\n', 0, "", "not CSV"),
    ],
)
def test_bad_lines_are_refused_with_line_and_field(
    tmp_path: Path, old: str, new: str, line: int, field: str, reason: str
) -> None:
    """A wrong value refuses the trace; the problem names the file, the line and the column."""
    folder = write(tmp_path, pods=PODS.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_trace(folder)
    problem = next(entry for entry in caught.value.problems if reason in entry.reason)
    assert problem.file.endswith("pod_list.csv")
    assert problem.field == field
    assert line in (problem.line, 0)


def test_a_hopeless_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    """After twenty problems reading stops: the rest would say the same."""
    bad = "".join(f"n-{index},x,1,0,\n" for index in range(1000))
    with pytest.raises(InputError) as caught:
        load_trace(write(tmp_path, nodes=f"{','.join(NODE_COLUMNS)}\n{bad}"))
    assert len(caught.value.problems) == 21


def test_missing_files_are_named(tmp_path: Path) -> None:
    """A folder without the two lists, or none at all, is refused with what is missing."""
    with pytest.raises(InputError, match="no such folder"):
        load_trace(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no file \*node_list\*.csv"):
        load_trace(tmp_path)
    write(tmp_path, pods=f"{','.join(POD_COLUMNS)}\n")
    with pytest.raises(InputError, match="no line follows"):
        load_trace(tmp_path)


def test_a_made_up_trace_is_always_the_same(tmp_path: Path) -> None:
    """The same seed writes the same files, another seed others; both can be read."""
    generate_trace(tmp_path / "a", seed=1)
    generate_trace(tmp_path / "b", seed=1)
    generate_trace(tmp_path / "c", seed=2)
    texts = [(tmp_path / name / "pod_list.csv").read_text(encoding="utf-8") for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    trace = load_trace(tmp_path / "a")
    assert (len(trace.nodes), len(trace.pods)) == (60, 600)


def test_inflation_makes_queues_compete(tmp_path: Path) -> None:
    """Over-quota work asks for more than the cluster has and comes first; latency work follows when that is placed."""
    generate_trace(tmp_path, seed=1)
    trace = load_trace(tmp_path)
    scenario = trace_scenario(trace)
    assert filling_factor(trace) > 1
    demand: dict[str, int] = {}
    keys: list[str] = []
    for application in scenario.applications:
        assert application.after_quiet == (application.queue == LATENCY)
        for group in application.tasks:
            keys += [group.key(application.id, index) for index in range(group.count)]
            for kind, amount in group.resources.items():
                if not application.after_quiet:
                    demand[kind] = demand.get(kind, 0) + amount * group.count
    assert len(set(keys)) == len(keys)
    assert any(demand[kind] > scenario.capacity[kind] for kind in demand)


def test_guarantees_are_shares_of_the_cluster(tmp_path: Path) -> None:
    """Each queue is guaranteed its percentage of every type there is: nobody leaves for one that nobody guarantees."""
    scenario = trace_scenario(load_trace(write(tmp_path)), Inflation(latency_percent=50))
    assert scenario.queues[LATENCY].guaranteed == {"vcore": 4000, "memory": 8192 * MIB, "gpu_milli": 1000}
    assert scenario.queues[BEST_EFFORT].guaranteed == {"vcore": 800, "memory": 16384 * MIB // 10, "gpu_milli": 200}


def test_gpus_are_devices_and_parts_of_them(tmp_path: Path) -> None:
    """A node has as many devices as GPUs; less than a whole GPU is a part of one, and a spec names the models."""
    pods = (
        "p-1,1000,512,4,1000,,LS,Running,6,,\np-2,1000,512,1,1000,T4|P100,BE,Running,7,,\n"
        "p-3,1000,512,0,0,,BE,Running,8,,\n"
    )
    trace = load_trace(write(tmp_path, pods=f"{','.join(POD_COLUMNS)}\n{POD}{pods}"))
    assert [pod.devices for pod in trace.pods] == [
        Devices(fraction=0.5), Devices(count=4), Devices(count=1, types=("T4", "P100")), None,
    ]  # fmt: skip
    scenario = trace_scenario(trace, Inflation(factor=1))
    assert scenario.nodes[0].devices == (Device("0", "T4"), Device("1", "T4"))
    wanted = {key: group.devices for app in scenario.applications for group in app.tasks for key in group.keys}
    assert wanted["p-0"] == Devices(fraction=0.5)
    assert wanted["p-3"] is None


def test_pods_with_equal_amounts_and_other_devices_are_no_group(tmp_path: Path) -> None:
    """Two halves of two GPUs are as much as one whole, and not the same."""
    pods = "p-1,2000,1024,1,1000,,BE,Running,6,,\np-2,2000,1024,2,500,,BE,Running,6,,\n"
    trace = load_trace(write(tmp_path, pods=f"{','.join(POD_COLUMNS)}\n{pods}"))
    scenario = trace_scenario(trace, Inflation(factor=1))
    assert [(group.devices, group.count) for app in scenario.applications for group in app.tasks] == [
        (Devices(count=1), 1), (Devices(count=2), 1),
    ]  # fmt: skip
