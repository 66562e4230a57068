"""The open GPU-cluster trace (openb) as a scenario in which queues compete for room.

A trace is a folder with two CSV files, a node list (``sn,cpu_milli,memory_mib,gpu,model``) and a pod list
(``name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time``).

The trace alone does not fill its cluster, so no task would have to be preempted. It is therefore inflated: the
over-quota work (best effort and burstable) is submitted first, repeated in its order until it asks for more than the
cluster has. When the core has placed all that it can, the latency-sensitive work arrives and has to get its guarantee
by preemption.

GPUs are devices of their nodes (docs/devices.md), and a pod with less than a whole one wants a fraction of one device.
In addition, they are counted as a resource, in thousandths. Guarantees are shares of every type that the cluster has,
GPUs included, because a type that is not guaranteed to a queue entitles it to nothing: without a GPU guarantee, no
victim would leave for a task that needs a GPU.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final, TypeVar

from kornel.shared.quantities import INT64_MAX
from kornel.shim_client import Device, Devices
from kornel.shim_mock import quantities
from kornel.shim_mock.documents import Findings, InputError, Problem
from kornel.shim_mock.expectations import parse_expectation
from kornel.shim_mock.queues import read_queues
from kornel.shim_mock.scenario import Application, NodeGroup, PriorityClass, ReleasePolicy, Scenario, TaskGroup

Value = TypeVar("Value")

NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS: Final = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos"),
    *("pod_phase", "creation_time", "deletion_time", "scheduled_time"),
)
MIB: Final = 1024 * 1024
MOST_GPUS: Final = 256
LATENCY, BURSTABLE, BEST_EFFORT = "root.latency", "root.burstable", "root.best-effort"
QUEUE_OF_QOS: Final = {"LS": LATENCY, "Guaranteed": LATENCY, "Burstable": BURSTABLE, "BE": BEST_EFFORT}
CLASS_OF_QUEUE: Final = {
    LATENCY: PriorityClass("latency", 1000),
    BURSTABLE: PriorityClass("burstable", 100, may_preempt=False),
    BEST_EFFORT: PriorityClass("best-effort", 0, may_preempt=False),
}
PODS_PER_APPLICATION: Final = 200
# The over-quota work asks for this many times the capacity of the scarcest type.
OVERFILL: Final = 1.1
MOST_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node, with amounts in base units."""

    name: str
    resources: Mapping[str, int]
    model: str
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class TracePod:
    """One pod, with amounts in base units. *created* is in seconds of the trace. *ran_s* is how long it ran once it was
    scheduled, in seconds; None: the trace does not say when it ended. *last* is the last time that the trace has
    for it."""

    name: str
    resources: Mapping[str, int]
    queue: str
    created: int
    devices: Devices | None = None
    ran_s: int | None = None
    last: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as it was read, with pods in their order of creation."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]


@dataclass(frozen=True, slots=True)
class Inflation:
    """The settings by which the trace is inflated until its queues compete.

    Shares are percentages of everything that the cluster has. The latency share is a little less than the demand of the
    latency work in the real trace (47 % of the vcores), so that preemption ends because of the guarantee and not for
    lack of demand. *factor* is the number of repetitions of the over-quota work; None means as many as fill the
    cluster. *arrival_s* is the number of seconds over which the latency work arrives; None means thirty pods per
    second, but at least 2 s and at most 45 s.
    """

    latency_percent: int = 40
    burstable_percent: int = 5
    best_effort_percent: int = 10
    factor: float | None = None
    arrival_s: float | None = None


def load_trace(folder: Path) -> Trace:
    """Returns the trace in *folder*. Raises InputError, which names the file, line and field of each mistake."""
    nodes = _read_rows(_find_file(folder, "node_list"), NODE_COLUMNS, _read_node)
    pods = _read_rows(_find_file(folder, "pod_list"), POD_COLUMNS, _read_pod)
    return Trace(tuple(nodes), tuple(sorted(pods, key=lambda pod: pod.created)))


def trace_scenario(trace: Trace, inflation: Inflation = Inflation(), *, name: str = "trace") -> Scenario:
    """Returns the scenario that *inflation* makes of *trace*. (The default is frozen, so it can be shared.)"""
    capacity = _total_of(node.resources for node in trace.nodes)
    config = _make_configuration(capacity, inflation)
    latency = [pod for pod in trace.pods if pod.queue == LATENCY]
    filler = [pod for pod in trace.pods if pod.queue != LATENCY]
    repeated = list(_repeat_pods(filler, inflation.factor or filling_factor(trace)))
    arrival_s = inflation.arrival_s if inflation.arrival_s is not None else min(45.0, max(2.0, len(latency) / 30))
    patience_s = 30 + arrival_s + len(trace.pods) // 20
    sentences = [f"queue {LATENCY} reaches guaranteed within {patience_s:.0f}s"] if latency else []
    if any(pod.queue == BEST_EFFORT for pod in filler):
        sentences.append(f"queue {BEST_EFFORT} never below guaranteed")
        sentences.append(f"preempted at least 1 from {BEST_EFFORT}")
    if any(pod.queue == BURSTABLE for pod in filler):
        sentences.append(f"queue {BURSTABLE} never below guaranteed")
    if latency:
        sentences.append(f"preempted at most 0 from {LATENCY}")
    sentences += ["no law violations", "nothing lost"]
    return Scenario(
        name=name,
        description="over-quota work fills the cluster, latency work takes its guarantee back",
        config=config,
        queues=read_queues(config),
        nodes=tuple(make_node_groups(trace.nodes)),
        applications=(
            *_make_applications(repeated, after_quiet=False, arrival_s=0.0),
            *_make_applications([(pod.name, pod) for pod in latency], after_quiet=True, arrival_s=arrival_s),
        ),
        releases=ReleasePolicy(delay_s=0.2),
        expectations=tuple(parse_expectation(sentence) for sentence in sentences),
        settle_s=3.0,
        timeout_s=2 * patience_s + 120,
    )


def filling_factor(trace: Trace) -> float:
    """Returns how often the over-quota work has to be repeated to ask for more than the cluster has of some type."""
    capacity = _total_of(node.resources for node in trace.nodes)
    demand = _total_of(pod.resources for pod in trace.pods if pod.queue != LATENCY)
    factors = [OVERFILL * capacity[kind] / asked for kind, asked in demand.items() if asked and capacity.get(kind)]
    return max(1.0, min(factors, default=1.0))


def _repeat_pods(pods: Sequence[TracePod], factor: float) -> Iterator[tuple[str, TracePod]]:
    """Yields (key, pod) for *pods* in order, *factor* times. If *factor* is no whole number, the last time covers only
    that fraction of the pods."""
    for index in range(round(len(pods) * factor)):
        repetition, position = divmod(index, len(pods))
        pod = pods[position]
        yield (f"{pod.name}-{repetition}" if repetition else pod.name), pod


def _make_applications(
    pods: Sequence[tuple[str, TracePod]], *, after_quiet: bool, arrival_s: float
) -> Iterator[Application]:
    """Yields applications of equal size. Consecutive pods with the same resources that arrive together share a task
    group."""
    by_queue: dict[str, list[tuple[int, str, TracePod]]] = {}
    for index, (key, pod) in enumerate(pods):
        by_queue.setdefault(pod.queue, []).append((index, key, pod))
    for queue, members in by_queue.items():
        short = queue.rpartition(".")[2]
        for start in range(0, len(members), PODS_PER_APPLICATION):
            part = members[start : start + PODS_PER_APPLICATION]
            groups: list[TaskGroup] = []
            # Equal resources are one object (see _share_shape), so they can be compared by identity.
            for _, run in groupby(part, key=lambda member: _alike(member[2], arrival_s and member[0])):
                same = list(run)
                groups.append(
                    TaskGroup(
                        name=f"group-{len(groups)}",
                        resources=same[0][2].resources,
                        count=len(same),
                        priority_class=CLASS_OF_QUEUE[queue],
                        at_s=arrival_s * same[0][0] / max(1, len(pods)),
                        restart=queue != LATENCY,
                        devices=same[0][2].devices,
                        keys=tuple(key for _, key, _ in same),
                    )
                )
            yield Application(
                id=f"{short}-{start // PODS_PER_APPLICATION:04}",
                queue=queue,
                tasks=tuple(groups),
                after_quiet=after_quiet,
            )


def _alike(pod: TracePod, place: float) -> tuple[object, ...]:
    """Returns the values that all pods of a task group have in common."""
    return (id(pod.resources), pod.devices, place)


def make_node_groups(nodes: Iterable[TraceNode]) -> Iterator[NodeGroup]:
    """Yields each of *nodes* as a group of its own."""
    for node in nodes:
        yield NodeGroup(
            name=node.name,
            resources=node.resources,
            attributes={"si/instance-type": node.model or "cpu"},
            devices=tuple(Device(str(number), node.model) for number in range(node.gpus)),
        )


def _make_configuration(capacity: Mapping[str, int], inflation: Inflation) -> str:
    """Returns queues.yaml with guarantees as shares of *capacity*."""
    lines = [
        "partitions:",
        "  - name: default",
        "    queues:",
        "      - name: root",
        '        submitacl: "*"',
        "        queues:",
    ]
    for queue, percent in (
        (LATENCY, inflation.latency_percent),
        (BURSTABLE, inflation.burstable_percent),
        (BEST_EFFORT, inflation.best_effort_percent),
    ):
        lines += [
            f"          - name: {queue.rpartition('.')[2]}",
            "            resources:",
            "              guaranteed:",
            f"                vcore: {capacity['vcore'] * percent // 100}m",
            # Every type has a guarantee: without one for GPUs, no victim would leave for a task that needs a GPU.
            *(
                f"                {kind}: {amount * percent // 100}"
                for kind, amount in sorted(capacity.items())
                if kind != "vcore"
            ),
            "            properties:",
            "              preemption.delay: 1s",
        ]
    return "\n".join(lines) + "\n"


def _total_of(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in amounts:
        for kind, amount in entry.items():
            total[kind] = total.get(kind, 0) + amount
    return total


def _find_file(folder: Path, what: str) -> Path:
    """Returns the only *what* CSV file of *folder*, or the default one of several pod lists."""
    if not folder.is_dir():
        raise InputError((Problem(str(folder), 0, "", "no such folder"),))
    found = sorted(folder.glob(f"*{what}*.csv"))
    if len(found) > 1:
        found = [path for path in found if path.stem.endswith(("_default", "_all_node"))] or found
    if len(found) != 1:
        count = "no" if not found else "more than one"
        raise InputError((Problem(str(folder), 0, "", f"{count} file *{what}*.csv"),))
    return found[0]


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a CSV file by column, with its position."""

    line: int
    texts: Mapping[str, str]
    findings: Findings

    def parse(self, column: str, parser: Callable[[str], Value], default: Value) -> Value:
        try:
            return parser(self.texts[column])
        except ValueError as error:
            self.findings.add(self.line, column, str(error))
            return default

    def amount(self, column: str, most: int = INT64_MAX // MIB) -> int:
        return self.parse(column, lambda text: quantities.parse_integer(text, 0, most), 0)


def _read_rows(
    path: Path, columns: tuple[str, ...], convert: Callable[[_Row, dict[tuple[int, ...], dict[str, int]]], Value]
) -> list[Value]:
    """Returns the results of *convert* for every line of *path*. The first column names the line and must be unique."""
    findings = Findings(str(path))
    shapes: dict[tuple[int, ...], dict[str, int]] = {}
    values: list[Value] = []
    names: set[str] = set()
    for line, texts in _read_lines(path, columns, findings):
        row = _Row(line, dict(zip(columns, texts, strict=True)), findings)
        name = row.texts[columns[0]]
        if not name or name in names:
            findings.add(line, columns[0], f"{name!r} appears twice" if name else "is empty")
        names.add(name)
        values.append(convert(row, shapes))
        if len(findings.problems) >= MOST_PROBLEMS:
            findings.add(line, "", "too many problems, the rest was not read")
            break
    if not values and not findings.problems:
        findings.add(0, "", "no line follows the header")
    findings.raise_if_any()
    return values


def _read_lines(path: Path, columns: tuple[str, ...], findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number and the fields of each line below the header that has the right number of fields."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            if tuple(header) != columns:
                findings.add(1, "", f"the header must be {','.join(columns)}")
                return
            for fields in reader:
                if len(fields) != len(columns):
                    missing = columns[len(fields)] if len(fields) < len(columns) else ""
                    findings.add(reader.line_num, missing, f"{len(fields)} fields instead of {len(columns)}")
                else:
                    yield reader.line_num, fields
    except OSError as error:
        findings.add(0, "", error.strerror or str(error))
    except UnicodeDecodeError as error:
        findings.add(0, "", f"not UTF-8 text: {error.reason}")
    except csv.Error as error:
        findings.add(reader.line_num, "", f"not CSV: {error}")


def _share_shape(
    shapes: dict[tuple[int, ...], dict[str, int]], vcore: int, memory_mib: int, gpu: int
) -> dict[str, int]:
    """Returns the amounts as a mapping that all equal amounts share. Types with an amount of 0 are left out."""
    amounts = {"vcore": vcore, "memory": memory_mib * MIB, "gpu_milli": gpu}
    return shapes.setdefault((vcore, memory_mib, gpu), {kind: amount for kind, amount in amounts.items() if amount})


def _read_node(row: _Row, shapes: dict[tuple[int, ...], dict[str, int]]) -> TraceNode:
    gpus = row.amount("gpu", MOST_GPUS)
    resources = _share_shape(shapes, row.amount("cpu_milli"), row.amount("memory_mib"), gpus * 1000)
    return TraceNode(row.texts["sn"], resources, row.texts["model"], gpus)


def _read_pod(row: _Row, shapes: dict[tuple[int, ...], dict[str, int]]) -> TracePod:
    number, milli = row.amount("num_gpu", MOST_GPUS), row.amount("gpu_milli", 1000)
    resources = _share_shape(shapes, row.amount("cpu_milli"), row.amount("memory_mib"), number * milli)
    before = len(row.findings.problems)
    queue = row.parse("qos", _queue_of, LATENCY)
    created = row.parse("creation_time", partial(quantities.parse_integer, least=0, most=INT64_MAX), 0)
    deleted, scheduled = (
        row.amount(column, INT64_MAX) if row.texts[column] else None for column in ("deletion_time", "scheduled_time")
    )
    ran_s = max(0, deleted - (created if scheduled is None else scheduled)) if deleted is not None else None
    if not resources and len(row.findings.problems) == before:
        row.findings.add(row.line, "cpu_milli", "the pod asks for nothing")
    devices = _wanted_devices(number, milli, row.texts["gpu_spec"])
    last = max(created, scheduled or 0, deleted or 0)
    return TracePod(row.texts["name"], resources, queue, created, devices, ran_s, last)


def _wanted_devices(number: int, milli: int, models: str) -> Devices | None:
    """Returns the devices that a pod wants: a part of one, or whole ones, of one of *models*; ``None``: none."""
    types = tuple(filter(None, models.split("|")))
    if not number or not milli:
        return None
    if number == 1 and milli < 1000:
        return Devices(fraction=milli / 1000, types=types)
    return Devices(count=number, types=types)


def _queue_of(qos: str) -> str:
    if qos not in QUEUE_OF_QOS:
        raise ValueError(f"{qos!r} is none of {', '.join(QUEUE_OF_QOS)}")
    return QUEUE_OF_QOS[qos]
